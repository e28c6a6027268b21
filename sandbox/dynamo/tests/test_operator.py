"""What the operator's stand-in makes of a DynamoGraphDeployment, without a cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from platform_operator import facts, multinode, status, workloads

IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa"
ENGINE = ["--model", "/m", "--tensor-parallel-size", "8"]


def component(name: str, kind: str, gpus: int = 0, args: list[str] | None = None, **more: Any) -> dict[str, Any]:
    main: dict[str, Any] = {"name": "main", "image": IMAGE}
    if args is not None:
        main |= {"command": ["python3", "-m", "dynamo.vllm"], "args": args}
    if gpus:
        main["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"name": name, "type": kind, "podTemplate": {"spec": {"containers": [main]}}, **more}


def graph(*components: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": "DynamoGraphDeployment", "metadata": {"name": "d", "namespace": "ns", "generation": 3}, "spec": {"components": list(components), **spec}}


def made(of: dict[str, Any], mark: str = "0123abcd") -> dict[tuple[str, str], Any]:
    return {(t["kind"], t["metadata"]["name"]): t for t in workloads.of(copy.deepcopy(of), mark, {"nvcr.io": "ngc"})}


def pod(thing: dict[str, Any]) -> dict[str, Any]:
    return thing["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value") for e in container["env"]}


def test_names_of_what_a_graph_becomes() -> None:
    found = made(graph(component("Frontend", "frontend"), component("Worker", "worker", 8, ENGINE)))
    assert [f"{kind} {name}" for kind, name in found] == [
        "ServiceAccount d-k8s-service-discovery", "Role d-k8s-service-discovery-role", "RoleBinding d-k8s-service-discovery-binding",
        "DynamoComponentDeployment d-frontend", "Deployment d-frontend", "Service d-frontend",
        "DynamoComponentDeployment d-worker-0123abcd", "Deployment d-worker-0123abcd", "Service d-worker-0123abcd",
    ]  # fmt: skip
    assert found["Service", "d-frontend"]["spec"]["ports"][0]["port"] == 8000
    assert found["Service", "d-worker-0123abcd"]["spec"]["ports"][0]["name"] == "system"


def test_a_frontend_needs_no_more_than_an_image() -> None:
    main = pod(made(graph(component("Frontend", "frontend")))["Deployment", "d-frontend"])["containers"][0]
    assert main["command"] + main["args"] == ["python3", "-m", "dynamo.frontend"]
    assert main["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"} and "startupProbe" not in main
    assert env(main)["DYN_NAMESPACE_PREFIX"] == "ns-d" and env(main)["DYN_HTTP_PORT"] == "8000"


def test_a_worker_gets_its_probes_environment_and_shared_memory() -> None:
    spec = pod(made(graph(component("w", "worker", 8, ENGINE)))["Deployment", "d-w-0123abcd"])
    main = spec["containers"][0]
    assert main["startupProbe"]["failureThreshold"] * main["startupProbe"]["periodSeconds"] == 7200
    assert main["livenessProbe"]["failureThreshold"] == 1
    assert env(main)["DYN_NAMESPACE_WORKER_SUFFIX"] == "0123abcd" and env(main)["DYN_SYSTEM_PORT"] == "9090"
    assert spec["volumes"] == [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]
    assert spec["imagePullSecrets"] == [{"name": "ngc"}] and spec["securityContext"] == {"fsGroup": 1000}
    assert spec["serviceAccountName"] == "d-k8s-service-discovery" and spec["terminationGracePeriodSeconds"] == 60


def test_what_is_given_replaces_and_env_merges() -> None:
    worker = component("w", "worker", 8, ENGINE, sharedMemorySize="64Gi")
    main = worker["podTemplate"]["spec"]["containers"][0]
    main |= {"livenessProbe": {"tcpSocket": {"port": 1}}, "env": [{"name": "B", "value": "mine"}, {"name": "DYN_SYSTEM_PORT", "value": "9"}]}
    main["volumeMounts"] = [{"name": "mine", "mountPath": "/dev/shm"}, {"name": "claim", "mountPath": "/models"}]
    found = made(graph(worker, env=[{"name": "A", "value": "all"}, {"name": "B", "value": "all"}]))
    spec = pod(found["Deployment", "d-w-0123abcd"])
    main = spec["containers"][0]
    assert main["livenessProbe"] == {"tcpSocket": {"port": 1}}
    assert (env(main)["A"], env(main)["B"], env(main)["DYN_SYSTEM_PORT"]) == ("all", "mine", "9")
    assert [m["name"] for m in main["volumeMounts"]] == ["claim", "shared-memory"], "a mount at /dev/shm is replaced"
    assert {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}} in spec["volumes"]
    assert spec["volumes"][0]["emptyDir"]["sizeLimit"] == "64Gi"


def test_the_workers_hash_is_of_what_they_run_and_not_of_how_many() -> None:
    one = graph(component("f", "frontend"), component("w", "worker", 8, ENGINE, replicas=1))
    more, other, front = copy.deepcopy(one), copy.deepcopy(one), copy.deepcopy(one)
    more["spec"]["components"][1]["replicas"] = 3
    other["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0]["args"].append("--trust-remote-code")
    front["spec"]["components"][0]["replicas"] = 2
    assert facts.worker_hash(one) == facts.worker_hash(more) == facts.worker_hash(front) != facts.worker_hash(other)


def both(of: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    group = made(of)["LeaderWorkerSet", "d-w-0123abcd-0"]
    template = group["spec"]["leaderWorkerTemplate"]
    return group, template["leaderTemplate"]["spec"], template["workerTemplate"]["spec"]


def test_an_engine_over_two_nodes_is_a_leader_worker_set() -> None:
    of = graph(component("w", "worker", 8, [*ENGINE, "--pipeline-parallel-size", "2"], multinode={"nodeCount": 2}, replicas=3))
    group, leader, worker = both(of)
    assert group["spec"]["replicas"] == 3 and group["spec"]["leaderWorkerTemplate"]["size"] == 2
    common = ["--distributed-executor-backend", "mp", "--nnodes", "2", "--master-addr", "$(LWS_LEADER_ADDRESS)", "--master-port", "29500", "--node-rank"]
    assert leader["containers"][0]["args"][6:] == [*common, "0"]
    assert worker["containers"][0]["args"][6:] == [*common, "$(LWS_WORKER_INDEX)", "--headless"]
    assert "readinessProbe" in leader["containers"][0]
    assert not {"readinessProbe", "livenessProbe", "startupProbe"} & set(worker["containers"][0])
    assert worker["initContainers"][0]["name"] == "wait-for-leader-mp" and "initContainers" not in leader
    found = made(of)
    assert found["Service", "d-w-0123abcd"]["spec"]["selector"]["role"] == "leader" and ("ConfigMap", "d-wait-leader-script") in found


@pytest.mark.parametrize("args", [["--tensor-parallel-size=16"], ["-tp", "16"]])
def test_sizes_in_another_spelling_are_not_seen_and_the_pod_stays_alone(args: list[str]) -> None:
    _, leader, worker = both(graph(component("w", "worker", 8, args, multinode={"nodeCount": 2})))
    assert leader["containers"][0]["args"] == worker["containers"][0]["args"] == args


def test_more_replicas_of_the_engine_than_a_node_holds() -> None:
    args = ["--tensor-parallel-size", "4", "--data-parallel-size", "4"]
    _, leader, worker = both(graph(component("w", "worker", 8, args, multinode={"nodeCount": 2})))
    assert "--data-parallel-hybrid-lb --data-parallel-size-local 2 --data-parallel-start-rank 0" in leader["containers"][0]["args"][0]
    assert "--data-parallel-start-rank $((2 * $LWS_WORKER_INDEX))" in worker["containers"][0]["args"][0]


def test_ray_on_demand() -> None:
    of = graph(component("w", "worker", 8, [*ENGINE, "--pipeline-parallel-size", "2"], multinode={}))
    of["metadata"]["annotations"] = {multinode.EXECUTOR: "ray"}
    _, leader, worker = both(of)
    assert leader["containers"][0]["args"][0].startswith("ray start --head --port=6379 && python3 -m dynamo.vllm")
    assert worker["containers"][0]["args"] == ["ray start --address=$(LWS_LEADER_ADDRESS):6379 --block"]


def test_what_cannot_be_made_says_why() -> None:
    with pytest.raises(multinode.Wrong, match="backendFramework is sglang, but its command runs dynamo.vllm"):
        made(graph(component("w", "worker", 8, ENGINE, multinode={}), backendFramework="sglang"))
    with pytest.raises(multinode.Wrong, match="need both command and args"):
        made(graph(component("w", "worker", 8, multinode={})))


def live(ready: int, **more: Any) -> dict[tuple[str, str], Any]:
    said = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "observedGeneration": 1, **more}
    return {("Deployment", "d-w-h"): {"metadata": {"generation": 1}, "status": said}}


def test_status_names_what_is_not_ready() -> None:
    of = graph(component("w", "worker", 8, ENGINE))
    waiting = status.of(of, "h", live(0), False)
    assert waiting["state"] == "pending" and waiting["conditions"][0]["reason"] == "some_resources_are_not_ready"
    assert "Deployment d-w-h: 0 of 1 replicas are ready" in waiting["conditions"][0]["message"]
    assert status.of(of, "h", {}, False)["conditions"][0]["message"].endswith("Deployment d-w-h: not found")
    assert "spec not yet processed" in status.of(of, "h", live(1, observedGeneration=0), False)["conditions"][0]["message"]


def test_status_is_ready_for_the_generation_that_it_saw() -> None:
    done = status.of(graph(component("w", "worker", 8, ENGINE)), "h", live(1), False)
    assert done["state"] == "successful" and done["observedGeneration"] == done["conditions"][0]["observedGeneration"] == 3
    assert done["components"]["w"]["runtimeNamespace"] == "ns-d-h"
    assert status.of(graph(component("w", "worker", 8, ENGINE)), "h", live(1), True)["conditions"][0]["reason"] == "rolling_update_in_progress"


def test_a_rolling_update_begins_and_ends() -> None:
    of = graph(component("w", "worker", 8, ENGINE))
    assert "rollingUpdate" not in status.of(of, "h", live(1), False)
    of["status"] = status.of(of, "h", live(1), True)
    assert of["status"]["rollingUpdate"]["phase"] == "InProgress" and of["status"]["state"] == "pending"
    done = status.of(of, "h", live(1), False)["rollingUpdate"]
    assert done["phase"] == "Completed" and done["updatedComponents"] == ["w"] and done["startTime"] == of["status"]["rollingUpdate"]["startTime"]


def test_a_failure_keeps_the_generation_that_was_seen_before() -> None:
    of = graph(component("w", "worker", 8, ENGINE)) | {"status": {"observedGeneration": 2, "state": "successful"}}
    said = status.failed(of, "failed_to_reconcile_the_resources", "no")
    assert said["state"] == "failed" and said["observedGeneration"] == 2 and said["conditions"][0]["observedGeneration"] == 3
