#!/usr/bin/env python3
"""What one would write by hand: all statistics of one aiperf run, by json and numpy. Usage: rival_stats.py profile_export.jsonl

It is the rival that scripts/bench-analysis measures nemo against, and its numbers have to be nemo's. Needs numpy.
"""

import json
import sys

import numpy as np

METRICS = {
    "ttft_ms": "time_to_first_token",
    "first_answer_ms": "time_to_first_output_token",
    "itl_ms": "inter_token_latency",
    "latency_ms": "request_latency",
    "input_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
    "chunks": "http_req_chunks_received",
}
# A request stalled when its inter-token latency is above this many times the median.
STALLED = 4


def summary(values):
    if len(values) == 0:
        return None
    p50, p90, p95, p99 = np.percentile(values, [50, 90, 95, 99])
    return {"count": len(values), "avg": values.mean(), "std": values.std(), "min": values.min(), "max": values.max(), "p50": p50, "p90": p90, "p95": p95, "p99": p99}


def main(path):
    columns = {name: [] for name in METRICS}
    starts, ends, issued, failed = [], [], [], 0
    with open(path) as file:
        for line in file:
            record = json.loads(line)
            metadata = record["metadata"]
            if metadata["benchmark_phase"] != "profiling":
                continue
            if record.get("error"):
                failed += 1
                continue
            for name, key in METRICS.items():
                columns[name].append(record["metrics"][key]["value"])
            starts.append(metadata["request_start_ns"])
            ends.append(metadata["request_end_ns"])
            issued.append(metadata["credit_issued_ns"])
    columns = {name: np.array(values) for name, values in columns.items()}
    starts, ends, issued = (np.array(times, dtype=np.int64) for times in (starts, ends, issued))
    columns["client_delay_ms"] = (starts - issued) / 1e6
    edges = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), dtype=np.int64), -np.ones(len(ends), dtype=np.int64)])
    in_flight = int(np.cumsum(steps[np.lexsort((steps, edges))]).max())
    seconds = (ends.max() - starts.min()) / 1e9
    stalled = columns["itl_ms"] > STALLED * np.median(columns["itl_ms"])
    rest = (ends[~stalled].max() - starts[~stalled].min()) / 1e9
    after_first_wave = columns["ttft_ms"][np.argsort(starts, kind="stable")[in_flight:]]
    return {
        "answered": len(starts),
        "failed": failed,
        "in_flight": in_flight,
        "seconds": seconds,
        "output_tokens_per_second": columns["output_tokens"].sum() / seconds,
        "requests_per_second": len(starts) / seconds,
        **{name: summary(values) for name, values in columns.items()},
        "ttft_ms_after_first_wave": summary(after_first_wave),
        "stalled": int(stalled.sum()),
        "itl_ms_without_stalled": summary(columns["itl_ms"][~stalled]),
        "output_tokens_per_second_without_stalled": columns["output_tokens"][~stalled].sum() / rest,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1]), default=float))
