"""nemo explain and nemo lint --live against a world in which something is broken."""

from __future__ import annotations

import json
import time
from typing import Any

from conftest import World


def explained(world: World, rule: str) -> dict[str, Any]:
    """Asked until the cluster itself has said it: a scheduler and a kubelet need their time."""
    until = time.monotonic() + 120
    while True:
        answer = json.loads(world.ok("explain", "--output", "json").stdout.splitlines()[-1])
        if (answer["cause"] or {}).get("rule") == rule or time.monotonic() > until:
            return answer


def test_what_the_cluster_says_is_explained(world: World) -> None:
    assert "there is no cluster" in world.nemo("explain").stderr
    world.ok("up", "--yes", "--to", "serve")
    told = world.ok("explain")
    assert "nothing is wrong with" in told.stdout and "an hour" in told.stdout, told.stdout
    live = world.nemo("lint", "--live")
    assert live.returncode == 0, live.stdout + live.stderr
    assert world.exec("kubectl", "-n", "nemo", "set", "resources", "deployment/vllm-worker", "--requests=cpu=500").returncode == 0
    answer = explained(world, "N32")
    assert answer["cause"] and answer["cause"]["rule"] == "N32", answer
    assert "Insufficient cpu" in answer["cause"]["sentence"] and answer["cause"]["next"] and answer["usd_so_far"] is not None, answer
