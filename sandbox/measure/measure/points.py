"""Where a walk can be killed: which write is which, and which step it belongs to."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

from .path import ON_EVERY_NODE

STEPS = (
    "network",
    "cluster",
    "system-nodes",
    "gpu-nodes",
    "images",
    "filesystem",
    "platform",
    "storage",
    "weights",
    "serve",
    "test",
    "bench",
)


def aws_point(held: dict[str, Any]) -> str:
    """A held AWS call as a point that is the same in every run."""
    target = re.sub(r"/uploads/[^/?]+", "/uploads/*", str(held.get("target", "")))
    target = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|(fs|vpc|subnet|sg|lt)-[0-9a-f]{8,}", "*", target)
    return f"{held['service']} {held['operation']} {target}".strip()


def kube_point(method: str, path: str) -> str:
    return f"kubernetes {method} {path.split('?')[0]}"


def step_of(point: str) -> str:
    """The step that makes this call."""
    service, operation, *rest = point.split(" ")
    target = " ".join(rest)
    if service == "cloudformation":
        return "gpu-nodes" if "gpu-nodes" in target else "network"
    if service == "eks":
        if operation == "CreateNodegroup":
            return "gpu-nodes" if "gpu" in target.split("nodegroupName=")[-1] else "system-nodes"
        return "platform" if "Addon" in operation and not any(f"addonName={name}" in target for name in ON_EVERY_NODE) else "cluster"
    if service in ("ecr", "registry"):
        return "images"
    if service == "fsx":
        return "filesystem"
    if service != "kubernetes":
        return "network"
    if "persistentvolume" in target:
        return "storage"
    named = next((step for step in ("weights", "bench", "serve", "test") if re.search(rf"[/-]{step}\b|\b{step}[-/]", target)), "")
    return named or ("serve" if re.search(r"/(frontend|vllm-worker|dynamo)(?![\w-])", target) else "platform")


@dataclass
class Every:
    """Every point once: what `--all` does. What was killed already is not killed again, so the walk ends."""

    killed: set[str] = field(default_factory=set)

    def choose(self, point: str) -> bool:
        new = point not in self.killed
        self.killed.add(point)
        return new

    def left(self) -> list[str]:
        return []


class OneInEachStep:
    """One kill in each step, where the seed says: at its first, second or third call, or when the step is noted."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.at = {step: dice.choice(("call 1", "call 2", "call 3", "started", "done")) for step in STEPS}
        self.calls = dict.fromkeys(STEPS, 0)
        self.killed: dict[str, str] = {}

    def choose(self, point: str) -> bool:
        kind, _, rest = point.partition(" ")
        if kind == "noted":  # "noted cluster done"
            step, status = rest.split(" ")
            # a step with fewer calls than the dice said is killed when it is done
            due = self.at[step] == status or (status == "done" and self.at[step].startswith("call"))
        elif kind == "noting":
            return False
        else:
            step = step_of(point)
            self.calls[step] += 1
            due = self.at[step] == f"call {self.calls[step]}"
        if not due or step in self.killed:
            return False
        self.killed[step] = point
        return True

    def left(self) -> list[str]:
        return [step for step in STEPS if step not in self.killed]
