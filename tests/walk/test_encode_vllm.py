"""Pictures encoded by vLLM's own workers apart from the rest: made, watched until it serves, proven by what these workers count, and said where they do nothing."""

from __future__ import annotations

import pytest
from conftest import World
from test_forms import last, planned, serves, workloads

FORGETS = """
- target: {kind: Deployment, name: vllm-worker}
  patch:
  - {op: test, path: /spec/template/spec/initContainers/1/args/3, value: --ec-connector=ec-example}
  - {op: remove, path: /spec/template/spec/initContainers/1/args/3}
"""


def results(world: World) -> dict[str, dict]:
    return {test["id"]: test for test in last(world.ok("test", "--output", "json").stdout)["tests"]}


@pytest.fixture(scope="module", autouse=True)
def three_nodes(world: World) -> None:
    world.admin("/_sandbox/quotas", {"L-417A185B": 576})
    settings = world.folder / "nemo.toml"
    settings.write_text("[gpu]\nnodes = 3\n" + settings.read_text())


def test_encode_prefill_and_decode_each_by_workers_of_their_own(world: World) -> None:
    plan = world.ok("plan", "--topology", "e-p-d")
    assert "encode_worker (vllm)" in plan.stdout + plan.stderr, "never run on GPUs, and the plan says so"
    serves(world, "--topology", "e-p-d")
    assert workloads(world) == {"deployment/frontend", "deployment/vllm-encode", "deployment/vllm-prefill", "deployment/vllm-decode"}
    tests = results(world)
    assert tests["picture-encoded"]["verdict"] == "passed" and "finished 1 requests" in tests["picture-encoded"]["got"], tests
    assert tests["kv-moved"]["verdict"] == "passed" and "over EFA" in tests["kv-moved"]["got"], tests
    pods = world.exec("kubectl", "get", "pods", "--namespace", "nemo", "--selector", "app.kubernetes.io/name=vllm-encode", "--output", "jsonpath={.items[*].spec.containers[*].name}")
    assert pods.stdout.split() == [f"encoder-{gpu}" for gpu in range(8)], "an engine for each GPU of the node"


def test_encode_apart_from_workers_that_do_the_rest(world: World) -> None:
    plan = planned(world, "--topology", "e-pd")
    assert "Deployment nemo/vllm-decode" in plan["why"] and "nothing serves until" in plan["why"], plan
    serves(world, "--topology", "e-pd")
    assert workloads(world) == {"deployment/frontend", "deployment/vllm-encode", "deployment/vllm-worker"}
    tests = results(world)
    assert tests["picture-encoded"]["verdict"] == "passed" and "kv-moved" not in tests, tests


def test_pictures_that_go_past_the_encoders_are_said_and_end_with_16(world: World) -> None:
    """A router that was told of no encoders: every answer is right, since the engine encodes itself what it does not find."""
    (world.folder / "forget.yaml").write_text(FORGETS)
    done = world.nemo("up", "--yes", "--to", "test", "--topology", "e-pd", "--patches", "forget.yaml")
    assert done.returncode == 16, done.stdout + done.stderr
    assert "1 of 5 tests failed: picture-encoded" in done.stderr and '"red", and the encode workers finished 0 requests' in done.stderr, done.stderr
    assert "nemo up --topology aggregated" in done.stderr, done.stderr


def test_dynamo_comes_back(world: World) -> None:
    serves(world)
    assert workloads(world) == {"deployment/frontend", "deployment/vllm-worker"}
    assert "picture-encoded" not in results(world)
