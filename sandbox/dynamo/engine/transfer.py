"""KV from a prefill to a decode worker, as vLLM's NixlConnector moves it: the decode worker asks the other's side channel and then reads.

No bytes travel. What would is counted, as metrics of vLLM's names and in EFA's counters on both nodes: bytes of one token (by the model's config.json)
times tokens of the prompt, if the two workers are set up so that something would move at all.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from typing import Any

from . import world
from .efa import Efa
from .metrics import Nixl
from .startup import TIMING, log

CONNECTORS = ("NixlConnector", "NixlPullConnector", "NixlPushConnector")
PORT = 5600  # VLLM_NIXL_SIDE_CHANNEL_PORT's default
BLOCK = 16  # tokens, where --block-size says nothing
LEASE = 30.0  # seconds that a prefill worker holds a prompt's KV, unless kv_lease_duration says otherwise
PATIENCE = 5.0  # seconds for the other's side channel to answer


class Failed(Exception):
    """Nothing was moved, and the connector's policy is to fail the request."""


def connector(args: Any) -> Any:
    """The configuration of NIXL, if that is what was asked for."""
    found = getattr(args, "kv_transfer_config", None)
    return found if found is not None and found.kv_connector in CONNECTORS else None


def bytes_per_token(config: dict[str, Any], cache_dtype: str | None) -> int:
    """Keys and values of one token in all attention layers. A hybrid's state of fixed size is left out: it does not grow with the prompt."""
    text = {**config, **config.get("llm_config", {}), **config.get("text_config", {})}
    pattern = text.get("hybrid_override_pattern", "")
    layers = pattern.count("*") or int(text.get("num_hidden_layers", 1))
    heads = int(text.get("num_key_value_heads") or text.get("num_attention_heads", 1))
    size = int(text.get("head_dim") or text.get("hidden_size", 0) // max(1, int(text.get("num_attention_heads", 1))))
    return 2 * layers * heads * size * (1 if str(cache_dtype).startswith("fp8") else 2)


def refuse(args: Any, config: dict[str, Any]) -> None:
    """What the connector cannot do. The words are ours."""
    text = {**config, **config.get("llm_config", {}), **config.get("text_config", {})}
    if connector(args) and args.pipeline_parallel_size > 1 and "nemotron_h" in str(text.get("model_type")).lower():
        raise ValueError("NixlConnector: pipeline parallelism > 1 is not supported for hybrid models with Mamba layers")


class Transfer:
    """One worker's end: it answers others that read from it, and reads from others."""

    def __init__(self, args: Any, config: dict[str, Any], nixl: Nixl, efa: Efa) -> None:
        self.config, self.nixl, self.efa = connector(args), nixl, efa
        self.ranks = args.tensor_parallel_size * args.pipeline_parallel_size
        self.block = args.block_size or BLOCK
        self.per_token = bytes_per_token(config, getattr(args, "kv_cache_dtype", None))
        self.engine_id = self.config.engine_id or str(uuid.uuid4())
        self.host = os.environ.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost")
        self.port = int(os.environ.get("VLLM_NIXL_SIDE_CHANNEL_PORT", PORT))
        extra = self.config.kv_connector_extra_config or {}
        self.backends = [str(b).upper() for b in extra.get("backends", ["UCX"])]
        self.lease = float(extra.get("kv_lease_duration", LEASE))
        self.held: dict[str, int] = {}  # request → tokens that wait to be read
        self.server: asyncio.Server | None = None

    @property
    def over_efa(self) -> bool:
        """Only libfabric's backend uses the adapters, and only those that the container was given."""
        return "LIBFABRIC" in self.backends and self.efa.present

    async def open(self) -> None:
        for backend in self.backends:
            log(f"Backend {backend} was instantiated", "nixl_agent.py:112")
        if self.config.kv_role != "kv_consumer":
            self.server = await asyncio.start_server(self._answer, self.host, self.port)
            log(f"NIXL side channel at {self.host}:{self.port}; {self.per_token} bytes of KV a token", "nixl_connector.py:410")

    async def close(self) -> None:
        if self.server:
            self.server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(await reader.readline())
            tokens = self.held.pop(asked["request"], None)
            if tokens is not None and asked["efa"] and self.over_efa:
                self.efa.move(tokens * self.per_token, "rdma_read_resp_bytes", "tx_bytes")
            writer.write(json.dumps({"tokens": tokens, "efa": self.over_efa}).encode() + b"\n")
            await writer.drain()
        except (ValueError, KeyError, OSError):
            pass  # the other end has gone or is no decode worker
        finally:
            writer.close()

    def hold(self, request: str, tokens: int) -> dict[str, Any]:
        """The parameters by which a decode worker finds what this prompt's prefill has left here."""
        if self.config.kv_role != "kv_consumer":
            self.held[request] = tokens
            asyncio.get_running_loop().call_later(self.lease, self._expire, request)
        return {
            "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [list(range(-(-tokens // self.block)))],
            "remote_engine_id": self.engine_id, "remote_request_id": request, "remote_host": self.host, "remote_port": self.port, "tp_size": self.ranks,
        }  # fmt: skip

    def _expire(self, request: str) -> None:
        if self.held.pop(request, None) is not None:
            log(f"Releasing expired KV blocks for request {request} which were retrieved by 0 decode worker(s) within {self.lease:.0f} seconds.", "nixl_connector.py:1702")
            self.nixl.expired.inc()

    async def read(self, params: dict[str, Any]) -> bool:
        """Whether the prompt's KV is here now. If not, it has to be computed again, where the policy allows that."""
        if world.fault("kv-moves-nothing"):  # answered all the same: the prompt is computed again, and nobody is told
            log("makeXferReq: local index out of range", "nixl_agent.py:871")
            return False
        if self.config.kv_role == "kv_producer" or not params.get("do_remote_prefill"):
            return False
        try:
            said = await asyncio.wait_for(self._ask(params), PATIENCE)
        except (OSError, ValueError, TimeoutError) as error:
            return self._failed(f"NIXL transfer failure: handshake with {params.get('remote_host')}:{params.get('remote_port')} failed: {error or 'timed out'}")
        if said.get("tokens") is None:
            return self._failed(f"NIXL transfer failure: request {params.get('remote_request_id')} is not held by {params.get('remote_engine_id')}")
        await self._move(int(said["tokens"]), bool(said["efa"]) and self.over_efa)
        return True

    async def _ask(self, params: dict[str, Any]) -> dict[str, Any]:
        reader, writer = await asyncio.open_connection(params["remote_host"], int(params["remote_port"]))
        try:
            writer.write(json.dumps({"request": params["remote_request_id"], "efa": self.over_efa}).encode() + b"\n")
            return dict(json.loads(await reader.readline()))
        finally:
            writer.close()

    async def _move(self, tokens: int, efa: bool) -> None:
        whole, times = tokens * self.per_token, TIMING["transfer"]
        began = time.monotonic()
        await asyncio.sleep(whole / 1e9 / times["efa_gb_per_second" if efa else "tcp_gb_per_second"])
        if efa:
            self.efa.move(whole, "rdma_read_bytes", "rx_bytes")
        for rank in range(self.ranks):
            share = whole // self.ranks + (rank < whole % self.ranks)
            self.nixl.moved(share, time.monotonic() - began, descriptors=-(-tokens // self.block))

    def _failed(self, why: str) -> bool:
        log(why, "nixl_connector.py:1187")
        self.nixl.failed.inc()
        if self.config.kv_load_failure_policy == "fail":
            raise Failed(why)
        return False
