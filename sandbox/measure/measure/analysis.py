"""The figures of reading runs and of the report. Called by `scripts/bench-analysis`.

One run of a million requests, 3 GB in the page cache: `nemo report --out levels.csv` works out all statistics and the stalled tail, and so does
scripts/rival_stats.py (json and numpy, one process); that both found the same numbers is asked first. Each side once in turn, and the median of the
rounds; the figure is the rival's median over nemo's. Then the report of a sweep of 12 levels with 100,000 requests, read back in Chromium.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import sweeps
from .apiserver import CACHE, REPO
from .bench import Figures
from .chromium import Chromium
from .render import run

ROUNDS = 3
REPORTS = 5
REQUESTS = 1_000_000
STALLED = 1_000
SWEEP = {concurrency: 100_000 * concurrency // 615 for concurrency in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192)}
# The same number by both names: a column of the CSV, and where the rival has it.
SAME = {
    "answered": ("answered",), "failed": ("failed",), "stalled": ("stalled",),
    **{f"{metric}_{p}_ms": (f"{metric}_ms", p) for metric in ("ttft", "itl") for p in ("p50", "p95", "p99")},
    **{f"latency_{p}_ms": ("latency_ms", p) for p in ("p50", "p95")},
    "ttft_p95_ms_after_first_wave": ("ttft_ms_after_first_wave", "p95"),
    "output_tokens_per_second": ("output_tokens_per_second",), "requests_per_second": ("requests_per_second",),
}


def say(text: str) -> None:
    print(f"bench-analysis: {text}", file=sys.stderr, flush=True)


def made(folder: Path) -> None:
    """Both loads, once."""
    if (folder / "made").exists():
        return
    say("writing runs of 1,100,000 requests")
    shutil.rmtree(folder, ignore_errors=True)
    sweeps.level(folder / "one" / "c64", 64, REQUESTS, STALLED)
    for concurrency, requests in SWEEP.items():
        sweeps.level(folder / "sweep" / f"c{concurrency}", concurrency, requests)
    (folder / "made").touch()


def differ(levels: Path, theirs: dict[str, Any]) -> list[str]:
    """Where the two found different numbers."""
    with levels.open() as file:
        ours = next(csv.DictReader(file))
    found = []
    for column, path in SAME.items():
        their: Any = theirs
        for part in path:
            their = their[part]
        if abs(float(ours[column]) - their) > 1e-6 * abs(their):
            found.append(f"{column}: {ours[column]} and {their}")
    return found


def main() -> None:
    folder, figures, nemo = CACHE / "bench-analysis", Figures(), os.environ["NEMO"]
    made(folder)
    with_numpy = subprocess.run([REPO / "sandbox" / "dynamo" / "setup.sh"], capture_output=True, text=True, check=True).stdout.split()[-1]
    records = folder / "one" / "c64" / "profile_export.jsonl"
    ours = [nemo, "report", str(folder / "one"), "--out", str(folder / "levels.csv")]
    theirs = [f"{with_numpy}/bin/python", str(REPO / "scripts" / "rival_stats.py"), str(records)]
    # Once for the page cache, and for the question whether both say the same.
    subprocess.run(["cat", records], stdout=subprocess.DEVNULL, check=True)
    run(ours, folder / "nemo.out", folder)
    times: dict[str, list[float]] = {"nemo": [], "rival": []}
    peaks = []
    for _ in range(ROUNDS):
        mine = run(ours, folder / "nemo.out", folder)
        times["nemo"].append(mine.seconds)
        peaks.append(mine.peak_mb)
        times["rival"].append(run(theirs, folder / "rival.out", folder).seconds)
        if odd := differ(folder / "levels.csv", json.loads((folder / "rival.out").read_text())):
            raise SystemExit("nemo and the rival did not find the same numbers, so that their times say nothing:\n" + "\n".join(odd))
    for name, seconds in times.items():
        say(f"{name}: median {statistics.median(seconds):.2f} s, best {min(seconds):.2f} s of {ROUNDS}; {records.stat().st_size / 1e9:.2f} GB")
    figures.add("rival_stats.py / nemo, 1,000,000 requests", statistics.median(times["rival"]) / statistics.median(times["nemo"]), 15.0, at_least=True, form=".1f")
    figures.add("peak memory of nemo, 1,000,000 requests, MB", max(peaks), 100, form=".1f")

    page = folder / "report.html"
    report = [nemo, "report", str(folder / "sweep"), "--out", str(page), "--ttft", "p95=200ms", "--itl", "p95=60ms", "--gpus", "8"]
    seconds = [run(report, folder / "nemo.out", folder).seconds for _ in range(REPORTS + 1)][1:]
    figures.add("nemo report, 12 levels, 100,000 requests, s", statistics.median(seconds), 1.0)
    figures.add("report, MB", page.stat().st_size / 1e6, 4.0)
    paints = []
    with Chromium() as browser:
        for _ in range(REPORTS):
            browser.open(page)
            paints.append(browser.first_paint_ms() / 1000)
    figures.add("first paint in Chromium, s", statistics.median(paints), 1.0)
    sys.exit(1 if figures.short else 0)


if __name__ == "__main__":
    main()
