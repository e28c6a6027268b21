"""The main job, in the order of a life: up, up again, look, lose the notes, connect, clean up."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from conftest import BINARY, ROOT, SANDBOX, World

STEPS = ["network", "cluster", "system-nodes", "gpu-nodes", "images", "filesystem", "platform", "storage", "weights", "serve", "test", "bench"]


@pytest.fixture(scope="module")
def foreign(world: World) -> str:
    """Things of somebody else, beside ours and named like ours, that every test leaves as they are: a program that lists them."""
    made = world.exec(sys.executable, "-c", FOREIGN + MAKE)
    assert made.returncode == 0, made.stderr
    return world.exec(sys.executable, "-c", FOREIGN + LIST).stdout


FOREIGN = """
import boto3, json
ec2, ecr, iam, fsx = (boto3.client(s) for s in ("ec2", "ecr", "iam", "fsx"))
def everything():
    vpcs = [v["VpcId"] for v in ec2.describe_vpcs(Filters=[{"Name": "tag:owner", "Values": ["else"]}])["Vpcs"]]
    subnets = [s["SubnetId"] for s in ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": vpcs or ["none"]}])["Subnets"]]
    repositories = [r["repositoryName"] for r in ecr.describe_repositories()["repositories"] if "else" in r["repositoryName"]]
    roles = [r["RoleName"] for r in iam.list_roles()["Roles"] if "else" in r["RoleName"]]
    systems = [f["FileSystemId"] for f in fsx.describe_file_systems()["FileSystems"] if {"Key": "nemo:deployment", "Value": "else"} in f.get("Tags", [])]
    return dict(vpcs=vpcs, subnets=subnets, repositories=repositories, roles=roles, systems=systems)
"""
MAKE = """
tags = [{"Key": "owner", "Value": "else"}, {"Key": "nemo:deployment", "Value": "else"}]
vpc = ec2.create_vpc(CidrBlock="10.99.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])["Vpc"]["VpcId"]
subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.99.0.0/20", AvailabilityZone="us-east-2b")["Subnet"]["SubnetId"]
ecr.create_repository(repositoryName="else/nemo")
iam.create_role(RoleName="nemo-else", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}))
fsx.create_file_system(FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet], Tags=tags, LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250})
"""
LIST = "print(json.dumps(everything(), sort_keys=True))\n"


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_no_terminal_and_no_yes_is_exit_2_and_nothing_made(world: World) -> None:
    before = world.marks()
    done = world.nemo("up", "--instance", "p5en.48xlarge")
    assert done.returncode == 2, done.stderr
    assert "--yes" in done.stderr
    assert "an hour" in done.stderr
    assert world.writes(before) == []


def test_ctrl_c_says_what_exists_and_the_next_walk_goes_on(world: World, foreign: str) -> None:
    with subprocess.Popen(world.command(BINARY, "up", "--yes", "--output", "json"), cwd=world.folder, env=world.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        assert up.stdout and up.stderr
        for line in up.stdout:
            if json.loads(line).get("step") == "cluster":
                break
        up.send_signal(signal.SIGINT)
        told = events(up.stdout.read())
        said = up.stderr.read()
    assert up.returncode == 130, said
    assert told[-1]["failure"]["exit_code"] == 130
    assert any(left["what"].startswith("EKS cluster") for left in told[-1]["failure"]["left"]), told[-1]
    assert "what exists now" in said and "nemo cleanup" in said


def test_up_from_nothing_to_numbers(world: World) -> None:
    done = world.ok("up", "--instance", "p5en.48xlarge", "--yes", "--output", "json")
    told = events(done.stdout)
    published = {name: json.loads((ROOT / "schemas" / f"{name}.json").read_text()) for name in ("event", "up")}
    for line in told[:-1]:
        jsonschema.validate(line, published["event"])
    jsonschema.validate(told[-1], published["up"])
    result = told[-1]
    assert result["kind"] == "result"
    assert result["bench"]["errors"] == 0
    assert result["bench"]["requests"] > 0
    assert 0 < result["bench"]["ttft_ms_p50"] <= result["bench"]["ttft_ms_p95"]
    assert result["bench"]["itl_ms_p50"] > 0
    assert result["bench"]["output_tokens_per_second"] > 0
    assert result["usd_per_hour"] > 60
    assert "curl" in result["endpoint"]["curl"]
    finished = [event["step"] for event in told if event["kind"] == "finished"]
    assert sorted(finished) == sorted(STEPS)


def test_up_again_writes_nothing(world: World) -> None:
    before = world.marks()
    began = time.monotonic()
    done = world.ok("up", "--instance", "p5en.48xlarge")  # not even --yes: there is nothing to ask
    assert "nothing to do" in done.stderr
    assert world.writes(before) == []
    assert time.monotonic() - began < 30


def test_the_api_server_takes_every_document_strictly(world: World) -> None:
    """tests/strict.rs, with the cluster that it needs."""
    environment = subprocess.run([SANDBOX, "env", "--name", world.name], capture_output=True, text=True, check=True).stdout
    command = f"{environment}\ncargo test --quiet --locked --test strict -- --ignored"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout, done.stdout


def test_kubectl_works_through_the_entry_that_nemo_wrote(world: World) -> None:
    done = world.exec("kubectl", "get", "nodes", "-o", "name")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3


def test_every_answer_is_as_its_schema_says(world: World) -> None:
    def answer(schema: str, *command: str) -> dict:
        told = events(world.ok(*command, "--output", "json").stdout)[-1]
        jsonschema.validate(told, json.loads((ROOT / "schemas" / f"{schema}.json").read_text()))
        return told

    answer("config-show", "config", "show")
    uris = [image["uri"] for image in answer("image-list", "image", "list")["images"]]
    assert len(uris) > 9 and uris == sorted(uris)
    assert answer("weights-status", "weights", "status")["state"] == "ready"
    parts = {part["part"]: part for part in answer("platform-status", "platform", "status")["parts"]}
    assert parts["chart dynamo-platform"]["there"] == parts["chart dynamo-platform"]["wanted"]
    assert parts["definition dynamographdeployments.nvidia.com"]["there"] == "v1beta1, v1alpha1"
    late = [part["part"] for part in parts.values() if part["state"] != "ready"]
    assert late == ["definition podcliquesets.grove.io", "definition queues.scheduling.run.ai"], parts


def test_connect_and_the_curl_line(world: World) -> None:
    curl = events(world.ok("up", "--instance", "p5en.48xlarge", "--output", "json").stdout)[-1]["endpoint"]["curl"]
    with subprocess.Popen(world.command(BINARY, "connect"), cwd=world.folder, env=world.env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as connect:
        try:
            assert connect.stdout
            for line in connect.stdout:
                if "127.0.0.1:8000" in line:
                    break
            for _ in range(2):
                answered = world.exec("sh", "-c", f"{curl} --no-progress-meter")
                assert "42" in json.loads(answered.stdout)["choices"][0]["message"]["content"], answered.stdout + answered.stderr
                # The pod goes; who asks next is held until its successor is ready.
                gone = world.exec("kubectl", "delete", "pod", "--namespace", "nemo", "--selector", "app.kubernetes.io/name=frontend")
                assert gone.returncode == 0 and "deleted" in gone.stdout, gone.stderr
        finally:
            connect.terminate()


def test_what_others_changed_is_told_with_whom_and_never_overwritten(world: World) -> None:
    frontend = ["--namespace", "nemo", "deployment/frontend"]
    assert world.exec("kubectl", "scale", *frontend, "--replicas=2").returncode == 0
    done = world.nemo("up", "--yes")
    assert done.returncode == 13, done.stdout + done.stderr
    assert ".spec.replicas" in done.stderr and "kubectl" in done.stderr, done.stderr
    assert world.exec("kubectl", "scale", *frontend, "--replicas=1").returncode == 0
    # A field that somebody removed is put back: nobody else owns it.
    assert world.exec("kubectl", "set", "env", *frontend, "DYN_DISCOVERY_BACKEND-").returncode == 0
    world.ok("up", "--yes")
    listed = world.exec("kubectl", "set", "env", *frontend, "--list")
    assert "DYN_DISCOVERY_BACKEND=" in listed.stdout, listed.stdout
    before = world.marks()
    world.ok("up", "--yes")
    assert world.writes(before) == []


def test_wrong_answers_fail_and_the_next_up_asks_again(world: World) -> None:
    switch = world.run_folder / "pods" / "faults" / "wrong-answers"
    switch.touch()
    try:
        done = world.nemo("test")
    finally:
        switch.unlink()
    assert done.returncode == 16, done.stdout + done.stderr
    assert 'expected "42" in it, got "I do not know that."' in done.stderr
    before = world.marks()
    told = events(world.ok("up", "--instance", "p5en.48xlarge", "--yes", "--output", "json").stdout)
    assert [event["step"] for event in told if event["kind"] == "finished" and event["changed"]] == ["test"]
    assert world.writes(before) == []


def test_what_users_of_the_api_rely_on(world: World) -> None:
    done = world.ok("test", "endpoint", "--junit", "results.xml", "--ctrf", "results.json", "--output", "json")
    tests = {test["id"]: test for test in events(done.stdout)[-1]["tests"]}
    both = [f"{test}{manner}" for test in ("reasoning", "tool-call", "json-schema", "stop") for manner in ("", "-streamed")]
    refused = [f"refused-{what}" for what in ("length", "value", "base64", "metadata")]
    expected = {"models", "health", "completion", "chat", "chat-streamed", *both, "logprobs", "repeated", "long-context", *refused, "after-refusals", "picture", "picture-large"}
    assert set(tests) == expected
    assert all(tests[id]["got"].startswith("HTTP 400") for id in refused), tests
    assert 'tests="23" failures="0"' in (world.folder / "results.xml").read_text()
    summary = json.loads((world.folder / "results.json").read_text())["results"]["summary"]
    assert (summary["tests"], summary["passed"], summary["failed"]) == (23, 23, 0)
    switch = world.run_folder / "pods" / "faults" / "wrong-answers"
    switch.touch()
    try:
        wrong = world.nemo("test", "endpoint", "--junit", "results.xml")
    finally:
        switch.unlink()
    assert wrong.returncode == 16 and "nemo explain N86" in wrong.stderr, wrong.stdout + wrong.stderr
    assert "FAIL tool-call: " in wrong.stdout and "ok   refused-metadata: HTTP 400" in wrong.stdout, wrong.stdout
    assert '<failure message="chat: asked' in (world.folder / "results.xml").read_text()


def test_a_benchmark_outlives_its_pod_and_who_asked_for_it(world: World) -> None:
    again = f"{BINARY} bench --set bench.seed=43 --yes"
    begin = f"{again} --progress lines > said 2>&1 & nemo=$!; until grep -q 'requests: ' said; do kill -0 $nemo || exit 1; sleep 0.2; done; kill -9 $nemo"
    begun = world.exec("sh", "-c", begin)
    assert begun.returncode == 0, (world.folder / "said").read_text()
    ours = ["--namespace", "nemo", "--selector", "app.kubernetes.io/name=bench"]
    gone = world.exec("kubectl", "delete", "pod", *ours, "--field-selector", "status.phase=Running")
    assert gone.returncode == 0 and "deleted" in gone.stdout, gone.stderr
    told = events(world.exec("sh", "-c", f"{again} --output json").stdout)
    assert told[-1]["bench"]["errors"] == 0
    run = next((world.run_folder / "shared").glob(f"fs-*/runs/{told[-1]['bench']['of']}"))
    assert {path.name for path in run.iterdir()} == {"attempt-1", "attempt-2", "result.json"}
    assert told[-1]["bench"]["folder"].endswith("attempt-2")
    result = json.loads((run / "result.json").read_text())
    assert "@sha256:" in result["served"]["containers"]["vllm-worker/worker"]["image"]


PATCHES = """# ours
- target: {kind: Deployment, name: vllm-worker}
  patch:
  - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: OURS, value: "no"}}
