"""What the runtime image's stand-in makes of a container's command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "dynamo-runtime"
PLAIN = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, env={**PLAIN, **env})


def test_plain_commands_run_as_they_are() -> None:
    assert run("sh", "-c", "echo $0 $1; exit 7", "a", "b c").stdout == "a b c\n"
    assert run("sh", "-c", "exit 7").returncode == 7
    assert run("/opt/nvidia/nvidia_entrypoint.sh", "echo", "hello").stdout == "hello\n"


@pytest.mark.parametrize("name", ["python3", "python", "/opt/dynamo/venv/bin/python3"])
def test_python_is_a_plain_3_11_with_pip(name: str) -> None:
    assert run(name, "-c", "import sys; print(sys.version_info[:2], sys.prefix)").stdout == "(3, 11) /usr\n"
    assert run(name, "-m", "pip", "--version").stdout.startswith("pip ")


def test_the_worker_is_also_found_through_a_shell() -> None:
    for words in (["python3", "-m", "dynamo.vllm", "--nope"], ["sh", "-c", "exec python3 -m dynamo.vllm --nope"]):
        done = run(*words)
        assert done.returncode == 2
        assert done.stderr.splitlines()[0].startswith("usage: __main__.py [")
        assert done.stderr.splitlines()[-1] == "__main__.py: error: unrecognized arguments: --nope"


def test_the_frontend_is_the_real_one_and_refuses_a_workers_flags() -> None:
    done = run("python3", "-m", "dynamo.frontend", "--dyn-reasoning-parser", "nemotron3")
    assert done.returncode == 1  # it parses what it knows and then looks at the rest
    assert "Unknown arguments specified: ['--dyn-reasoning-parser', 'nemotron3']" in done.stdout + done.stderr


def test_a_worker_without_gpus_fails_before_it_reads_weights(model: Path) -> None:
    words = ["python3", "-m", "dynamo.vllm", "--model", str(model), "--trust-remote-code", "--discovery-backend", "mem", "--event-plane", "zmq"]
    done = run(*words)
    assert done.returncode == 1
    assert "Failed to infer device type" in done.stderr and "safetensors checkpoint shards" not in done.stderr


def test_this_tests_python_is_not_the_images() -> None:
    assert sys.prefix != "/usr"
