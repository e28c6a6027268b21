"""How long `nemo apply` takes, beside what the pods that serve take themselves. Called by `scripts/bench-serve`, inside the sandbox."""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path

from .bench import Figures, api_server
from .nemo import Nemo
from .path import busy
from .servers import Graphs, Pods, aws, speed

WAYS: dict[str, tuple[str, ...]] = {
    "aggregated": (),
    "disaggregated": ("--topology", "disaggregated"),
    "pipeline-parallel": ("--topology", "pipeline-parallel"),
    "disaggregated as dgd-v1beta1": ("--topology", "disaggregated", "--as", "dgd-v1beta1"),
}


def say(text: str) -> None:
    print(f"bench-serve: {text}", file=sys.stderr, flush=True)


def done(nemo: Nemo, *words: str) -> None:
    """A command, which must do what it was asked for."""
    ran = nemo.run(*words, "--yes", "--output", "json")
    if ran.code:
        raise SystemExit(f"nemo {' '.join(words)} ended with {ran.code} after {ran.seconds:.1f} s:\n{ran.errors}")


def said(nemo: Nemo) -> float:
    """When the last run said that it serves."""
    events = [event["at"] for event in nemo.events() if event["kind"] == "finished" and event.get("step") == "serve"]
    return datetime.fromisoformat(events[-1]).timestamp()


def served(nemo: Nemo, name: str, words: tuple[str, ...], figures: Figures) -> None:
    """From the start of `nemo apply`, with no pod of the model there, until it says that the model is listed; the critical path is all of its pods at once,
    from start to Ready, and a graph from when it is made until its operator says that it is Ready."""
    pods, graphs = Pods(api_server()).start(), Graphs(api_server()).start()
    began = time.time()
    done(nemo, "apply", *words)
    seconds = said(nemo) - began
    pods.stop()
    graphs.stop()
    intervals = [one for one in [*pods.intervals(), *graphs.intervals()] if one.part == "pods serve"]
    for one in sorted(intervals, key=lambda one: one.end):
        say(f"{name}: {one.what} {one.end - one.begin:.1f} s")
    path = busy(intervals)
    say(f"{name}: {seconds:.1f} s, critical path {path:.1f} s")
    figures.add(f"apply to serves / critical path, {name}", seconds / path, 1.10)


def main() -> None:
    folder = Path(os.environ["BENCH_FOLDER"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    nemo, figures = Nemo(Path(os.environ["NEMO"]), folder, speed()), Figures()
    settings = folder / "nemo.toml"
    settings.write_text("[gpu]\nnodes = 2\n" + settings.read_text())
    aws("POST", "/quotas", {"L-417A185B": 384})
    for step in ("weights", "gpu-nodes"):
        done(nemo, "up", "--to", step)
    for at, (name, words) in enumerate(WAYS.items()):
        if at:
            done(nemo, "cleanup", "--from", "serve")
        served(nemo, name, words, figures)
    sys.exit(1 if figures.short else 0)


if __name__ == "__main__":
    main()
