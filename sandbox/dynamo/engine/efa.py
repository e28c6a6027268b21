"""The node's EFA adapters as far as this container was given them; their counters are what /sys/class/infiniband shows on the node."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

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


class Collectives:
    """What the nodes of one engine say to each other for each token: two sums of its hidden state in each layer (assumed; a pipeline says less)."""

    def __init__(self, efa: Efa, config: dict[str, Any]) -> None:
        text = {**config, **config.get("llm_config", {}), **config.get("text_config", {})}
        self.efa, self.per_token = efa, 2 * int(text.get("num_hidden_layers", 1)) * int(text.get("hidden_size", 1)) * 2

    def moved(self, tokens: int) -> None:
        if not world.fault("efa-sockets"):  # NCCL on plain sockets: all works, slower, and no adapter is used
            self.efa.move(tokens * self.per_token, "tx_bytes", "rx_bytes", "rdma_write_bytes", "rdma_write_recv_bytes")


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
