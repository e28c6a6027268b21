"""What an engine does before it answers: devices, the model's files, reading the weights. Failures end the process in vLLM's words."""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from . import world

TIMING = tomllib.loads(Path(__file__).with_name("timing.toml").read_text())


class SafetensorError(Exception):
    """As the safetensors library's."""


def log(text: str, where: str) -> None:
    print(f"INFO {time.strftime('%m-%d %H:%M:%S')} [{where}] {text}", file=sys.stderr, flush=True)


def visible_gpus() -> int:
    """How many GPUs the node gave this container: NVIDIA_VISIBLE_DEVICES lists them, as the NVIDIA runtime's does."""
    listed = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    return 0 if listed in ("", "void", "none") else len(listed.split(","))


def check_devices(args: Any) -> None:
    gpus = visible_gpus()
    if gpus == 0:
        raise RuntimeError(
            "Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose "
            "logging to help debug the issue. (No CUDA GPUs are available)"
        )
    size = args.tensor_parallel_size * args.pipeline_parallel_size
    if size > gpus * args.nnodes:
        raise ValueError(
            f"World size ({size}) is larger than the number of available GPUs ({gpus}) in this node. If this is intentional and "
            "you are using:\n- ray, set '--distributed-executor-backend ray'.\n- multiprocessing, set '--nnodes' appropriately."
        )


def check_model(path: str, trust_remote_code: bool) -> dict[str, Any]:
    """The model's configuration, from a local folder: nothing can be downloaded here."""
    config = Path(path) / "config.json"
    if not config.is_file():
        raise ValueError(
            f"Invalid repository ID or local directory specified: '{path}'.\nPlease verify the following requirements:\n"
            "1. Provide a valid Hugging Face repository ID.\n2. Specify a local directory that contains a recognized configuration file.\n"
            "   - For Hugging Face models: ensure the presence of a 'config.json'.\n   - For Mistral models: ensure the presence of a 'params.json'."
        )
    try:
        found = json.loads(config.read_text())
    except ValueError as wrong:
        raise OSError(f"It looks like the config file at '{config}' is not a valid JSON file.") from wrong
    if "auto_map" in found and not trust_remote_code:
        raise ValueError(
            f"The repository {path} contains custom code which must be executed to correctly load the model. You can inspect the "
            f"repository content at https://hf.co/{path} .\n Please pass the argument `trust_remote_code=True` to allow custom code to be run."
        )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (Path(path) / name).is_file():
            raise OSError(
                f"Can't load tokenizer for '{path}'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a "
                f"local directory with the same name. Otherwise, make sure '{path}' is the correct path to a directory containing all relevant files for a tokenizer."
            )
    return dict(found)


def shards(path: str) -> list[Path]:
    """The files that the index names; the loader reads what is there and then misses what is not."""
    folder, index = Path(path), Path(path) / "model.safetensors.index.json"
    if index.is_file():
        where: dict[str, str] = json.loads(index.read_text())["weight_map"]
        lost = {f for f in where.values() if not (folder / f).is_file()}
        if len(lost) < len(set(where.values())):
            if lost:
                names = sorted(t for t, f in where.items() if f in lost)
                raise ValueError(f"Following weights were not initialized from checkpoint: {set(names[:8])}")
            return [folder / f for f in sorted(set(where.values()))]
    elif found := sorted(folder.glob("*.safetensors")):
        return found
    raise RuntimeError(f"Cannot find any model weights with `{path}`")


def read(shard: Path) -> int:
    """Reads a shard as a loader does: every byte, and the header must account for all of them."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, 100_000_000):
            raise SafetensorError(f"Error while deserializing header: header too large ({shard})")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise SafetensorError(f"Error while deserializing header: invalid JSON in header ({shard})") from None
        end = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
        if 8 + length + end != size:
            raise SafetensorError(f"Error while deserializing header: incomplete metadata, file not fully covered ({shard})")
        while file.read(1 << 20):
            pass
    return size


def encoders(path: str) -> list[Path]:
    """The files that hold more than the language model: an encoder alone reads no others (weight_utils.py, filter_mm_encoder_only_safetensors_files)."""
    index = Path(path) / "model.safetensors.index.json"
    if not index.is_file():
        return shards(path)
    where: dict[str, str] = json.loads(index.read_text())["weight_map"]
    return [Path(path) / file for file in sorted({file for name, file in where.items() if not name.startswith("language_model")})]


def load(path: str, encoder_only: bool = False) -> None:
    """Reads all shards in the modelled time, then starts the engine in the modelled time; both divided by the sandbox's speed."""
    every, times, speed = shards(path), TIMING["load"], world.speed()
    files = encoders(path) if encoder_only else every
    log(f"Starting to load model {path}...", "gpu_model_runner.py:4210")
    began = time.monotonic()
    whole = times["weights_gb"] / times["gb_per_second"] / speed * len(files) / len(every)
    for n, shard in enumerate(files, 1):
        read(shard)
        wait = began + whole * n / len(files) - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        spent = time.monotonic() - began
        left, rate = spent / n * (len(files) - n), n / spent if spent else 0.0
        print(
            f"Loading safetensors checkpoint shards: {100 * n // len(files):3d}% Completed | {n}/{len(files)} "
            f"[{_clock(spent)}<{_clock(left)}, {rate:5.2f}it/s]",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    log(f"Loading weights took {time.monotonic() - began:.2f} seconds", "default_loader.py:384")
    time.sleep(times["start_seconds"] / speed)
    log(f"init engine (profile, create kv cache, warmup model) took {times['start_seconds'] / speed:.2f} seconds", "core.py:281")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
