"""`python3 -m dynamo.vllm` in the sandbox: the real flags, checks and runtime of Dynamo; an engine that knows some answers.

The order is the real one: command line, runtime (its health server answers from then on), devices and model files, weights, registration.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import flags, startup

sys.argv[0] = "__main__.py"  # as in the usage line of `python3 -m`
flags.install()

import uvloop  # noqa: E402
from dynamo.common.utils.graceful_shutdown import install_signal_handlers  # noqa: E402
from dynamo.common.utils.prometheus import register_engine_metrics_callback  # noqa: E402
from dynamo.common.utils.runtime import create_runtime  # noqa: E402
from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model  # noqa: E402
from dynamo.runtime.logging import configure_dynamo_logging  # noqa: E402
from dynamo.vllm.args import Config, parse_args  # noqa: E402
from dynamo.vllm.constants import DisaggregationMode  # noqa: E402
from dynamo.vllm.health_check import VllmHealthCheckPayload, VllmPrefillHealthCheckPayload  # noqa: E402
from prometheus_client import CollectorRegistry  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

from . import efa, embeddings, pictures, rendezvous, transfer  # noqa: E402
from .counters import Counters, visible  # noqa: E402
from .encode import Encoder, Pictures  # noqa: E402
from .generate import Generator  # noqa: E402
from .metrics import Engine, Nixl  # noqa: E402

configure_dynamo_logging()
logger = logging.getLogger("dynamo.vllm")
# What a worker shows to clients, what it is, and which others have to be there before the model is served.
ROLES = {
    DisaggregationMode.AGGREGATED: (ModelType.Chat | ModelType.Completions, WorkerType.Aggregated, []),
    DisaggregationMode.DECODE: (ModelType.Chat | ModelType.Completions, WorkerType.Decode, [[WorkerType.Prefill]]),
    DisaggregationMode.PREFILL: (ModelType.Prefill, WorkerType.Prefill, [[WorkerType.Decode]]),
    DisaggregationMode.ENCODE: (ModelType.Empty, WorkerType.Encode, [[WorkerType.Prefill, WorkerType.Decode], [WorkerType.Aggregated]]),
}


def prepare(config: Config) -> dict[str, Any]:
    """All that can be wrong before weights are read, in the order in which the engine meets it."""
    args = config.engine_args
    flags.refuse_unknown_names(args)
    found = startup.check_model(config.model, bool(args.trust_remote_code))
    if args.mm_encoder_only:
        raise NotImplementedError("sandbox: what dynamo.vllm does with --mm-encoder-only was not read")
    transfer.refuse(args, found)
    startup.check_devices(args)
    return found


def context_length(config: Config, found: dict[str, Any]) -> int:
    most = int({**found, **found.get("llm_config", {}), **found.get("text_config", {})}.get("max_position_embeddings", 32768))
    asked = config.engine_args.max_model_len
    if asked not in (None, -1) and asked > most and not os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN"):
        raise ValueError(
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len (max_position_embeddings={most} or model_max_length=None "
            "in model's config.json). To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    return most if asked in (None, -1) else int(asked)


def runtime_config(config: Config, most: int) -> ModelRuntimeConfig:
    facts = ModelRuntimeConfig()
    facts.context_length = most
    facts.total_kv_blocks = 65536
    facts.max_num_seqs = config.engine_args.max_num_seqs or 256
    facts.max_num_batched_tokens = config.engine_args.max_num_batched_tokens or 8192
    if config.disaggregation_mode != DisaggregationMode.PREFILL:
        facts.tool_call_parser = config.dyn_tool_call_parser
        facts.reasoning_parser = config.dyn_reasoning_parser
    return facts


async def serve(config: Config) -> None:
    stopped, endpoints = asyncio.Event(), []
    runtime, loop = create_runtime(config.discovery_backend, config.request_plane, config.event_plane, response_plane=config.response_plane)
    install_signal_handlers(loop, runtime, endpoints, stopped)
    if config.disaggregation_mode == DisaggregationMode.ENCODE:
        await encode(config, runtime, endpoints)
        return
    found = prepare(config)
    most = context_length(config, found)
    with Counters(visible(), config.engine_args.gpu_memory_utilization) as counters:
        if nodes := rendezvous.group(config.engine_args):
            await asyncio.to_thread(meet, nodes, counters, found)
        await asyncio.to_thread(startup.load, config.model)
        await register_and_answer(config, runtime, endpoints, found, most, counters)


async def encode(config: Config, runtime: Any, endpoints: list[Any]) -> None:
    """Dynamo's own encode worker: of the engine's flags it heeds the model's, and it takes one GPU."""
    found = startup.check_model(config.model, bool(config.engine_args.trust_remote_code))
    pictures.processor(config.model)
    startup.check_devices(SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1, nnodes=1))
    with Counters(visible()[:1], float(os.environ.get("DYN_VLLM_ENCODER_GPU_MEMORY_UTILIZATION", "0.2"))) as counters:
        await asyncio.to_thread(startup.load, config.model)
        if not pictures.qwen(config.model, found):  # found out only now: it loads a model that it does not know, and whole
            raise NotImplementedError(f"Model not supported: {config.model}")
        sender = embeddings.Sender(config.embedding_transfer_mode.value)
        await sender.open()
        endpoint = runtime.endpoint(f"{config.namespace}.{config.component}.{config.endpoint}")
        endpoints.append(endpoint)
        serves, worker_type, needs = ROLES[DisaggregationMode.ENCODE]
        await register_model(ModelInput.Tokens, serves, endpoint, config.model, model_name=config.served_model_name or config.model, worker_type=worker_type, needs=needs)
        logger.info("Starting to serve the encode worker endpoint...")
        await endpoint.serve_endpoint(Encoder(config.model, found, sender, counters.step).encode, metrics_labels=[("model", config.model)])


