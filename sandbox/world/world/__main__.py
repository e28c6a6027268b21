"""scripts/sandbox: up, down, status, env, reset. (`exec` is in the script itself: it has to become the command.)"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import certificates, outside, parts
from .paths import ACCESS_KEY, HUB_TOKEN, INSIDE, REGION, REPO, SECRET_KEY, Wrong, World, everyone, world
from .processes import tail

LARGE = ("etcd", "n", "shared", "ecr", "images", "trash")  # what a world fills, and what goes with it
NEEDED = ("unshare", "nsenter", "ip", "bwrap", "docker-registry", "socat", "openssl", "curl")


def ask(here: World, path: str, body: Any = None, timeout: float = 180) -> dict[str, Any]:
    """The keeper of a running sandbox."""
    connection = http.client.HTTPConnection("world")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout)
    try:
        connection.sock.connect(str(here.socket))
        connection.request("POST", path, json.dumps(body or {}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
    except OSError as problem:
        raise Wrong(f"sandbox {here.name} does not answer ({problem}); last lines of its log:\n{tail(here.logs / 'world.log')}") from problem
    if answer.status != 200:
        raise Wrong(said["error"])
    return said


def holder(here: World) -> int | None:
    """The process that holds a sandbox's namespaces, if it runs."""
    try:
        pid, born = (here.folder / "world.pid").read_text().split()
        return int(pid) if start_time(int(pid)) == born else None
    except (OSError, ValueError):
        return None


