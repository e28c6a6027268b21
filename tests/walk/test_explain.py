"""nemo explain and nemo lint --live against a world in which something is broken."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from conftest import World

Done = subprocess.CompletedProcess[str]


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
    without_notes(world)
    assert world.exec("kubectl", "-n", "nemo", "set", "resources", "deployment/vllm-worker", "--requests=cpu=500").returncode == 0
    answer = explained(world, "N32")
    assert answer["cause"] and answer["cause"]["rule"] == "N32", answer
    assert "Insufficient cpu" in answer["cause"]["sentence"] and answer["cause"]["next"] and answer["usd_so_far"] is not None, answer
    world.ok("platform", "status")
    # Its operator's webhooks have nobody behind them any more.
    assert world.exec("kubectl", "-n", "dynamo-system", "scale", "deployment", "--all", "--replicas=0").returncode == 0
    platform = asked(lambda: world.nemo("platform", "status"), lambda done: done.returncode != 0)
    assert platform.returncode == 16 and "webhooks: " in platform.stderr, platform.stdout + platform.stderr
    held = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/held"]}}'
    assert world.exec("sh", "-c", f"echo '{held}' | kubectl -n nemo apply -f - && kubectl delete namespace nemo --wait=false").returncode == 0
    told = asked(lambda: world.ok("explain"), lambda done: "example.com/held" in done.stdout)
    assert "the namespace nemo is being deleted" in told.stdout and "example.com/held" in told.stdout, told.stdout
    assert "do: kubectl wait" in told.stdout, told.stdout
    assert world.exec("kubectl", "-n", "nemo", "patch", "configmap", "held", "--type=merge", "--patch", '{"metadata":{"finalizers":null}}').returncode == 0


def asked(ask: Callable[[], Done], enough: Callable[[Done], bool]) -> Done:
    """Asked again until the cluster says it: controllers need their time."""
    until = time.monotonic() + 120
    while True:
        done = ask()
        if enough(done) or time.monotonic() > until:
            return done


def without_notes(world: World) -> None:
    """What looks at the cluster finds it by its tags; what there is costs the same, whatever the settings say now."""
    (world.folder / ".nemo").rename(world.folder / "away")
    assert "nothing is wrong with" in world.ok("explain").stdout
    assert world.ok("lint", "--live").returncode == 0
    assert world.ok("test").stdout.startswith("ok "), "asked and answered"
    shutil.rmtree(world.folder / ".nemo", ignore_errors=True)
    (world.folder / "away").rename(world.folder / ".nemo")
    exists = json.loads(world.ok("status", "--nodes", "2", "--output", "json").stdout.splitlines()[-1])["exists"]
    assert any(resource["what"] == "EKS node group, 1 × p5en.48xlarge" for resource in exists), exists
