"""The node's GPU figures while an engine holds its GPUs and works (laid by the node: sandbox/world/world/devices.py).

EFA's counters are raised in efa.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

from . import world

IDLE_WATTS, BUSY_WATTS, CONTEXT_MIB = 78, 620, 529  # seen on an H200 at rest and with a process on it; under load assumed
PERIOD = 1.0


class Counters:
    """Between enter and exit the engine's GPUs are in use; `busy` makes them work."""

    def __init__(self, gpus: Iterable[str], memory_share: float) -> None:
        self.folders = [world.ROOT / "sys" / "sandbox" / "gpu" / gpu for gpu in gpus]
        self.folders = [f for f in self.folders if f.is_dir()]
        self.memory_share = memory_share
        self.steps, self.done = 0, threading.Event()
        self.tell: Callable[[int], None] = lambda steps: None  # hears how many tokens there were in each period
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Counters:
        for folder in self.folders:
            whole = int((folder / "memory.total").read_text())
            _write(folder, "memory.used", CONTEXT_MIB + int(whole * self.memory_share))
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        for folder in self.folders:
            _show(folder, 0)
            _write(folder, "memory.used", 0)

    def step(self, count: int = 1) -> None:
        """One token of one request."""
        self.steps += count

    def _run(self) -> None:
        while not self.done.wait(PERIOD):
            steps, self.steps = self.steps, 0
            if steps:
                self.tell(steps)
            # A GPU counts as used while a kernel runs: some tokens a second keep it nearly always busy.
            share = min(99, 60 + steps // 4) if steps else 0
            for folder in self.folders:
                _show(folder, 0 if world.fault(f"gpu-idle-{folder.name}") else share)


def visible() -> list[str]:
    return [gpu for gpu in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if gpu.isdigit()]


def _show(folder: os.PathLike[str], share: int) -> None:
    _write(folder, "utilization.gpu", share)
    _write(folder, "power.draw", IDLE_WATTS + (BUSY_WATTS - IDLE_WATTS) * share // 100)


def _write(folder: os.PathLike[str], name: str, value: int) -> None:
    with open(os.path.join(folder, name), "w") as file:
        file.write(f"{value}\n")
