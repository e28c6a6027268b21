"""Engines that span nodes: the leader waits until every node has come to its port, and then all live and end together.

Stands for torch's store and vLLM's multi-node executor, in their words where something does not come.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from . import world
from .startup import log

PATIENCE = 600.0  # seconds, torch's; divided by the sandbox's speed, but for a start of pods on a busy machine
LEAST = 30.0


class DistStoreError(RuntimeError):
    """As torch.distributed's."""


class DistNetworkError(RuntimeError):
    """As torch.distributed's."""


class Group(NamedTuple):
    """Of which nodes, this one's place among them, and where they meet."""

    nodes: int
    rank: int
    address: str
    port: int
    local: int  # ranks of each node

    @property
    def leads(self) -> bool:
        return self.rank == 0


def group(args: Any) -> Group | None:
    """By --nnodes, or by data parallelism over nodes; None for an engine of one node."""
    ranks = args.tensor_parallel_size * args.pipeline_parallel_size
    if args.nnodes > 1:
        return Group(args.nnodes, args.node_rank, args.master_addr, args.master_port, ranks // args.nnodes)
    local, whole = args.data_parallel_size_local, args.data_parallel_size
    if local and local < whole:
        return Group(whole // local, (args.data_parallel_start_rank or 0) // local, args.data_parallel_address or "127.0.0.1", args.data_parallel_rpc_port or 29550, ranks * local)
    return None


def patience() -> float:
    return max(LEAST, PATIENCE / world.speed())


class Leader:
    def __init__(self, of: Group) -> None:
        self.group, self.followers = of, {}
        self.server = socket.socket()
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.server.bind((of.address, of.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise DistNetworkError(f"The server socket has failed to listen on any local network address. port: {of.port}, EADDRINUSE") from error
            self.server.bind(("", of.port))  # its own name may not be known yet where it has just started
        self.server.listen()

    def gather(self) -> None:
        """Returns once all nodes are there."""
        until = time.monotonic() + patience()
        log(f"waiting for {self.group.nodes - 1} nodes at {self.group.address}:{self.group.port}", "parallel_state.py:1197")
        while len(self.followers) < self.group.nodes - 1:
            self.server.settimeout(max(0.01, until - time.monotonic()))
            try:
                link, _ = self.server.accept()
                link.settimeout(5)
                said = link.makefile().readline()
            except TimeoutError:
                if time.monotonic() < until:
                    continue  # one who comes and says nothing, as a probe of the port does
                here, all_ = self.group.local * (1 + len(self.followers)), self.group.local * self.group.nodes
                raise DistStoreError(f"Timed out after {patience() + 1:.0f} seconds waiting for clients. {here}/{all_} clients joined.") from None
            except OSError:
                continue
            if said:
                self.followers[json.loads(said)["rank"]] = link
            else:
                link.close()
        for link in self.followers.values():
            link.settimeout(None)
            link.sendall(b"go\n")

    def watch(self, lost: Callable[[int], None]) -> None:
        """A node that goes takes the engine with it."""
        for rank, link in self.followers.items():
            threading.Thread(target=self._wait, args=(rank, link, lost), daemon=True).start()

    @staticmethod
    def _wait(rank: int, link: socket.socket, lost: Callable[[int], None]) -> None:
        try:
            while link.recv(64):
                pass
        except OSError:
            pass
        lost(rank)

    def tell(self, steps: int) -> None:
        """What was done is done by all nodes."""
        for link in self.followers.values():
            try:
                link.sendall(f"{steps}\n".encode())
            except OSError:
                pass  # the watcher says so


class Follower:
    def __init__(self, of: Group) -> None:
        self.group = of
        self.link = self._come()

    def _come(self) -> socket.socket:
        until = time.monotonic() + patience()
        where = f"({self.group.address}, {self.group.port})"
        while True:
            try:
                link = socket.create_connection((self.group.address, self.group.port), timeout=5)
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise DistNetworkError(f"The client socket has timed out after {patience() * 1000:.0f}ms while trying to connect to {where}.") from error
                time.sleep(0.2)
        link.settimeout(None)
        link.sendall(json.dumps({"rank": self.group.rank}).encode() + b"\n")
        return link

    def start(self) -> None:
        """Returns when all nodes are there."""
        self.lines = self.link.makefile()
        if self.lines.readline() != "go\n":
            raise DistNetworkError("Connection was likely closed. Did the remote server shutdown or crash?")

    def follow(self, step: Callable[[int], None]) -> None:
        """Until the leader goes."""
        for line in self.lines:
            step(int(line))


    def watch(self, lost: Callable[[int], None]) -> None:
        """For a node with requests of its own: it goes when the leader does."""

        def wait() -> None:
            try:
                self.follow(lambda steps: None)
            except OSError:
                pass
            lost(0)

        threading.Thread(target=wait, daemon=True).start()


def die(rank: int) -> None:
    """From a thread: the engine is dead, and the process ends with it."""
    log(f"EngineDeadError: node {rank} is gone. EngineCore encountered an issue. See stack trace (above) for the root cause.", "async_llm.py:702")
    os._exit(1)
