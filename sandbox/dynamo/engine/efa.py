"""The node's EFA adapters as far as this container was given them; their counters are what /sys/class/infiniband shows on the node."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from . import world

PACKET = 8192  # bytes; assumed


class Efa:
    def __init__(self, given: int) -> None:
        found = sorted((world.ROOT / "sys" / "class" / "infiniband").glob("*/ports/1/hw_counters"))
        self.ports = found[:given]

    @property
    def present(self) -> bool:
        return bool(self.ports)

    def move(self, count: int, *names: str) -> None:
        """So many bytes, shared evenly by the adapters, under each of these names; packets beside them where they are counted."""
        for at, port in enumerate(self.ports):
            share = count // len(self.ports) + (at < count % len(self.ports))
            for name in names:
                _raise(port / name, share)
                if (packets := port / name.replace("bytes", "pkts")) != port / name and packets.exists():
                    _raise(packets, -(-share // PACKET))
                if (calls := port / name.replace("bytes", "wrs")) != port / name and calls.exists():
                    _raise(calls, 1 if share else 0)


def given() -> int:
    """How many the node gave this container, for it asked for them by vpc.amazonaws.com/efa."""
    return int(os.environ.get("SANDBOX_EFA_DEVICES") or 0)


def _raise(counter: Path, by: int) -> None:
    """Other containers of the node raise it too."""
    with counter.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        was = int(file.read() or 0)
        file.seek(0)
        file.write(f"{was + by}\n")
