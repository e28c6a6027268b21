import json
from pathlib import Path
from typing import Any

from measure.path import Interval
from measure.servers import Graphs, Pods, kube_writes, part_of_pod


def pod(name: str, namespace: str = "nemo", job: bool = False, ready: bool = False, **status: Any) -> dict[str, Any]:
    owners = [{"kind": "Job", "name": name}] if job else [{"kind": "ReplicaSet", "name": name}]
    return {
        "metadata": {"uid": name, "name": name, "namespace": namespace, "ownerReferences": owners},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}], **status},
    }


def test_a_pod_belongs_to_a_part() -> None:
    assert part_of_pod(pod("nemo-weights-0-x", job=True)) == "pods weights"
    worker = pod("dynamo-5d-x")
    worker["metadata"]["labels"] = {"nvidia.com/dynamo-component-type": "worker"}
    assert part_of_pod(worker) == "pods serve"
    assert part_of_pod(pod("helm-lws-x", job=True)) == "pods platform"
    assert part_of_pod(pod("coredns-x", namespace="kube-system")) is None
    assert part_of_pod(pod("nvidia-device-plugin-x", namespace="kube-system")) == "pods platform"


def test_a_server_pod_is_done_when_ready_and_a_job_when_it_is_over() -> None:
    pods = Pods("")
    pods.note(pod("nemo-bench-x", job=True, phase="Pending"), 1)
    pods.note(pod("nemo-bench-x", job=True, phase="Running", startTime="t", ready=True), 2)
    pods.note(pod("nemo-bench-x", job=True, phase="Succeeded", startTime="t"), 9)
    pods.note(pod("operator", phase="Running", startTime="t"), 3)
    pods.note(pod("operator", phase="Running", startTime="t", ready=True), 5)
    pods.note(pod("operator", phase="Running", startTime="t"), 6)
    assert pods.intervals() == [Interval("pods bench", "nemo/nemo-bench-x", 2, 9), Interval("pods platform", "nemo/operator", 3, 5)]


def test_a_graph_is_done_when_its_operator_has_said_so_of_this_very_generation() -> None:
    def graph(generation: int, ready: str, of: int) -> dict[str, Any]:
        said = [{"type": "Ready", "status": ready, "observedGeneration": of}]
        return {"metadata": {"uid": "g", "name": "nemo", "generation": generation}, "status": {"conditions": said}}

    graphs = Graphs("")
    for now, seen in enumerate([graph(1, "False", 1), graph(2, "True", 1), graph(2, "False", 2)], 1):
        graphs.note(seen, now)
    assert graphs.intervals() == []
    graphs.note(graph(2, "True", 2), 8)
    assert graphs.intervals() == [Interval("pods serve", "graph nemo", 1, 8)]


def test_only_writes_of_people_count(tmp_path: Path) -> None:
    def line(user: str, verb: str, resource: str) -> str:
        return json.dumps({"user": {"username": user}, "verb": verb, "objectRef": {"resource": resource, "namespace": "nemo", "name": "x"}}) + "\n"

    log, me = tmp_path / "audit.log", "arn:aws:iam::123456789012:user/me"
    log.write_text(line(me, "patch", "services") + line(me, "get", "pods") + line(me, "create", "selfsubjectaccessreviews"))
    found, offset = kube_writes(log)
    assert found == {"patch services nemo/x": 1}
    with log.open("a") as more:
        more.write(line("system:serviceaccount:nemo:x", "patch", "pods") + line(me, "delete", "jobs"))
    assert kube_writes(log, offset)[0] == {"delete jobs nemo/x": 1}
