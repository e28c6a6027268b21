"""DynamoGraphDeployments: taken or refused by the API server, made by the operator's stand-in, served by the real Dynamo runtime."""

from __future__ import annotations

import json

import pytest
from conftest import RUN, answered

LIBFABRIC = {"kv_connector_extra_config": {"backends": ["LIBFABRIC"]}}
RUNTIME = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa"
QUESTION = {"model": "super", "messages": [{"role": "user", "content": "What is 17 + 25? Answer with the number only."}], "chat_template_kwargs": {"enable_thinking": False}}


def component(name: str, kind: str, gpus: int = 0, **more) -> dict:
    args = more.pop("args", None)
    main = {"name": "main", "image": RUNTIME, **({"command": ["python3", "-m", "dynamo.vllm"], "args": args} if args else {})}
    if gpus:
        main["resources"] = {"limits": {"nvidia.com/gpu": str(gpus), "vpc.amazonaws.com/efa": str(2 * gpus)}}
    if kind == "frontend":  # a clock of 100 leaves the injected liveness probe three seconds, and a busy machine starts no Python in that
        main["startupProbe"] = {"httpGet": {"path": "/live", "port": "http"}, "failureThreshold": 60}
    spec = {"tolerations": [{"operator": "Exists"}], "containers": [main]}
    return {"name": name, "type": kind, "replicas": 1, "podTemplate": {"spec": spec}, **more}


def engine(model: str, *more: str, tp: int = 4) -> list[str]:
    return ["--model", model, "--served-model-name", "super", "--trust-remote-code", "--tensor-parallel-size", str(tp), "--dyn-reasoning-parser", "nemotron3", *more]


def graph(name: str, *components: dict, **spec) -> dict:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": meta, "spec": {"backendFramework": "vllm", "components": list(components), **spec}}


def put(kube, thing: dict, *more: str):
    return kube.run("apply", "--server-side", "--validate=strict", "-f", "-", *more, stdin=json.dumps(thing))


def made(kube, thing: dict) -> None:
    done = put(kube, thing)
    assert done.returncode == 0, done.stderr


def serves(kube, name: str, limit: float = 90) -> dict:
    """Ready is said of this very generation."""

    def look():
        found = kube.get("dgd", name)
        ready = [c for c in (found.get("status") or {}).get("conditions", []) if c["type"] == "Ready" and c["status"] == "True"]
        return ready and ready[0]["observedGeneration"] == found["metadata"]["generation"] and found

    return kube.wait(look, limit)


def ask(kube, web, name: str) -> str:
    address = kube.get("service", f"{name}-frontend")["spec"]["clusterIP"]
    kube.wait(lambda: [m["id"] for m in web.get(f"http://{address}:8000/v1/models").json()["data"]] == ["super"])
    return web.post(f"http://{address}:8000/v1/chat/completions", json=QUESTION, timeout=60).json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("wrong", "said"), [
    (lambda c: c["podTemplate"]["spec"]["containers"][0].update(startupProbe={"httpGet": {"path": "/live", "port": 1}, "failureTreshold": 3}), "failureTreshold: field not declared in schema"),
    (lambda c: c["podTemplate"]["spec"].update(affinity={"nodeAfinity": {}}), "nodeAfinity: field not declared in schema"),
    (lambda c: c["podTemplate"]["spec"]["containers"][0].update(resources={"limits": {"cpu": ["2"]}}), "must be of type integer,string"),
    (lambda c: c.update(type="wurker"), 'Unsupported value: "wurker"'),
    (lambda c: c.update(name="FRONTEND"), "component names must be unique, ignoring case"),
    (lambda c: c.update(replicas=1, minAvailable=2), "minAvailable must not be greater than replicas"),
])  # fmt: skip
def test_a_wrong_field_is_refused_by_name_however_deep_it_is(operator, wrong, said):
    worker = component("worker", "worker", 8)
    wrong(worker)
    done = put(operator, graph("wrong", component("frontend", "frontend"), worker), "--dry-run=server")
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize(("wrong", "said"), [
    (lambda c: c["podTemplate"]["spec"]["containers"][0].update(image="nvcr.io/nvidia/ai-dynamo/vllm-runtime:latest"), "is no semantic version; set runtimeVersionOverride"),
    (lambda c: c.update(minAvailable=1), "minAvailable requires the Grove workload provider"),
])  # fmt: skip
def test_what_the_webhook_refuses(operator, wrong, said):
    worker = component("worker", "worker", 8)
    wrong(worker)
    done = put(operator, graph("wrong", component("frontend", "frontend"), worker), "--dry-run=server")
    assert done.returncode == 1 and 'admission webhook "vdynamographdeployment.kb.io" denied the request' in done.stderr and said in done.stderr


