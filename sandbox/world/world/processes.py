"""Processes of the world: started with a log file each, watched, named when they die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .paths import Wrong

LAST_LINES = 12


def tail(path: Path, lines: int = LAST_LINES) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 16384))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
    except OSError as problem:
        return str(problem)


def discard(path: Path) -> None:
    """Out of the way at once; the deletion itself goes on by itself."""
    if path.exists():
        aside = path.parent.joinpath("trash", f"{path.name}-{time.monotonic_ns()}")
        aside.parent.mkdir(exist_ok=True)
        path.rename(aside)
        subprocess.Popen(["nice", "rm", "-rf", str(aside)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def answers(url: str) -> Callable[[], bool]:
    """Ready once this address answers with anything but an error of the server."""

    def probe() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return True
        except urllib.error.HTTPError as problem:
            return problem.code < 500
        except OSError:
            return False

    return probe


def listens(host: str, port: int) -> Callable[[], bool]:
    def probe() -> bool:
        with socket.socket() as one:
            one.settimeout(1)
            return one.connect_ex((host, port)) == 0

    return probe


@dataclass
class Part:
    """One process. `ready` is asked until it says yes."""

    name: str
    argv: list[str]
    logs: Path
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    ready: Callable[[], bool] | None = None
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = False
    up: bool = False

    @property
    def log(self) -> Path:
        return self.logs / f"{self.name}.log"

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **self.env}, cwd=self.cwd, start_new_session=True,
            )  # fmt: skip
        self.wanted, self.up = True, False

    @property
    def exit(self) -> int | None:
        return self.process.poll() if self.process else None

    def obituary(self) -> str:
        how = f"with status {self.exit}" if (self.exit or 0) >= 0 else f"by signal {signal.Signals(-(self.exit or 0)).name}"
        return f"{self.name} ended {how}; the last lines of {self.log.name}:\n" + "\n".join("    " + line for line in tail(self.log).splitlines())

    def wait_ready(self, limit: float = 60) -> None:
        end = time.monotonic() + limit
        while True:
            if self.exit is not None:
                raise Wrong(self.obituary())
            if self.ready is None or self.ready():
                self.up = True
                return
            if time.monotonic() > end:
                raise Wrong(f"{self.name} runs but is not ready after {limit:.0f} s; the last lines of {self.log.name}:\n{tail(self.log)}")
            time.sleep(0.05)

    def stop(self, patience: float = 0.0) -> None:
        """End it with all that it started; without patience at once."""
        self.wanted = self.up = False
        if self.process is None:
            return
        if self.exit is None and patience:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None

    def state(self) -> dict[str, object]:
        if self.process is None:
            return {"state": "stopped"}
        if self.exit is not None:
            return {"state": "dead", "exit": self.exit, "log": str(self.log), "last": tail(self.log)}
        return {"state": "ready" if self.up else "starting", "pid": self.process.pid}


def at_once(*calls: Callable[[], None]) -> None:
    """Run these side by side; the first failure is raised once all have ended."""
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as problem:  # noqa: BLE001 - raised below, in the caller's thread
            failures.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
