"""What a node of an instance type shows: capacity, and allocatable as EKS's own images reserve it."""

from __future__ import annotations

import tomllib
from typing import Any

from .paths import SANDBOX, Wrong

MI, GI = 1 << 20, 1 << 30
EVICTION = 100 * MI  # memory.available of the kubelet's default hard eviction


def types() -> dict[str, Any]:
    return tomllib.loads((SANDBOX / "world" / "instances.toml").read_text())


def reserved_millicores(cores: int) -> int:
    """EKS's AMI: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest."""
    return int(60 * min(cores, 1) + 10 * (cores > 1) + 5 * max(0, min(cores, 4) - 2) + 2.5 * max(0, cores - 4))


def of(instance_type: str) -> tuple[dict[str, str], dict[str, str]]:
    """(capacity, allocatable)"""
    known = types()
    if instance_type not in known:
        raise Wrong(f"the sandbox does not know what a {instance_type} node shows: add it to sandbox/world/instances.toml")
    one = known[instance_type]
    memory, huge = one["memory_gib"] * GI, one.get("hugepages_2mi", 0) * 2 * MI
    capacity = {"cpu": str(one["cpu"]), "memory": str(memory), "pods": str(one["pods"]), "ephemeral-storage": "200Gi"}
    if huge:
        capacity["hugepages-2Mi"] = str(huge)
    for resource, key in (("nvidia.com/gpu", "gpus"), ("vpc.amazonaws.com/efa", "efa")):
        if one.get(key):
            capacity[resource] = str(one[key])
    allocatable = {
        "cpu": f"{one['cpu'] * 1000 - reserved_millicores(one['cpu'])}m",
        "memory": str(memory - huge - (255 + 11 * one["pods"]) * MI - EVICTION),
    }
    return capacity, allocatable
