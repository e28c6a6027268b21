"""Every command line that `nemo render --all` gives, put to the real parsers of Dynamo and vLLM. Called by `scripts/test-real-parsers`, in an environment that has both.

Without a GPU vLLM knows no platform, and its parser fails for that alone. It is told to take the CPU for one, as Dynamo's frontend does where it wants vLLM's parser.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import rendered

# What Kubernetes puts in place of the variables.
PLACED = {"$(LWS_WORKER_INDEX)": "1", "$(LWS_LEADER_ADDRESS)": "vllm-worker-0.vllm-worker.nemo"}
PROGRAMS = ("dynamo.vllm", "dynamo.frontend", "vllm")
# Each with a part of what its parser says.
WRONG = {
    ("dynamo.vllm", "--tool-call-parser", "qwen3_coder"): "unrecognized arguments",
    ("dynamo.vllm", "--tensor-parallel-size", "eight"): "invalid",
    ("dynamo.frontend", "--tensor-parallel-size", "8"): "Unknown arguments",
    ("vllm", "--enable-multimodal"): "unrecognized arguments",
}


def lines(value: Any) -> list[tuple[str, ...]]:
    """Program and arguments of every container below."""
    if isinstance(value, list):
        return [found for item in value for found in lines(item)]
    if not isinstance(value, dict):
        return []
    program = next((word for word in value.get("command") or [] if word in PROGRAMS), None)
    # `vllm serve MODEL …`: its parser gets what stands behind `serve`.
    own = [(program, *(PLACED.get(word, word) for word in value["args"]))] if program else []
    return own + [found for item in value.values() for found in lines(item)]


def parsers() -> dict[str, Callable[[], Any]]:
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    if not vllm.platforms.current_platform.device_type:
        vllm.platforms.current_platform = CpuPlatform()
    from dynamo.frontend.main import parse_args as frontend
    from dynamo.vllm.args import parse_args as worker

    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def server() -> None:
        validate_parsed_serve_args(make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(sys.argv[1:]))

    return {"dynamo.vllm": worker, "dynamo.frontend": frontend, "vllm": server}


def said(parse: Callable[[], Any], line: tuple[str, ...]) -> str | None:
    """What the parser refuses, in its words; None: it takes the line."""
    sys.argv = [line[0], *line[1:]]
    with tempfile.TemporaryFile("w+") as kept:
        sys.stderr.flush()
        real = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            parse()
            return None
        except SystemExit as end:
            error = f"exit {end.code}"
        except Exception as wrong:
            error = f"{type(wrong).__name__}: {wrong}"
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            os.close(real)
        kept.seek(0)
        last = kept.read().strip().splitlines()[-1:]
        return " ".join([error, *last])


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        found = Counter(lines(rendered.flat(rendered.all_of_them(Path(os.environ["NEMO"]), Path(made)))))
    parse = parsers()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("ai-dynamo", "vllm"))
    for line, why in WRONG.items():
        told = said(parse[line[0]], line if line[0] == "dynamo.frontend" else (line[0], "--model", "/model", *line[1:]))
        if told is None or why not in told:
            raise SystemExit(f"the parsers do not refuse what is wrong, so that what they take says nothing: {' '.join(line)}: {told}")
    refused = [(line, told) for line in found if (told := said(parse[line[0]], line))]
    for line, told in refused:
        print(f"real-parsers: refused: {' '.join(line)}\n  {told}")
    print(f"real-parsers: {versions}: {sum(found.values())} command lines, {len(found)} of them different; {len(refused)} refused")
    sys.exit(1 if refused or not found else 0)


if __name__ == "__main__":
    main()
