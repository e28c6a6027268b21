"""Worlds themselves: started, entered, several at once, broken, ended without a trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SANDBOX = str(ROOT / "scripts" / "sandbox")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo" / "sandbox"
NAME = f"t{os.getpid()}"


def sandbox(*words: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SANDBOX, *words], capture_output=True, text=True, timeout=120, **more)


def well(*words: str, **more) -> str:
    done = sandbox(*words, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def world() -> Iterator[str]:
    well("up", "--name", NAME, "--speed", "100")
    yield NAME
    well("down", "--name", NAME)
    shutil.rmtree(CACHE / NAME)


@pytest.fixture
def other() -> Iterator[str]:
    name = f"{NAME}-other"
    yield name
    sandbox("down", "--name", name)
    shutil.rmtree(CACHE / name, ignore_errors=True)


def inside(name: str, *command: str, **more) -> subprocess.CompletedProcess[str]:
    return sandbox("exec", "--name", name, *command, **more)


def holder(name: str) -> int:
    return int((CACHE / name / "world.pid").read_text().split()[0])


def of_network(network: str) -> list[str]:
    """Command lines of all processes in a network namespace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns" / "net") == network:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def until(what: Callable[[], object], limit: float = 20) -> object:
    end = time.monotonic() + limit
    while not (got := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return got


def test_exec_is_the_command(world, tmp_path):
    done = inside(world, "sh", "-c", "pwd; cat; echo oops >&2; exit 7", cwd=tmp_path, input="through")
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{tmp_path}\nthrough", "oops\n")
    assert inside(world, "curl", "-sf", "http://aws.sandbox:5005/_sandbox/health").stdout == '{"ok": true}'
    assert inside(world, "sh", "-c", "readlink /proc/self/exe").stdout.strip().endswith("readlink"), "/proc is the machine's"
    assert f"nemo/sandbox/{world}/kube/config\n" in inside(world, "env").stdout


def test_signals_reach_the_command(world):
    command = "trap 'echo got INT; exit 9' INT; echo waiting; while :; do sleep 0.05; done"
    running = subprocess.Popen([SANDBOX, "exec", "--name", world, "sh", "-c", command], stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "waiting\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=10)[0] == "got INT\n" and running.returncode == 9


def test_a_command_that_is_killed_is_gone(world):
    running = subprocess.Popen([SANDBOX, "exec", "--name", world, "sleep", "4242"])
    network = os.readlink(f"/proc/{holder(world)}/ns/net")
    until(lambda: "sleep 4242 " in of_network(network))
    running.kill()
    assert running.wait(10) == -signal.SIGKILL
    assert "sleep 4242 " not in of_network(network)


def test_the_terminal_is_the_commands_own(world):
    done = subprocess.run(["script", "-qec", f"{SANDBOX} exec --name {world} tty", "/dev/null"], capture_output=True, text=True, timeout=20)
    assert "/dev/pts/" in done.stdout or "/dev/tty" in done.stdout, done.stdout


def test_the_world_has_no_way_out(world):
    done = inside(world, "curl", "-sS", "-m", "5", "https://example.com/")
    assert done.returncode == 6, done.stderr  # could not resolve
    assert inside(world, "curl", "-sS", "-m", "5", "http://93.184.215.14/").returncode == 7


def test_upstream_registries_hold_only_their_own(world):
    ask = lambda host: inside(world, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"https://{host}/v2/nvidia/k8s-device-plugin/manifests/v0.17.4").stdout  # noqa: E731
    assert ask("nvcr.io") == "401" and ask("ghcr.io") == "404"


def test_ways_in_from_outside(world):
    exports = dict(line.removeprefix("export ").split("=", 1) for line in well("env", "--name", world).splitlines())
    answer = subprocess.run(["curl", "-sf", exports["AWS_ENDPOINT_URL"] + "/_sandbox/health"], capture_output=True, text=True, timeout=20)
    assert answer.stdout == '{"ok": true}'
    assert exports["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")


def test_two_worlds_do_not_meet(world, other):
    well("up", "--name", other, "--speed", "50")
    make = ["curl", "-sf", "-X", "POST", "-d", '{"AWS": 1}', "http://aws.sandbox:5005/_sandbox/latencies"]
    assert inside(world, *make).returncode == 0
    assert '"AWS"' in inside(world, "curl", "-sf", "http://aws.sandbox:5005/_sandbox/latencies").stdout
    assert '"AWS"' not in inside(other, "curl", "-sf", "http://aws.sandbox:5005/_sandbox/latencies").stdout
    ports = [json.loads((CACHE / name / "ports.json").read_text()) for name in (world, other)]
    assert not set(ports[0].values()) & set(ports[1].values())
    assert json.loads(well("status", "--name", other, "--json"))["speed"] == 50


def test_down_leaves_no_process_and_no_mount(other):
    before = Path("/proc/self/mounts").read_text()
    well("up", "--name", other)
    network = os.readlink(f"/proc/{holder(other)}/ns/net")
    left_running = subprocess.Popen([SANDBOX, "exec", "--name", other, "sleep", "1000"])
    until(lambda: "sleep 1000 " in of_network(network))
    assert len(of_network(network)) > 10
    well("down", "--name", other)
    assert left_running.wait(10) != 0
    assert of_network(network) == []
    assert Path("/proc/self/mounts").read_text() == before
    until(lambda: not [line for line in commands() if str(CACHE / other) in line], 5)
    done = sandbox("status", "--name", other)
    assert done.returncode == 1 and f"no sandbox {other} is running" in done.stderr and "scripts/sandbox up" in done.stderr


def commands() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_a_part_that_dies_is_named(world):
    hub = json.loads(well("status", "--name", world, "--json"))["parts"]["hub"]
    assert hub["state"] == "ready"
    network = os.readlink(f"/proc/{holder(world)}/ns/net")
    victim = next(int(p.name) for p in Path("/proc").glob("[0-9]*") if is_hub(p, network))
    os.kill(victim, signal.SIGKILL)
    done = until(lambda: (got := sandbox("status", "--name", world)).returncode and got)
    assert "hub has ended" in done.stderr and "hub.log" in done.stderr


def is_hub(process: Path, network: str) -> bool:
    try:
        return os.readlink(process / "ns" / "net") == network and b"\0-m\0hub\0" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_part_that_does_not_start_is_named_with_its_last_words(other, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text("this is no TOML")
    done = sandbox("up", "--name", other, "--faults", str(rules))
    assert done.returncode == 1
    assert f"sandbox {other} did not start: aws ended with status 1" in done.stderr and "TOMLDecodeError" in done.stderr
    assert not (CACHE / other / "world.pid").exists(), "nothing is left half started"


def test_a_port_in_use_is_said_with_its_owner(other):
    well("up", "--name", other)
    well("down", "--name", other)
    port = json.loads((CACHE / other / "ports.json").read_text())["aws"]
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        done = sandbox("up", "--name", other)
    assert done.returncode == 1
    assert f"127.0.0.1:{port} (aws) is in use by process {os.getpid()}" in done.stderr


def test_bad_names_and_unknown_worlds():
    assert "is no name for a sandbox" in sandbox("up", "--name", "Not/Good").stderr
    assert "no sandbox nobody is running" in sandbox("exec", "--name", "nobody", "true").stderr
