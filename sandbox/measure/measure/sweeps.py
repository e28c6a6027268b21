"""Sweeps of aiperf 0.13.0 of any size, made of the lines of a recorded one: the same keys in the same order, other times."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[3] / "tests" / "fixtures" / "aiperf" / "sweeps" / "agg-0.13.0" / "concurrency_32__requests_192"
# What differs from request to request and is read: the times of its life, and what was measured of it.
TIMES = ("credit_issued_ns", "request_start_ns", "request_end_ns")
MEASURED = ("time_to_first_token", "time_to_first_output_token", "inter_token_latency", "request_latency")
START = 1_796_059_800_000_000_000


def _template(line: str) -> str:
    """The line as a format: what differs by its name, all else as it stands."""
    line = line.replace("%", "%%")
    for key in TIMES:
        line = re.sub(rf'"{key}":\d+', f'"{key}":%({key})d', line)
    for key in MEASURED:
        line = re.sub(rf'"{key}":{{"value":[\d.e-]+', f'"{key}":{{"value":%({key}).6f', line)
    return line


def level(folder: Path, concurrency: int, requests: int, stalled: int = 0) -> None:
    """Writes one run. The last `stalled` requests stop for twelve seconds, as the recorded stalled tail does."""
    folder.mkdir(parents=True)
    lines = [line for line in (RECORDED / "profile_export.jsonl").read_text().splitlines() if '"benchmark_phase":"profiling"' in line]
    templates = [_template(line) for line in lines]
    dice = random.Random(requests * 1000 + concurrency)
    clocks = [START] * concurrency
    with (folder / "profile_export.jsonl").open("w", buffering=1 << 20) as file:
        for at in range(requests):
            user = at % concurrency
            ttft = 20.0 + dice.expovariate(1 / (5.0 + concurrency)) + (20.0 * user if at < concurrency else 0.0)
            itl = 9.0 + 0.35 * concurrency + dice.gauss(0.0, 0.5)
            if at >= requests - stalled:
                itl += 12_000 / 47
            latency = ttft + 47 * itl
            start = clocks[user] + dice.randrange(200_000, 2_000_000)
            end = start + int(latency * 1e6)
            file.write(templates[at % len(templates)] % {
                "credit_issued_ns": clocks[user], "request_start_ns": start, "request_end_ns": end,
                "time_to_first_token": ttft, "time_to_first_output_token": ttft, "inter_token_latency": itl, "request_latency": latency,
            })
            file.write("\n")
            clocks[user] = end
    manifest = {"phases": [{"phase_kind": "profiling", "start_ns": START, "end_ns": max(clocks)}]}
    (folder / "phase_manifest.json").write_text(json.dumps(manifest))
    # What was asked is read from the summary; its statistics are the recorded run's, so nemo says that the two disagree.
    summary = json.loads((RECORDED / "profile_export_aiperf.json").read_text())
    next(phase for phase in summary["input_config"]["phases"] if phase["name"] == "profiling")["concurrency"] = concurrency
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
