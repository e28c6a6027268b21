"""A frontend and workers on loopback, with file discovery."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import MODEL

HERE = Path(__file__).resolve().parents[1]
PROGRAM = HERE / "programs" / "dynamo-runtime"
QUESTION = [{"role": "user", "content": "What is 17 + 25? Answer with the number only."}]


def free_port() -> int:
    """Below 32768: the runtime reads DYN_SYSTEM_PORT as a signed 16-bit number."""
    for port in random.sample(range(20000, 32000), 50):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return text if (body or {}).get("stream") else json.loads(text)


def wait(what: str, processes: list[subprocess.Popen[bytes]], log: Path, seconds: float, ready: Any) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for process in processes:
            assert process.poll() is None, f"{process.args} ended before {what}: {log.read_text()[-2000:]}"
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s: {log.read_text()[-2000:]}")


class Served:
    def __init__(self, work: Path, model: str) -> None:
        self.model = model
        self.work, self.log, self.processes = work, work / "log", []
        self.http, self.systems = free_port(), {}
        (work / "root" / "faults").mkdir(parents=True)
        (work / "root" / "speed").write_text("200")
        self.env = {
            **os.environ, "DYN_FILE_KV": str(work / "discovery"), "DYN_TCP_RPC_HOST": "127.0.0.1", "DYN_TCP_RESPONSE_STREAM_HOST": "lo", "SANDBOX_ROOT": str(work / "root"),
            "DYN_DISCOVERY_BACKEND": "file", "DYN_EVENT_PLANE": "zmq", "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
        }  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def system(self, name: str) -> str:
        return f"http://127.0.0.1:{self.systems[name]}"

    def run(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        with self.log.open("a") as log:
            self.processes.append(subprocess.Popen([PROGRAM, "python3", "-m", *words], env={**self.env, **env}, stdout=log, stderr=log))
        return self.processes[-1]

    def worker(self, name: str, model: Path, *flags: str, **env: str) -> subprocess.Popen[bytes]:
        self.systems[name] = free_port()
        more = {"NVIDIA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "DYN_SYSTEM_PORT": str(self.systems[name]), "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]', **env}
        common = ["--model", str(model), "--served-model-name", self.model, "--tensor-parallel-size", "8", "--trust-remote-code", "--dyn-reasoning-parser", "nemotron3"]
        return self.run("dynamo.vllm", *common, *flags, **more)

    def frontend(self, *flags: str) -> None:
        self.run("dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(self.http), *flags)

    def listed(self) -> None:
        wait("the model is listed", self.processes, self.log, 120, lambda: ask(f"{self.url}/v1/models")["data"])

    def metric(self, worker: str, name: str, label: str = "") -> float:
        with urllib.request.urlopen(f"{self.system(worker)}/metrics", timeout=10) as answer:
            return sum(float(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines() if line.startswith(name + "{") and label in line)


@contextmanager
def serving(work: Path, model: str = MODEL) -> Iterator[Served]:
    served = Served(work, model)
    try:
        yield served
    finally:
        for process in served.processes:
            process.send_signal(signal.SIGTERM)
        for process in served.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