"""
NO_EFA = """- target: {kind: Deployment, name: vllm-worker}
  patch:
  - {op: remove, path: /spec/template/spec/containers/0/resources/requests/vpc.amazonaws.com~1efa}
  - {op: remove, path: /spec/template/spec/containers/0/resources/limits/vpc.amazonaws.com~1efa}
"""


def test_an_overlay_is_shown_applied_and_rolled_back(world: World) -> None:
    before = world.marks()
    assert "no difference" in world.ok("diff").stdout
    for text, code, words in [
        (NO_EFA, 16, ["error N18", "worker.yaml is made with patches.yaml:1"]),
        (PATCHES.replace("vllm-worker", "worker"), 10, ["patches.yaml:2: there is no Deployment worker to patch", "Deployment vllm-worker"]),
        (PATCHES.replace('"no"', "no"), 10, ["patches.yaml:4: no without quotes"]),
    ]:
        (world.folder / "patches.yaml").write_text(text)
        done = world.nemo("apply", "--patches", "patches.yaml", "--yes")
        assert done.returncode == code, done.stdout + done.stderr
        assert all(word in done.stderr for word in words), done.stderr
    (world.folder / "patches.yaml").write_text(PATCHES)
    shown = world.nemo("diff", "--patches", "patches.yaml", "--output", "json")
    assert shown.returncode == 20, shown.stdout + shown.stderr
    answer = events(shown.stdout)[0]
    jsonschema.validate(answer, json.loads((ROOT / "schemas" / "diff.json").read_text()))
    [one] = answer["differences"]
    assert one["object"] == "Deployment nemo/vllm-worker" and "+        - name: OURS\n" in one["diff"], one
    assert world.writes(before) == []
    [kept, *_] = events(world.ok("rollback", "--list", "--output", "json").stdout)[-1]["revisions"]
    assert kept["there"] and (kept["topology"], kept["form"]) == ("aggregated", "deployments"), kept
    planned = world.nemo("plan", "--patches", "patches.yaml", "--check")
    assert planned.returncode == 20 and "nothing serves until the new workers have loaded" in re.sub(r"\s+", " ", planned.stdout), planned.stdout
    world.ok("apply", "--patches", "patches.yaml", "--yes")
    assert "OURS=no" in world.exec("kubectl", "set", "env", "--namespace", "nemo", "deployment/vllm-worker", "--list").stdout
    before = world.marks()
    assert world.nemo("rollback").returncode == 2
    assert world.writes(before) == []
    done = world.ok("rollback", "--yes")
    assert f"back to revision {kept['revision']}" in done.stderr, done.stderr
    assert "OURS" not in world.exec("kubectl", "set", "env", "--namespace", "nemo", "deployment/vllm-worker", "--list").stdout
    listed = events(world.ok("rollback", "--list", "--output", "json").stdout)[-1]
    jsonschema.validate(listed, json.loads((ROOT / "schemas" / "revisions.json").read_text()))
    newest = kept["revision"] + 2
    assert [(one["revision"], one["there"]) for one in listed["revisions"][:2]] == [(newest, True), (newest - 1, False)], listed
    assert "no difference" in world.ok("diff").stdout
    planned = world.nemo("plan", "--patches", "patches.yaml").stdout
    assert f"these settings were rolled back from, to revision {newest}" in re.sub(r"\s+", " ", planned), planned


def test_status_finds_it_again_without_notes(world: World) -> None:
    notes = world.folder / ".nemo" / "nemo.toml"
    text = notes.read_text()
    assert not re.search("hf_sandbox|wJalrXUtnFEMI", text)
    notes.rename(notes.with_suffix(".away"))
    done = world.ok("status", "--output", "json")
    answer = events(done.stdout)[-1]
    assert answer["noted"] is False
    assert {step["step"]: step["verdict"] for step in answer["steps"]}["cluster"] == "keep"
    assert any(resource["what"].startswith("EKS cluster") for resource in answer["exists"])
    notes.with_suffix(".away").rename(notes)


def test_cleanup_keeps_what_others_made_in_our_cluster(world: World) -> None:
    theirs = ["configmap", "bobs-data", "--namespace", "nemo"]
    assert world.exec("kubectl", "create", *theirs, "--from-literal=a=b").returncode == 0
    done = world.nemo("cleanup", "--yes")
    assert done.returncode == 13, done.stdout + done.stderr
    assert "bobs-data" in done.stderr and "what it stands on stays, too" in done.stderr, done.stderr
    assert world.exec("kubectl", "get", *theirs).returncode == 0
    exists = {(resource["what"], resource["id"]) for resource in events(world.ok("status", "--output", "json").stdout)[-1]["exists"]}
    # What costs most goes all the same.
    assert ("EKS cluster", "nemo") in exists and "gpu" not in {name for _, name in exists}, exists
    assert world.exec("kubectl", "delete", *theirs).returncode == 0


def test_cleanup_takes_ours_and_nothing_else(world: World, foreign: str) -> None:
    assert [len(ids) for ids in json.loads(foreign).values()] == [1] * 5, foreign
    done = world.ok("cleanup", "--yes")
    assert "nothing of" in done.stdout
    assert world.exec(sys.executable, "-c", FOREIGN + LIST).stdout == foreign
    assert events(world.ok("status", "--output", "json").stdout)[-1]["exists"] == []
    assert not (world.folder / ".nemo" / "nemo.toml").exists()
    again = world.ok("cleanup", "--yes")
    assert "nothing of" in again.stdout
