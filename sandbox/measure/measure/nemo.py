"""Runs `nemo` and says how long it took, how much memory it had, and what its run log tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[3]


@dataclass
class Ran:
    """One finished run."""

    code: int
    seconds: float
    peak_mb: float
    errors: str


class Nemo:
    """The binary, the folder where its state is, and the environment that it gets."""

    def __init__(self, binary: Path, folder: Path, speed: float, name: str = "nemo", **environment: str) -> None:
        self.binary, self.folder, self.name = binary, folder, name
        home = folder / "home"  # its kubeconfig is not the user's
        home.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "NO_COLOR": "1", "HOME": str(home), **environment}
        (folder / "nemo.toml").write_text(settings(speed))

    @property
    def state(self) -> Path:
        return self.folder / ".nemo" / f"{self.name}.toml"

    def start(self, *words: str, errors: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self.binary), *words], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )

    def run(self, *words: str, limit: float = 1800) -> Ran:
        """Until it ends. Its messages are kept in a file beside the state."""
        log = self.folder / "nemo.stderr"
        with log.open("wb") as errors:
            began = time.monotonic()
            process = self.start(*words, errors=errors)
            timer = _kill_after(process, limit)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - began
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        return Ran(process.returncode, seconds, usage.ru_maxrss / 1024, log.read_text(errors="replace")[-4000:])

    def up(self, *words: str, limit: float = 1800) -> Ran:
        """`nemo up`; a run that fails ends the measurement with its last words."""
        ran = self.run("up", "--yes", "--output", "json", *words, limit=limit)
        if ran.code:
            raise SystemExit(f"nemo up ended with {ran.code} after {ran.seconds:.1f} s:\n{ran.errors}")
        return ran

    def events(self) -> list[dict[str, Any]]:
        """The run log of this deployment: one event a line."""
        log = self.folder / ".nemo" / f"{self.name}.log"
        return [json.loads(line) for line in log.read_text().splitlines() if line.strip()] if log.exists() else []

    def steps(self) -> dict[str, float]:
        """Seconds of each step that changed something, as the last run tells."""
        found: dict[str, float] = {}
        for event in self.events():
            if event["kind"] == "planned":
                found = {}
            elif event["kind"] == "finished" and event.get("changed"):
                found[event["step"]] = float(event["seconds"])
        return found


def settings(speed: float) -> str:
    """Looks as often as it would at AWS, measured by the sandbox's clock: each interval divided by the factor."""
    waits = tomllib.loads((REPO / "configs" / "defaults.toml").read_text())["wait"]
    return "".join(f"[wait.{what}]\nevery_ms = {max(50, int(row['every_ms'] / speed))}\n" for what, row in waits.items())


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> Any:
    timer = threading.Timer(seconds, lambda: os.kill(process.pid, signal.SIGKILL))
    timer.daemon = True
    timer.start()
    return timer
