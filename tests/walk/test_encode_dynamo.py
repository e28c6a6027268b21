"""Pictures encoded by Dynamo's own encode workers: a model that they know, served as plain objects and as a graph, and what is said when they get nothing."""

from __future__ import annotations

import json

import pytest
from conftest import World

MODEL = ["--model", "cosmos-reason2-8b"]


def last(text: str) -> dict:
    return json.loads(text.splitlines()[-1])


def asked(world: World) -> dict[str, dict]:
    return {test["id"]: test for test in last(world.ok("test", *MODEL, "--output", "json").stdout)["tests"]}


@pytest.fixture(scope="module", autouse=True)
def three_nodes(world: World) -> None:
    world.admin("/_sandbox/quotas", {"L-417A185B": 576})
    settings = world.folder / "nemo.toml"
    settings.write_text("[gpu]\nnodes = 3\n" + settings.read_text())


def test_the_encode_worker_gets_the_picture(world: World) -> None:
    flags = [*MODEL, "--topology", "e-pd"]
    plan = last(world.ok("plan", "--to", "serve", *flags, "--output", "json").stdout)["plan"]
    notes = next(step for step in plan if step["step"] == "serve")["notes"]
    assert any(note.startswith("unverified: Dynamo's encode workers") for note in notes), notes
    world.ok("up", "--yes", "--to", "test", *flags)
    before = world.marks()
    assert "nothing to do" in world.ok("up", "--to", "test", *flags).stderr
    assert world.writes(before) == []
    picture = asked(world)["picture-encoded"]
    assert picture["verdict"] == "passed" and "finished 1 requests" in picture["got"], picture


def test_a_worker_that_encodes_itself_is_said_and_ends_with_16(world: World) -> None:
    kubectl = ["kubectl", "--namespace", "nemo"]
    found = json.loads(world.exec(*kubectl, "get", "deployment", "vllm-worker", "--output", "json").stdout)
    args = found["spec"]["template"]["spec"]["containers"][0]["args"]
    args.remove("--route-to-encoder")
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}]
    assert world.exec(*kubectl, "patch", "deployment", "vllm-worker", "--type", "json", "--patch", json.dumps(patch)).returncode == 0
    rolled = world.exec(*kubectl, "rollout", "status", "deployment/vllm-worker", "--timeout", "300s")
    assert rolled.returncode == 0, rolled.stdout + rolled.stderr
    done = world.nemo("test", *MODEL)
    assert done.returncode == 16, done.stdout + done.stderr
    assert "picture-encoded" in done.stderr and "the encode workers finished 0 requests" in done.stderr and "--route-to-encoder" in done.stderr, done.stderr


def test_encode_prefill_and_decode_apart(world: World) -> None:
    world.ok("up", "--yes", "--to", "test", *MODEL, "--topology", "e-p-d")
    tests = asked(world)
    assert tests["picture-encoded"]["verdict"] == tests["kv-moved"]["verdict"] == "passed", tests


def test_a_graph_of_dynamos_operator(world: World) -> None:
    world.ok("up", "--yes", "--to", "test", *MODEL, "--topology", "e-pd", "--as", "dgd-v1beta1")
    assert asked(world)["picture-encoded"]["verdict"] == "passed"


def test_nemotron_is_refused_with_the_reason(world: World) -> None:
    before = world.marks()
    done = world.nemo("up", "--yes", "--topology", "e-pd", "--as", "dgd-v1beta1")
    assert done.returncode == 10, done.stdout + done.stderr
    assert "knows no Nemotron model" in done.stderr, done.stderr
    assert world.writes(before) == []