def test_the_older_version_is_read_as_written_and_stored_as_the_newer(operator):
    kube = operator
    service = {"componentType": "worker", "subComponentType": "decode", "replicas": 0, "resources": {"limits": {"gpu": "8"}}, "extraPodSpec": {"mainContainer": {"image": RUNTIME}}}
    thing = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "old", "namespace": "default"}, "spec": {"services": {"Worker": service}}}
    done = put(kube, thing)
    assert done.returncode == 0 and "v1alpha1 DynamoGraphDeployment is deprecated" in done.stderr
    serves(kube, "old", 30)  # none are wanted
    assert kube.get("dynamographdeployments.v1alpha1.nvidia.com", "old")["spec"]["services"] == {"Worker": service}
    (stored,) = kube.get("dynamographdeployments.v1beta1.nvidia.com", "old")["spec"]["components"]
    assert stored["type"] == "decode" and stored["podTemplate"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    thing["spec"]["services"]["Other"] = service
    assert "components cannot be added after creation: Other" in put(kube, thing).stderr
    broken = {**service, "extraPodSpec": {"mainContainer": {"image": RUNTIME, "imagePullPolicie": "Always"}}}
    assert "imagePullPolicie: field not declared in schema" in put(kube, {**thing, "spec": {"services": {"Worker": broken}}}).stderr
    kube("delete", "dgd", "old", "--timeout=60s")


def test_without_the_operator_no_write_is_taken_and_ready_is_not_yet_answered(operator):
    kube = operator
    good = graph("late", component("frontend", "frontend"))
    kube("delete", "pod", "-n", "dynamo-system", "-l", "control-plane=controller-manager")
    refused = put(kube, good, "--dry-run=server")
    assert refused.returncode == 1 and 'failed calling webhook "mdynamographdeployment.kb.io"' in refused.stderr
    kube("wait", "--for=condition=Ready", "pod", "-n", "dynamo-system", "-l", "control-plane=controller-manager", "--timeout=60s")
    assert "connection refused" in put(kube, good, "--dry-run=server").stderr, "Ready comes before the listener"
    answered(kube)
    assert put(kube, good, "--dry-run=server").returncode == 0


def test_a_graph_of_frontend_and_worker_answers(operator, model, web):
    kube = operator
    frontend = component("Frontend", "frontend")
    made(kube, graph("agg", frontend, component("worker", "worker", 4, args=engine(model))))
    found = serves(kube, "agg")
    assert found["status"]["state"] == "successful" and found["status"]["observedGeneration"] == found["metadata"]["generation"]
    workers = found["status"]["components"]["worker"]
    assert workers["componentKind"] == "Deployment" and workers["readyReplicas"] == 1
    (name,) = workers["componentNames"]
    assert kube.get("deployment", name)["spec"]["template"]["spec"]["serviceAccountName"] == "agg-k8s-service-discovery"
    assert ask(kube, web, "agg") == "42"
    made(kube, graph("agg", frontend, component("worker", "worker", 4, args=engine(model, "--max-model-len", "4096"))))
    found = serves(kube, "agg")
    assert found["metadata"]["generation"] == 2 and found["status"]["rollingUpdate"]["phase"] == "Completed"
    assert found["status"]["components"]["worker"]["componentNames"] != [name] and kube.run("get", "dcd", name).returncode == 1, "the old workers go"


def test_a_worker_that_cannot_start_is_named_and_the_graph_never_says_ready(operator):
    kube = operator
    made(kube, graph("broken", component("frontend", "frontend"), component("worker", "worker", 4, args=engine("/nowhere"))))
    status = kube.wait(lambda: (s := kube.get("dgd", "broken").get("status", {})).get("components", {}).get("frontend", {}).get("readyReplicas") == 1 and s)
    (ready,) = [c for c in status["conditions"] if c["type"] == "Ready"]
    assert status["state"] == "pending" and ready["reason"] == "some_resources_are_not_ready"
    assert f"Deployment {status['components']['worker']['componentNames'][0]}: 0 of 1 replicas are ready" in ready["message"]
    kube("delete", "dgd", "broken", "--timeout=60s")


def moved(kube) -> tuple[float, int]:
    """What the decode worker says that NIXL moved, and what its node's adapters read."""
    (name,) = kube("get", "pods", "-l", "nvidia.com/dynamo-component-type=decode", "-o", "name").split()
    metrics = kube("exec", name, "--", "curl", "-s", "localhost:9090/metrics").splitlines()
    read = kube("exec", name, "--", "sh", "-c", "cat /sys/class/infiniband/*/ports/1/hw_counters/rdma_read_bytes").split()
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics if line.startswith("vllm:nixl_bytes_transferred_sum{")), sum(map(int, read))


