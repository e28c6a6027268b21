"""Embeddings of pictures from an encode worker to one that reads prompts, in the ways of --embedding-transfer-mode.

No bytes travel but for the file of `local`, which has its size. NIXL's agents are made for embeddings without naming a backend, which means UCX and never
LIBFABRIC (dynamo/common/multimodal/embedding_transfer.py, 1.6.1): they come over TCP, and no EFA counter and no metric of vLLM tells of them.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import tempfile
import uuid
from typing import Any

from .startup import TIMING

PATIENCE = 60.0  # seconds, of both ends
DTYPE, WIDTH = "bfloat16", 2  # bytes of a value


class Sender:
    def __init__(self, mode: str) -> None:
        self.mode, self.id, self.numbers = mode, f"sender_{uuid.uuid4()}", itertools.count()
        self.held: dict[int, int] = {}  # tensor → bytes
        self.address: tuple[str, int] | None = None

    async def open(self) -> None:
        # NIXL finds the pod's addresses itself; here it is the one that Dynamo was told.
        host = os.environ.get("DYN_TCP_RPC_HOST", "127.0.0.1")
        server = await asyncio.start_server(self._answer, host, 0)
        self.address = (host, server.sockets[0].getsockname()[1])

    def send(self, tokens: int, values: int) -> dict[str, Any]:
        """What the other end needs to fetch them."""
        number, size = next(self.numbers), tokens * values * WIDTH
        if self.mode == "local":
            handle, path = tempfile.mkstemp(prefix=f"encoder_cache.{self.id}_{number}.", suffix=".safetensors")
            os.truncate(handle, size)
            os.close(handle)
            how = path
        else:
            self.held[number] = size
            metadata = base64.b64encode(json.dumps(self.address).encode()).decode()
            how = json.dumps({"mode": self.mode, "sender_agent_id": self.id, "agent_metadata": metadata, "tensor_id": number, "tensor_size": size})
        return {"embeddings_shape": [1, tokens, values], "embedding_dtype_str": DTYPE, "serialized_request": how}

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = self.held.pop(json.loads(await reader.readline()), None)
            await asyncio.sleep((size or 0) / 1e9 / TIMING["transfer"]["tcp_gb_per_second"])
            writer.write(json.dumps(size).encode() + b"\n")
            await writer.drain()
        except (ValueError, TypeError, OSError):
            pass  # the other end has gone or is no worker
        finally:
            writer.close()


class Receiver:
    def __init__(self, mode: str) -> None:
        self.mode = mode

    async def receive(self, request: dict[str, Any]) -> int:
        """Bytes that have come. Another pod's file is not there, and two modes do not understand each other."""
        how = request["serialized_request"]
        if self.mode == "local":
            return os.stat(how).st_size
        said = json.loads(how) if how.startswith("{") else {"mode": "local"}
        if said["mode"] != self.mode:
            raise ValueError(f"1 validation error for NixlTransferRequest\n  Invalid JSON: sent by {said['mode']}")
        host, port = json.loads(base64.b64decode(said["agent_metadata"]))
        try:
            size = await asyncio.wait_for(self._ask(host, port, said["tensor_id"]), PATIENCE)
        except (OSError, ValueError, TimeoutError):
            size = None
        if size is None:
            raise TimeoutError(f"Timeout while waiting for transfer completion for tensor_id {said['tensor_id']} for more than {PATIENCE:.0f} seconds")
        return size

    @staticmethod
    async def _ask(host: str, port: int, number: int) -> int | None:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(json.dumps(number).encode() + b"\n")
            found = json.loads(await reader.readline())
            return None if found is None else int(found)
        finally:
            writer.close()