def start_time(pid: int) -> str:
    """A process number alone may be another process's by now."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def running(here: World) -> int:
    pid = holder(here)
    if pid is None:
        known = [one.name for one in everyone() if holder(one)]
        raise Wrong(f"no sandbox {here.name} is running" + (f" (running: {', '.join(known)})" if known else "") + f"; start it: scripts/sandbox up{named(here)}")
    return pid


def named(here: World) -> str:
    return "" if here.name == "default" else f" --name {here.name}"


def up(here: World, args: argparse.Namespace) -> None:
    if holder(here):
        speed = ask(here, "/status")["speed"]
        if args.speed is not None and speed != args.speed:
            raise Wrong(f"sandbox {here.name} is running at speed {speed:g}; end it first: scripts/sandbox down{named(here)}")
        return print(f"sandbox {here.name} is running already (speed {speed:g})")
    began = time.monotonic()
    missing = [tool for tool in NEEDED if not which(tool)]
    if missing:
        raise Wrong(f"missing: {', '.join(missing)}. Run scripts/setup")
    here.logs.mkdir(parents=True, exist_ok=True)
    with (here.folder / "up.lock").open("w") as lock:  # closed, and so let go, when this `up` is over
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Wrong(f"somebody else is starting sandbox {here.name} at this moment") from None
        start(here, args)
    print(f"sandbox {here.name} is up after {time.monotonic() - began:.1f} s; run things in it: scripts/sandbox exec{named(here)} CMD…")


def start(here: World, args: argparse.Namespace) -> None:
    """A new world under this name, with nothing of the last one but its certificates and ports."""
    ports = outside.choose(here)
    outside.check(here, ports)
    for stale in (*LARGE, "audit.log", "journal.jsonl"):  # a stopped sandbox leaves nothing to the next
        clear(here.folder / stale)
    for log in here.logs.glob("*.log"):
        log.unlink()
    certificates.make(here.folder, here.name)
    faults = str(Path(args.faults).resolve()) if args.faults else ""
    options = parts.Options(args.speed or parts.Options.speed, args.aiperf, faults, **parts.found())
    here.write("options.json", dataclasses.asdict(options))
    here.write("kubeconfig", certificates.kubeconfig(str(INSIDE), f"https://{parts.API}"))
    here.write("outside.kubeconfig", certificates.kubeconfig(str(here.folder), f"https://127.0.0.1:{ports['api']}"))
    here.write("signin.yaml", certificates.webhook(f"http://127.0.0.1:{parts.CONTROL}/signin"))
    parts.write_settings(here, options)
    launch(here)


def which(tool: str) -> bool:
    return any(os.access(Path(folder) / tool, os.X_OK) for folder in (*os.environ["PATH"].split(":"), "/usr/sbin", "/sbin"))


def clear(path: Path) -> None:
    if path.is_dir():
        subprocess.run(["rm", "-rf", str(path)], check=True)
    else:
        path.unlink(missing_ok=True)


def launch(here: World) -> None:
    """Start the world and say what it says until it is ready."""
    env = {**os.environ, "PYTHONPATH": str(REPO / "sandbox" / "world"), "PYTHONDONTWRITEBYTECODE": "1"}
    for proxy in [name for name in env if name.lower().endswith("_proxy")]:
        del env[proxy]  # there is no way out of the world
    with (here.logs / "world.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--net", "--mount", sys.executable, "-m", "world.inside", "outer", here.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=env, start_new_session=True, text=True,
        )  # fmt: skip
        (here.folder / "world.pid").write_text(f"{process.pid} {start_time(process.pid)}")
        with (here.logs / "outside.log").open("wb") as forwards:
            subprocess.Popen(
                [sys.executable, "-m", "world.outside", str(here.folder), str(process.pid)],
                stdin=subprocess.DEVNULL, stdout=forwards, stderr=subprocess.STDOUT, env=env, start_new_session=True,
            )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line == "ready\n":
                return
            if line == "failed\n":
                raise Wrong(f"sandbox {here.name} did not start: {process.stdout.read().strip()}\nLogs: {here.logs}")
            print("  " + line.rstrip(), flush=True)
        raise Wrong(f"sandbox {here.name} ended while it started; last lines of its log:\n{tail(here.logs / 'world.log')}")
    except BaseException:
        end(here)
        raise


def members(pid: int) -> list[int]:
    """Everything that is in a sandbox's network: its parts, its pods, and what `exec` runs there. Pods' own networks end with their parents."""
    try:
        network, user = os.readlink(f"/proc/{pid}/ns/net"), os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return []
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/net") == network and os.readlink(process / "ns/user") == user:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def end(here: World) -> None:
    """Everything at once; returns when it is gone."""
    pid = holder(here)
    if pid is None:
        return
    inside = members(pid)
    watched = [os.pidfd_open(one) for one in inside if Path(f"/proc/{one}").exists()]
    for one in [pid, *inside]:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for fd in watched:
        select.select([fd], [], [], 10)
        os.close(fd)
    for name in ("world.pid", "world.sock"):
        (here.folder / name).unlink(missing_ok=True)


def down(here: World, args: argparse.Namespace) -> None:
    if holder(here) is None:
        return print(f"no sandbox {here.name} is running")
    end(here)
    for left in LARGE:
        clear(here.folder / left)
    print(f"sandbox {here.name} is down; its logs stay in {here.logs}")


def status(here: World, args: argparse.Namespace) -> None:
    running(here)
    said = ask(here, "/status", timeout=20)
    if args.json:
        return print(json.dumps(said, indent=1))
    print(f"sandbox {here.name}: up for {said['seconds']} s, speed {said['speed']:g}, cluster {said['cluster'] or 'none'}; logs in {here.logs}")
    dead = []
    for name, part in said["parts"].items():
        print(f"  {name:28} {part['state']}" + (f" ({part['pid']})" if "pid" in part else f" (status {part.get('exit')})"))
        if part["state"] == "dead":
            dead.append(f"{name} has ended with status {part['exit']}; the last lines of {part['log'].replace(str(INSIDE), str(here.folder))}:\n{part['last']}")
    if dead:
        raise Wrong("\n".join(dead))


def env(here: World, args: argparse.Namespace) -> None:
    running(here)
    ports = here.read("ports.json")
    values = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['aws']}", "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true", "HF_ENDPOINT": f"http://127.0.0.1:{ports['hub']}", "HF_TOKEN": HUB_TOKEN,
        "KUBECONFIG": str(here.folder / "outside.kubeconfig"), "SANDBOX_CA": str(here.folder / "ca.crt"), "SANDBOX_HTTPS": f"127.0.0.1:{ports['https']}",
    }  # fmt: skip
    for name, value in values.items():
        print(f"export {name}={value}")


def reset(here: World, args: argparse.Namespace) -> None:
    running(here)
    began = time.monotonic()
    ask(here, "/reset")
    print(f"sandbox {here.name} is empty again ({time.monotonic() - began:.1f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/sandbox", description="The world that nemo is tried in.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|down|status|env|reset|exec")
    for name, function, words in (
        ("up", up, "start it"), ("down", down, "end it, with all that runs in it"), ("status", status, "what runs, and what died"),
        ("env", env, "settings for programs outside (eval them)"), ("reset", reset, "empty it: account, cluster, images in ECR, file systems"),
    ):  # fmt: skip
        one = commands.add_parser(name, help=words, description=words)
        one.add_argument("--name", default="default", help="which sandbox (default: %(default)s)")
        one.set_defaults(call=function)
        if name == "up":
            one.add_argument("--speed", type=float, help=f"divides the latencies of AWS and the cluster (default: {parts.Options.speed:g})")
            one.add_argument("--aiperf", choices=("installed", "wheels", "none"), default="installed", help="what a new file system holds of it")
            one.add_argument("--faults", help="file of fault rules for the AWS emulator")
        if name == "status":
            one.add_argument("--json", action="store_true")
    commands.add_parser("exec", help="run a command in it: exec [--name N] CMD…")
    args = parser.parse_args()
    try:
        args.call(world(args.name), args)
    except Wrong as problem:
        print(f"sandbox: {problem}", file=sys.stderr)
        sys.exit(1)


main()