def test_prefill_and_decode_apart_move_what_was_asked_and_with_the_switch_nothing(operator, model, web):
    kube = operator
    kube("delete", "dgd", "agg", "--wait=false")  # the node has eight GPUs
    kv = {role: ["--disaggregation-mode", mode, "--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role, **LIBFABRIC})]
          for mode, role in (("prefill", "kv_producer"), ("decode", "kv_consumer"))}  # fmt: skip
    prefill = component("prefill", "prefill", 4, args=engine(model, *kv["kv_producer"]))
    decode = component("decode", "decode", 4, args=engine(model, *kv["kv_consumer"]))
    made(kube, graph("pd", component("frontend", "frontend"), prefill, decode))
    serves(kube, "pd", 120)
    before = moved(kube)
    assert ask(kube, web, "pd") == "42"
    after = moved(kube)
    assert after[0] - before[0] == after[1] - before[1] > 30 * 1000, "KV of 30 tokens"
    switch = RUN / "pods" / "faults" / "kv-moves-nothing"
    switch.touch()
    try:
        assert ask(kube, web, "pd") == "42" and moved(kube) == after
    finally:
        switch.unlink()


def test_an_engine_over_two_nodes_is_one_leader_worker_set(operator, model, web):
    kube = operator
    kube("delete", "dgd", "agg", "pd", "--ignore-not-found", "--wait=false")
    worker = component("worker", "worker", 4, args=engine(model, "--pipeline-parallel-size", "2"), multinode={"nodeCount": 2})
    made(kube, graph("wide", component("frontend", "frontend"), worker))
    status = serves(kube, "wide", 120)["status"]["components"]["worker"]
    assert status["componentKind"] == "LeaderWorkerSet" and status["readyReplicas"] == 1
    (name,) = status["componentNames"]
    assert kube.get("leaderworkerset", name)["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert "nodes at wide-worker" in kube("logs", f"{name}-0")
    assert "answers" in kube("logs", f"{name}-0-1", "-c", "wait-for-leader-mp")
    assert ask(kube, web, "wide") == "42"
    kube("delete", "pod", f"{name}-0-1")
    kube.wait(lambda: kube.run("get", "dgd", "wide", "-o", "jsonpath={.status.state}").stdout == "pending")
    serves(kube, "wide", 120)  # the set makes the whole group anew


def test_zz_graphs_go_with_all_they_became(operator):
    """At the end: the server's garbage collector takes half a minute to hear of new kinds."""
    kube = operator
    kube("delete", "dgd", "--all", "--timeout=60s")
    kube.wait(lambda: kube("get", "pods,dcd,deployments,services,leaderworkersets", "-l", "nvidia.com/dynamo-graph-deployment-name", "-o", "name") == "", 150)
    assert kube.run("get", "serviceaccount", "planner-serviceaccount").returncode == 0, "is left, as by the real operator"
