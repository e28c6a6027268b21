"""Every way to serve, one after the other in one world: nemo makes it, watches it until it serves, tests it, and takes the one before away."""

from __future__ import annotations

import json

import pytest
from conftest import World

OURS = ["--namespace", "nemo", "--selector", "nemo.dev/deployment=nemo", "--output", "name"]
KINDS = "deployments,leaderworkersets,dynamographdeployments"


def last(text: str) -> dict:
    return json.loads(text.splitlines()[-1])


def planned(world: World, *flags: str) -> dict:
    """What the plan says of the step serve."""
    plan = last(world.ok("plan", "--to", "serve", *flags, "--output", "json").stdout)["plan"]
    return next(step for step in plan if step["step"] == "serve")


def workloads(world: World) -> set[str]:
    """What carries our mark; not what controllers have made of it."""
    return {name.split("/")[0].split(".")[0] + "/" + name.split("/")[1] for name in world.exec("kubectl", "get", KINDS, *OURS).stdout.split()}


def serves(world: World, *flags: str) -> None:
    """Made, watched until it serves, tested; then there is nothing to do."""
    world.ok("up", "--yes", "--to", "test", *flags)
    before = world.marks()
    assert "nothing to do" in world.ok("up", "--to", "test", *flags).stderr
    assert world.writes(before) == []


def kv_moved(world: World) -> dict:
    tests = last(world.ok("test", "--output", "json").stdout)["tests"]
    return next(test for test in tests if test["id"] == "kv-moved")


@pytest.fixture(scope="module", autouse=True)
def two_nodes(world: World) -> None:
    world.admin("/_sandbox/quotas", {"L-417A185B": 384})
    settings = world.folder / "nemo.toml"
    settings.write_text("[gpu]\nnodes = 2\n" + settings.read_text())


def test_disaggregated_moves_keys_and_values_over_efa(world: World) -> None:
    serves(world, "--topology", "disaggregated")
    assert workloads(world) == {"deployment/frontend", "deployment/vllm-prefill", "deployment/vllm-decode"}
    moved = kv_moved(world)
    assert moved["verdict"] == "passed" and "over EFA" in moved["got"] and "0 B" not in moved["got"], moved


def test_what_moves_nothing_is_said_and_ends_with_16(world: World) -> None:
    switch = world.run_folder / "pods" / "faults" / "kv-moves-nothing"
    switch.touch()
    try:
        done = world.nemo("test")
        walked = world.nemo("up", "--yes", "--to", "test", "--topology", "disaggregated")
    finally:
        switch.unlink()
    for told in (done, walked):
        assert told.returncode == 16, told.stdout + told.stderr
        assert "1 of 5 tests failed: kv-moved" in told.stderr and "0 B by NIXL, 0 B over EFA" in told.stderr, told.stderr
        assert "makeXferReq" in told.stderr and "nemo up --topology aggregated" in told.stderr, told.stderr
    serves(world, "--topology", "disaggregated")


def test_a_replica_over_nodes_takes_the_place_of_what_was_there(world: World) -> None:
    plan = planned(world, "--topology", "pipeline-parallel")
    assert plan["notes"][0].startswith("pipeline-parallel as lws: a replica is a group of pods"), plan
    assert plan["verdict"] == "update" and "Deployment nemo/vllm-decode" in plan["why"] and "nothing serves until" in plan["why"], plan
    serves(world, "--topology", "pipeline-parallel")
    assert workloads(world) == {"deployment/frontend", "leaderworkerset/vllm-worker"}
    pods = world.exec("kubectl", "get", "pods", "--namespace", "nemo", "--selector", "app.kubernetes.io/name=vllm-worker", "--output", "name").stdout.split()
    assert sorted(pods) == ["pod/vllm-worker-0", "pod/vllm-worker-0-1"]


def test_experts_over_nodes(world: World) -> None:
    serves(world, "--topology", "expert-parallel")
    assert workloads(world) == {"deployment/frontend", "leaderworkerset/vllm-worker"}
    first = world.exec("kubectl", "get", "pod", "vllm-worker-0", "--namespace", "nemo", "--output", "jsonpath={.spec.containers[0].args}").stdout
    assert "--enable-expert-parallel" in first and "--data-parallel-address" in first, first


def test_a_graph_of_dynamos_operator(world: World) -> None:
    serves(world, "--topology", "disaggregated", "--as", "dgd-v1beta1")
    assert workloads(world) == {"dynamographdeployment/nemo"}
    assert kv_moved(world)["verdict"] == "passed"


def test_a_change_that_the_operator_refuses_is_announced_and_made_anew(world: World) -> None:
    flags = ["--topology", "aggregated", "--as", "dgd-v1beta1"]
    plan = planned(world, *flags)
    assert "removed and made anew" in plan["why"] and "components cannot be added after creation: worker" in plan["why"], plan
    assert "nothing serves until" in plan["why"], plan
    serves(world, *flags)
    serves(world, "--topology", "aggregated", "--as", "dgd-v1alpha1")
    assert workloads(world) == {"dynamographdeployment/nemo"}


def test_what_no_controller_makes_is_refused(world: World) -> None:
    before = world.marks()
    done = world.nemo("up", "--yes", "--topology", "pipeline-parallel", "--as", "dgd-v1beta1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Volcano" in done.stderr and "--as auto" in done.stderr, done.stderr
    assert world.writes(before) == []


def test_back_to_what_is_there_without_settings(world: World) -> None:
    assert planned(world)["notes"][1].startswith("1 of 2 GPU nodes will serve, and all are paid for"), "one replica of one node"
    serves(world)
    assert workloads(world) == {"deployment/frontend", "deployment/vllm-worker"}
