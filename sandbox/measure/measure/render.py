"""The figures of rendering and linting. Called by `scripts/bench-render`.

`nemo render --all` and `helm template` of one chart: one process each, which makes all documents and writes them to a file. The chart has what
nemo's templates have (chart.py); that both made the same documents is asked first. `nemo lint` and kubeconform: one process each over
the same files; kubeconform with the schemas of a real API server on the disk, and as many workers as make it fastest here.
Each side once in turn, and the median of the rounds; a figure is the rival's median over nemo's.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import chart, rendered, schemas
from .apiserver import CACHE, REPO, ApiServer, stand_in_crds
from .bench import Figures

ROUNDS = 9
# Settings of another deployment, which show what is a value.
ELSEWHERE = ("--name", "elsewhere", "--region", "eu-north-1", "--set", "serve.namespace=models", "--set", "storage.throughput=250", "--set", "serve.max_model_len=16384")
MANY = 10_000


def say(text: str) -> None:
    print(f"bench-render: {text}", file=sys.stderr, flush=True)


@dataclass
class Run:
    seconds: float
    peak_mb: float


def run(command: list[str], output: Path, folder: Path) -> Run:
    """One process, its answer in a file; what fails ends the measurement."""
    errors = output.with_suffix(".stderr")
    with output.open("wb") as out, errors.open("wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:3])} … ended with {process.returncode}:\n{errors.read_text()[-2000:]}{output.read_text()[-2000:]}")
    return Run(seconds, usage.ru_maxrss / 1024)


def race(ours: list[str], theirs: list[str], folder: Path, what: str) -> float:
    """The rival's median over ours, each once in turn."""
    both: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for times, command, name in zip(both, (ours, theirs), ("ours", "theirs"), strict=True):
            times.append(run(command, folder / f"{what}-{name}.out", folder).seconds)
    for times, command in zip(both, (ours, theirs), strict=True):
        say(f"{Path(command[0]).name}: median {statistics.median(times) * 1000:.0f} ms, best {min(times) * 1000:.0f} ms of {ROUNDS}")
    return statistics.median(both[1]) / statistics.median(both[0])


def canonical(documents: list[Any]) -> Counter[str]:
    return Counter(json.dumps(document, sort_keys=True) for document in documents)


def rendering(binary: Path, folder: Path, figures: Figures) -> rendered.Sets:
    files = folder / "files"
    for name in ("files", "elsewhere"):
        (folder / name).mkdir()
    sets = rendered.all_of_them(binary, files)
    elsewhere = rendered.all_of_them(binary, folder / "elsewhere", *ELSEWHERE)
    actions = chart.write(folder / "chart", sets, elsewhere)
    documents = rendered.flat(sets)
    say(f"{len(sets)} deployments, {len(documents)} documents; the chart has {len(list((folder / 'chart' / 'templates').iterdir()))} templates with {actions} actions")
    helm = [str(CACHE / "bin" / "helm"), "template", "bench", str(folder / "chart")]
    ours = rendered.command(binary)
    for name, command in (("nemo", ours), ("helm", helm)):
        run(command, folder / f"{name}.yaml", folder)
    made = {name: canonical(rendered.documents((folder / f"{name}.yaml").read_text())) for name in ("nemo", "helm")}
    if made["nemo"] != made["helm"] or made["nemo"] != canonical(documents):
        odd = next(iter((made["helm"] - made["nemo"]) + (made["nemo"] - made["helm"])), "")
        raise SystemExit(f"helm and nemo did not make the same documents, so that their times say nothing; one that only one of them made:\n{odd[:1500]}")
    figures.add("helm template / nemo render", race(ours, helm, folder, "render"), 5.0, at_least=True, form=".2f")
    return sets


def linting(binary: Path, folder: Path, sets: rendered.Sets, figures: Figures) -> None:
    documents, files = rendered.flat(sets), folder / "files"
    with ApiServer() as server:
        for crd in [*stand_in_crds(server), *lws_crds()]:
            server.define(crd)
        schemas.write(server, {(document["apiVersion"], document["kind"]) for document in documents}, folder / "schemas")
    conform = [str(CACHE / "bin" / "kubeconform"), "-schema-location", f"{folder / 'schemas'}/{schemas.LOCATION}"]
    out = folder / "kubeconform.json"
    run([*conform, "-summary", "-output", "json", str(files)], out, folder)
    told = json.loads(out.read_text())["summary"]
    if told != {"valid": len(documents), "invalid": 0, "errors": 0, "skipped": 0}:
        raise SystemExit(f"kubeconform did not look at all {len(documents)} documents and find them valid: {told}")
    workers = {n: statistics.median(run([*conform, "-n", str(n), str(files)], out, folder).seconds for _ in range(3)) for n in (1, 2, 4, 8)}
    best = min(workers, key=workers.__getitem__)
    say("kubeconform by workers, ms: " + ", ".join(f"{n}: {seconds * 1000:.0f}" for n, seconds in workers.items()))
    lint = [str(binary), "lint", str(files)]
    figures.add("kubeconform / nemo lint", race(lint, [*conform, "-n", str(best), str(files)], folder, "lint"), 3.0, at_least=True, form=".2f")
    many = folder / "many"
    copies = -(-MANY // len(documents))
    for at in range(copies):
        shutil.copytree(files, many / str(at))
    ran = run([str(binary), "lint", str(many)], folder / "many.out", folder)
    say(f"nemo lint of {copies * len(documents)} documents: {ran.seconds:.2f} s")
    figures.add(f"peak memory of nemo lint, {MANY} documents, MB", ran.peak_mb, 200, form=".1f")


def lws_crds() -> list[dict[str, Any]]:
    """Of the module whose manager the sandbox runs."""
    pinned = next(line for line in (REPO / "scripts" / "setup").read_text().splitlines() if line.startswith("lws=("))
    module, version = pinned.removeprefix("lws=(").split()[:2]
    told = subprocess.run(["go", "mod", "download", "-json", f"{module}@{version}"], cwd="/", capture_output=True, text=True, check=True).stdout
    found = Path(json.loads(told)["Dir"], "config", "crd", "bases").glob("leaderworkerset*.yaml")
    return [yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in found]


def main() -> None:
    folder = CACHE / "bench-render"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    figures = Figures()
    binary = Path(os.environ["NEMO"])
    linting(binary, folder, rendering(binary, folder, figures), figures)
    sys.exit(1 if figures.short else 0)


if __name__ == "__main__":
    main()
