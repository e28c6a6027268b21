"""The figures of the walk, in a fresh sandbox. Called by `scripts/bench-walk`, inside the sandbox."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .nemo import Nemo, Ran
from .path import Interval, by_step, critical_path, durations, from_timeline
from .proxies import Delay
from .servers import RUN, Pods, aws, aws_writes, kube_writes, last_call, speed

API, FAR_API, FAR_AWS = ("10.0.0.1", 6443), ("10.0.0.1", 7443), ("10.0.0.1", 5105)
FAR = {"AWS_ENDPOINT_URL": f"http://{FAR_AWS[0]}:{FAR_AWS[1]}"}
DELAY = 0.030
CLIENT_DRIVEN = ("images", "test")  # no server is busy with them: what the client does is the work itself


class Figures:
    """One line each: name, value, target, ok or short."""

    def __init__(self) -> None:
        self.short = 0

    def add(self, name: str, value: float, target: float, at_least: bool = False, form: str = ".3f") -> None:
        good = value >= target if at_least else value <= target
        self.short += not good
        sign = ">=" if at_least else "<="
        print(f"{name}\t{value:{form}}\t{sign} {target:{form}}\t{'ok' if good else 'short'}", flush=True)


def say(text: str) -> None:
    print(f"bench-walk: {text}", file=sys.stderr, flush=True)


def api_server() -> str:
    """Where administrators reach the API server, also before a cluster is open."""
    return str(json.loads((RUN / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"])


def walked(nemo: Nemo, *words: str) -> tuple[Ran, list[Interval]]:
    """One `nemo up` from nothing, and every interval that the servers recorded meanwhile."""
    pods = Pods(api_server()).start()
    began = time.time()
    ran = nemo.up(*words)
    pods.stop()
    rows = [row for row in aws("GET", "/timeline")["intervals"] if row["accepted"] >= began]
    return ran, [*from_timeline(rows), *pods.intervals()]


def first_walk(nemo: Nemo, figures: Figures) -> tuple[float, float]:
    """Wall clock against the critical path; gives back the wall clock and the sum of steps ÷ critical path."""
    ran, intervals = walked(nemo)
    took = durations(intervals)
    length, chain = critical_path(took)
    say("each part, seconds: " + ", ".join(f"{part} {seconds:.1f}" for part, seconds in sorted(took.items(), key=lambda one: -one[1])))
    say(f"critical path {length:.1f} s: " + " > ".join(part for part in chain if took.get(part)))
    steps = by_step(intervals)
    told = nemo.steps()
    steps |= {step: told[step] for step in CLIENT_DRIVEN if step in told}
    say("each step, seconds: " + ", ".join(f"{step} {seconds:.1f} (nemo: {told.get(step, 0):.1f})" for step, seconds in steps.items()))
    say(f"wall clock {ran.seconds:.1f} s")
    figures.add("wall / critical path", ran.seconds / length, 1.10)
    figures.add("peak memory of nemo up, MB", ran.peak_mb, 100, form=".1f")
    return ran.seconds, sum(steps.values()) / length


def second_walk(nemo: Nemo, figures: Figures, far: list[Delay]) -> None:
    """Nothing to do, from far away: how long, and no write at any server."""
    for proxy in far:
        proxy.seconds = DELAY
    mark, (_, offset) = last_call(), kube_writes(RUN / "audit.log")
    runs = [nemo.up() for _ in range(3)]
    aws_found, (kube_found, _) = aws_writes(mark), kube_writes(RUN / "audit.log", offset)
    for proxy in far:
        proxy.seconds = 0
    for what, count in {**aws_found, **kube_found}.items():
        say(f"write in a walk with nothing to do: {what} x{count}")
    figures.add("second nemo up, 30 ms away, s", statistics.median(run.seconds for run in runs), 1.0)
    figures.add("writes of the second nemo up", sum(aws_found.values()) + sum(kube_found.values()), 0, form=".0f")


def one_at_a_time(binary: Path, figures: Figures, wall: float, ratio: float) -> None:
    """The same walk with one step at a time, in an empty world again."""
    with tempfile.TemporaryDirectory() as folder:
        nemo = Nemo(binary, Path(folder), speed(), **FAR)
        ran, _ = walked(nemo, "--jobs", "1")
        say(f"one step at a time: {ran.seconds:.1f} s")
        figures.add("--jobs 1 wall / wall, of sum / critical path", ran.seconds / wall / ratio, 0.95, at_least=True)


def small(binary: Path, figures: Figures) -> None:
    """What costs nothing to measure."""
    times = []
    for _ in range(30):
        began = time.monotonic()
        subprocess.run([binary, "--version"], stdout=subprocess.DEVNULL, check=True)
        times.append((time.monotonic() - began) * 1000)
    figures.add("nemo --version, ms", statistics.median(times), 10, form=".1f")
    figures.add("release binary, MB", binary.stat().st_size / 1e6, 40, form=".1f")


def main() -> None:
    binary, phase = Path(os.environ["NEMO"]), sys.argv[1]
    figures = Figures()
    kept = Path(os.environ["BENCH_FOLDER"])
    aws("POST", "/endpoint", {"eks": f"https://{FAR_API[0]}:{FAR_API[1]}"})
    far = [Delay(FAR_API, API), Delay(FAR_AWS, ("10.0.0.1", 5005))]
    if phase == "first":
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        small(binary, figures)
        nemo = Nemo(binary, kept, speed(), **FAR)
        wall, ratio = first_walk(nemo, figures)
        second_walk(nemo, figures, far)
        (kept / "first").write_text(f"{wall} {ratio}")
    else:
        wall, ratio = map(float, (kept / "first").read_text().split())
        one_at_a_time(binary, figures, wall, ratio)
    sys.exit(1 if figures.short else 0)


if __name__ == "__main__":
    main()
