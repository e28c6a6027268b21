"""The critical path of a walk: what the servers say each part took, and which part truly needs which.

Only durations are added up: from the accepted request to the ready resource, from the started pod to Ready or its end. What a
client adds (looking late, waiting for what it does not need) is in none of them, so wall clock ÷ critical path is that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# What needs what, by its own nature; `nemo` is measured against this and not against the order that it chose.
NEEDS: dict[str, tuple[str, ...]] = {
    "stack network": (),
    "stack roles": (),
    "stack nat": ("stack network",),
    "cluster": ("stack network", "stack roles"),
    "stack gpu-nodes": ("stack network", "cluster"),
    "node group system": ("cluster", "stack nat"),
    "node group gpu": ("cluster", "stack nat", "stack gpu-nodes"),
    "add-ons": ("node group system",),
    "file system": ("stack network",),
    "images": (),
    "pods platform": ("node group system",),
    "pods weights": ("node group system", "add-ons", "file system"),
    "pods serve": ("pods weights", "pods platform", "node group gpu"),
    "pods test": ("pods serve",),
    "pods bench": ("pods serve", "pods test"),
}
# Add-ons that every node runs: a node is not Ready without them, so they are in its node group's time and in nobody else's.
ON_EVERY_NODE = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
STEPS: dict[str, str] = {
    "stack network": "network",
    "stack roles": "network",
    "stack nat": "network",
    "cluster": "cluster",
    "stack gpu-nodes": "gpu-nodes",
    "node group system": "system-nodes",
    "node group gpu": "gpu-nodes",
    "add-ons": "platform",
    "file system": "filesystem",
    "images": "images",
    "pods platform": "platform",
    "pods weights": "weights",
    "pods serve": "serve",
    "pods test": "test",
    "pods bench": "bench",
}


@dataclass(frozen=True)
class Interval:
    """One thing that took its time at a server; wall-clock seconds."""

    part: str
    what: str
    begin: float
    end: float


def part_of_row(row: dict[str, object]) -> str | None:
    """Which part an interval of the AWS timeline belongs to; what a stack does itself is in the stack."""
    operation, resource, parent = str(row["operation"]), str(row["resource"]), row.get("parent")
    if row.get("ready") is None or parent or operation.startswith(("Delete", "Update")):
        return None
    if operation == "CreateStack":
        found = re.search(r"-(network|roles|nat|gpu-nodes)\b", resource)
        return f"stack {found.group(1)}" if found else None
    if operation == "CreateNodegroup":
        return "node group gpu" if "gpu" in resource.split(":nodegroup/")[-1] else "node group system"
    if operation == "CreateAddon":
        return None if any(f"/{name}/" in resource for name in ON_EVERY_NODE) else "add-ons"
    return {"CreateCluster": "cluster", "CreateFileSystem": "file system"}.get(operation)


def from_timeline(rows: Iterable[dict[str, object]]) -> list[Interval]:
    found = []
    for row in rows:
        part = part_of_row(row)
        if part:
            found.append(Interval(part, str(row["resource"]), float(str(row["accepted"])), float(str(row["ready"]))))
    return found


def busy(intervals: Iterable[Interval]) -> float:
    """Seconds in which at least one of them was open."""
    total, until = 0.0, float("-inf")
    for one in sorted(intervals, key=lambda one: one.begin):
        if one.end > until:
            total += one.end - max(one.begin, until)
            until = one.end
    return total


def durations(intervals: Iterable[Interval]) -> dict[str, float]:
    """Seconds of each part."""
    by_part: dict[str, list[Interval]] = {}
    for one in intervals:
        by_part.setdefault(one.part, []).append(one)
    return {part: busy(rows) for part, rows in by_part.items()}


def critical_path(took: dict[str, float], needs: dict[str, tuple[str, ...]] = NEEDS) -> tuple[float, list[str]]:
    """The longest chain of parts, and how long it is."""
    best: dict[str, tuple[float, list[str]]] = {}

    def chain(part: str) -> tuple[float, list[str]]:
        if part not in best:
            before = max((chain(other) for other in needs[part]), default=(0.0, []), key=lambda one: one[0])
            best[part] = (before[0] + took.get(part, 0.0), [*before[1], part])
        return best[part]

    return max((chain(part) for part in needs), key=lambda one: one[0])


def by_step(intervals: Iterable[Interval]) -> dict[str, float]:
    """Seconds of each step of the walk."""
    rows: dict[str, list[Interval]] = {}
    for one in intervals:
        rows.setdefault(STEPS[one.part], []).append(one)
    return {step: busy(found) for step, found in rows.items()}