async def encode_workers(config: Config, runtime: Any) -> Any:
    """The way to the encode workers, once there is one; None where pictures are encoded here."""
    if not config.route_to_encoder:
        return None
    client = await runtime.endpoint(f"{config.namespace}.encode.generate").client()
    logger.info("Waiting for Encoder Worker Instances ...")
    await client.wait_for_instances()
    logger.info("Connected to encode workers")
    return client


def meet(nodes: rendezvous.Group, counters: Counters, found: dict[str, Any]) -> None:
    """Waits for the engine's other nodes; from then on what one of them does, all do."""
    traffic = efa.Collectives(efa.Efa(efa.given()), found)
    if nodes.leads:
        leader = rendezvous.Leader(nodes)
        leader.gather()
        leader.watch(rendezvous.die)
        counters.tell = lambda steps: (leader.tell(steps), traffic.moved(steps))  # type: ignore[assignment,func-returns-value]
    else:  # data parallel: a node of its own requests
        follower = rendezvous.Follower(nodes)
        follower.start()
        follower.watch(rendezvous.die)
        counters.tell = traffic.moved


def follow(config: Config) -> None:
    """A node without requests of its own (--headless): no runtime, no health server."""
    found = prepare(config)
    nodes = rendezvous.group(config.engine_args)
    if nodes is None or nodes.leads:
        raise ValueError("--headless needs --nnodes greater than 1 and a --node-rank greater than 0")
    with Counters(visible(), config.engine_args.gpu_memory_utilization) as counters:
        counters.tell = efa.Collectives(efa.Efa(efa.given()), found).moved
        follower = rendezvous.Follower(nodes)
        follower.start()
        startup.load(config.model)
        follower.follow(counters.step)
    raise rendezvous.DistNetworkError("Connection was likely closed. Did the remote server shutdown or crash?")


async def register_and_answer(config: Config, runtime: Any, endpoints: list[Any], found: dict[str, Any], most: int, counters: Counters) -> None:
    tokenizer = Tokenizer.from_file(str(Path(config.model) / "tokenizer.json"))
    ends = found.get("eos_token_id", 1)
    metrics = Engine(config.served_model_name or config.model, CollectorRegistry())
    moving = transfer.Transfer(config.engine_args, found, Nixl(metrics), efa.Efa(efa.given())) if transfer.connector(config.engine_args) else None
    if moving:
        await moving.open()
    pictures_ = Pictures(config, found, await encode_workers(config, runtime))
    generator = Generator(tokenizer, {ends} if isinstance(ends, int) else set(ends), most, counters.step, metrics, moving, pictures_)
    endpoint = runtime.endpoint(f"{config.namespace}.{config.component}.{config.endpoint}")
    endpoints.append(endpoint)
    register_engine_metrics_callback(
        endpoint=endpoint, registry=metrics.registry, metric_prefix_filters=["vllm:"], namespace_name=config.namespace,
        component_name=config.component, endpoint_name=config.endpoint, model_name=config.served_model_name or config.model,
    )  # fmt: skip
    serves, worker_type, needs = ROLES[config.disaggregation_mode]
    if config.route_to_encoder:
        needs = [[*(needs[0] if needs else []), WorkerType.Encode]]
    await register_model(
        ModelInput.Tokens, serves, endpoint, config.model, config.served_model_name or config.model,
        kv_cache_block_size=config.engine_args.block_size or 16, runtime_config=runtime_config(config, most),
        custom_template_path=config.custom_jinja_template, worker_type=worker_type, needs=needs,
    )  # fmt: skip
    logger.info("Model %s is registered", config.served_model_name or config.model)
    if config.disaggregation_mode == DisaggregationMode.PREFILL:
        await endpoint.serve_endpoint(generator.prefill, health_check_payload=VllmPrefillHealthCheckPayload(None).to_dict())
    else:
        await endpoint.serve_endpoint(generator.generate, health_check_payload=VllmHealthCheckPayload(None).to_dict())


def main() -> None:
    config = parse_args()
    if config.headless:
        follow(config)
    else:
        uvloop.run(serve(config))


if __name__ == "__main__":
    main()
