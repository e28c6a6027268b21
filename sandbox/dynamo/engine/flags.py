"""vLLM 0.31.0's command line, from the one table of flags (`configs/engine-flags.tsv`): what its real parser said.

Takes the place of vLLM's own modules, so that the real `dynamo.vllm.args` can be used without vLLM (which would bring torch): Dynamo's
flags, its checks and their words are the real ones, and the engine's flags are those of this table.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import types
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[3] / "configs" / "engine-flags.tsv"
VERSION = "0.31.0"
# Flags that take whole numbers though their default is none; those below also take 1k, 1M, 25.6k as vLLM does.
WHOLE = {"block-size", "data-parallel-rank", "data-parallel-rpc-port", "data-parallel-size-local", "data-parallel-start-rank", "max-num-seqs",
         "max-num-scheduled-tokens", "mamba-block-size", "max-cudagraph-capture-size", "num-gpu-blocks-override", "spec-tokens"}  # fmt: skip
HUMAN = {"max-model-len", "max-num-batched-tokens", "kv-cache-memory-bytes"}
SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


class Section:
    """A JSON flag's keys as attributes, as the dataclass that vLLM makes of it."""

    def __init__(self, flag: str, given: dict[str, Any], known: dict[str, dict[str, str]]) -> None:
        for key in given:
            if known and key not in known:
                raise ValueError(f"{flag}: 1 validation error: {key}\n  Unexpected keyword argument")
        for key, row in known.items():
            setattr(self, key, given.get(key, _default(row)))


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Underscores for dashes, and --flag.key value for JSON flags, as vLLM's."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words, nested, flags = list(sys.argv[1:] if args is None else args), {}, []
        at = 0
        while at < len(words):
            word = words[at]
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                name = name if "." in name else name.replace("_", "-")
                head, dot, key = name.partition(".")
                if dot and head.replace("_", "-") in JSON_FLAGS:
                    if not equals:
                        at += 1
                        value = words[at] if at < len(words) else self.error(f"argument {head}: expected one argument")
                    nested.setdefault(head.replace("_", "-"), {})[key] = _literal(value)
                else:
                    flags.append(name + equals + value)
            else:
                flags.append(word)
            at += 1
        found = super().parse_args(flags, namespace)
        for flag, keys in nested.items():
            attribute = flag[2:].replace("-", "_")
            setattr(found, attribute, {**(getattr(found, attribute) or {}), **keys})
        return found


class AsyncEngineArgs:
    """What the command line says of the engine, as attributes."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser, async_args_only: bool = False) -> argparse.ArgumentParser:
        for row in ROWS:
            if not is_key(row):
                _add(parser, row)
        return parser

    @classmethod
    def from_cli_args(cls, found: argparse.Namespace) -> AsyncEngineArgs:
        args = cls()
        for name, value in vars(found).items():
            keys = KEYS.get("--" + name.replace("_", "-"))
            setattr(args, name, Section(name, value, keys) if keys and isinstance(value, dict) else value)
        return args


def add_server_args(parser: argparse.ArgumentParser) -> None:
    """What `vllm serve` takes beside the engine's flags."""
    for row in _rows("vllm-serve"):
        _add(parser, row)


def _rows(program: str = "vllm") -> list[dict[str, str]]:
    lines = TABLE.read_text().splitlines()
    names = next(line for line in lines if line.startswith("#program"))[1:].split("\t")
    found = csv.DictReader([line for line in lines if not line.startswith("#")], names, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [row for row in found if row["program"] == program and VERSION in row["versions"].split(",")]


def is_key(row: dict[str, str]) -> bool:
    """Is it a key of a JSON flag, and no flag of its own?"""
    return "." in row["flag"]


def _default(row: dict[str, str]) -> Any:
    text = row["default"]
    if text in ("None", "(unset)", "(computed)", ""):
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return None if "(" in text else text


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def human_readable_int(text: str) -> int:
    if text[-1:] in SCALES:
        return int(float(text[:-1]) * SCALES[text[-1]])
    return int(text)


def _length(text: str) -> int:
    return -1 if text in ("auto", "-1") else human_readable_int(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to <function loads>.") from wrong


def _kind(row: dict[str, str], name: str) -> Any:
    if row["takes"] == "json":
        return _json
    if row["takes"] == "json|one":
        return _literal
    if name == "max-model-len":
        return _length
    if name in HUMAN:
        return human_readable_int
    default = _default(row)
    if isinstance(default, bool) or row["takes"] == "many":
        return str
    if name in WHOLE or isinstance(default, int):
        return float if name in ("mm-processor-cache-gb", "cpu-offload-gb", "mm-ipc-gpu-memory-gb") else int
    return float if isinstance(default, float) else str


def _add(parser: argparse.ArgumentParser, row: dict[str, str]) -> None:
    also = [a for a in row["also"].split(",") if a]
    name = row["flag"][2:]
    spellings = [row["flag"], *(a for a in also if not a.startswith("--no-"))]
    if row["takes"] == "none":
        action: Any = argparse.BooleanOptionalAction if any(a.startswith("--no-") for a in also) else "store_true"
        parser.add_argument(*spellings, action=action, default=_default(row))
        return
    choices = [c for c in row["choices"].split(",") if c]
    open_list = "*" in choices  # the parser takes any string; a name it does not know ends the engine's start
    kind = _kind(row, name)
    fixed: Any = None if open_list or not choices else [kind(c) if kind in (int, float) else c for c in choices]
    count = {"many": "+", "opt": "?"}.get(row["takes"])
    parser.add_argument(*spellings, type=kind, choices=fixed, nargs=count, default=_default(row))


def refuse_unknown_names(args: AsyncEngineArgs) -> None:
    """What the parser takes and the engine's start does not: names that are in no list (attention backend, load format, …)."""
    for row in ROWS:
        choices = row["choices"].split(",")
        if "*" not in choices:
            continue
        flag, _, key = row["flag"].partition(".")
        value = getattr(args, flag[2:].replace("-", "_"), None)
        value = getattr(value, key, None) if key else value
        if value not in (None, "", *choices):
            raise ValueError(f"{row['flag'][2:]}: unknown name {value!r}; expected one of {', '.join(c for c in choices if c != '*')}")


def install() -> None:
    """Make `import vllm…` find this module's names where Dynamo looks for them, and empty classes where it only names types."""
    here = sys.modules[__name__]
    places = {"vllm": "", "vllm.config": "VllmConfig", "vllm.distributed": "", "vllm.distributed.kv_events": "KVEventsConfig", "vllm.engine": "",
              "vllm.engine.arg_utils": "AsyncEngineArgs", "vllm.utils": "FlexibleArgumentParser", "vllm.v1": "", "vllm.v1.engine": "",
              "vllm.v1.engine.async_llm": "AsyncLLM"}  # fmt: skip
    for place, name in places.items():
        sys.modules[place] = types.ModuleType(place)
        if name:
            setattr(sys.modules[place], name, getattr(here, name, type(name, (), {})))


ROWS = _rows()
JSON_FLAGS = {r["flag"] for r in ROWS if r["takes"].startswith("json") and not is_key(r)}
KEYS: dict[str, dict[str, dict[str, str]]] = {}
for _row in filter(is_key, ROWS):
    _flag, _, _key = _row["flag"].partition(".")
    KEYS.setdefault(_flag, {})[_key] = _row
JSON_FLAGS |= set(KEYS)
