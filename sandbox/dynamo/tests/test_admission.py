from __future__ import annotations

import copy
from typing import Any

import pytest
from test_operator import ENGINE, component, graph

from platform_operator import admission
from platform_operator.admission import World, of_create, of_update

GROVE = "requires the Grove workload provider, which is not enabled"


def one(**more: Any) -> dict[str, Any]:
    return graph(component("f", "frontend"), component("w", "worker", 8, ENGINE, **more))


def with_image(image: str, **more: Any) -> dict[str, Any]:
    found = one(**more)
    found["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0]["image"] = image
    return found


@pytest.mark.parametrize("image", ["r/x:1.4.0", "r/x:v1.4.0", "r/x:1.4.0-efa", "host:5000/x:1.6.1-efa-0a1b2c@sha256:00"])
def test_a_version_in_the_tag_is_enough(image: str) -> None:
    assert of_create(with_image(image), World()) == []


@pytest.mark.parametrize("image", ["r/x:latest", "r/x", "host:5000/x@sha256:00", "r/x:1.4", "r/x:1.4.0_efa"])
def test_without_one_the_runtimes_version_has_to_be_said(image: str) -> None:
    (why,) = of_create(with_image(image), World())
    assert why == f"spec.components[1] (w): the tag of main image {image!r} is no semantic version; set runtimeVersionOverride"
    assert of_create(with_image(image, runtimeVersionOverride="1.6.1"), World()) == []


@pytest.mark.parametrize(("more", "why"), [
    ({"minAvailable": 1}, f"minAvailable {GROVE}"),
    ({"topologyConstraint": {"packDomain": "rack"}}, f"topologyConstraint {GROVE}"),
    ({"multinode": {"nodeCount": 2, "leader": {"providerOverride": {"apiVersion": "v", "value": {}}}}}, f"multinode.leader.providerOverride {GROVE}"),
    ({"experimental": {"grove": {"forceScalingGroup": True}}}, f"experimental.grove.forceScalingGroup {GROVE}"),
    ({"experimental": {"gpuMemoryService": {"mode": "InterPod"}}}, f"experimental.gpuMemoryService.mode InterPod {GROVE}"),
    ({"experimental": {"checkpoint": {"enabled": True}}}, "experimental.checkpoint requires the checkpoint feature, which is not enabled in the operator"),
    ({"sharedMemorySize": "-1Gi"}, "sharedMemorySize must not be negative"),
    ({"frontendSidecar": "side"}, "frontendSidecar 'side' matches no container of the pod template"),
])  # fmt: skip
def test_a_component_is_refused(more: dict[str, Any], why: str) -> None:
    assert of_create(one(**more), World()) == [f"spec.components[1] (w): {why}"]


def test_a_graph_is_refused() -> None:
    assert of_create(graph(), World()) == ["spec.components must have at least one component"]
    assert of_create(one() | {"spec": one()["spec"] | {"priorityClassName": "p"}}, World()) == [f"spec.priorityClassName {GROVE}"]
    noted = one()
    noted["metadata"]["annotations"] = {"nvidia.com/vllm-distributed-executor-backend": "mpi"}
    assert of_create(noted, World()) == ["metadata.annotations[nvidia.com/vllm-distributed-executor-backend]: 'mpi' is not one of mp, ray"]
    bare = graph({"name": "w", "type": "worker"})
    assert of_create(bare, World()) == ["spec.components[0] (w): the main container must have an image"]


def test_an_epp_wants_the_inference_api_and_one_replica() -> None:
    found = graph(component("e", "epp", replicas=2))
    assert len(of_create(found, World())) == 2
    assert of_create(graph(component("e", "epp")), World(frozenset({"inference.networking.k8s.io"}))) == []


def changed(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return one(), one(**more)


def test_what_may_change_and_what_may_not() -> None:
    assert of_update(*changed(replicas=5), "me", World()) == []
    assert of_update(*changed(multinode={"nodeCount": 2}), "me", World()) == ["component w: cannot change between single-node and multinode after creation"]
    assert of_update(one(multinode={"nodeCount": 2}), one(multinode={"nodeCount": 4}), "me", World()) == []
    assert of_update(one(), graph(component("f", "frontend"), component("x", "worker", 8, ENGINE)), "me", World()) == [
        "spec.components: components cannot be added after creation: x", "spec.components: components cannot be removed after creation: w",
    ]  # fmt: skip
    other = one()
    other["spec"]["backendFramework"] = "vllm"
    assert of_update(one(), other, "me", World()) == ["spec.backendFramework is immutable"]
    assert "is no semantic version" in of_update(one(), with_image("r/x:latest"), "me", World())[0]
    assert of_update(with_image("r/x:latest"), with_image("r/x:latest", replicas=2), "me", World()) == [], "only a change is looked at"


def test_replicas_of_a_scaling_adapter_belong_to_it() -> None:
    before, after = one(scalingAdapter={}, replicas=1), one(scalingAdapter={}, replicas=2)
    assert of_update(before, after, "me", World()) == ["component w: replicas is owned by the scaling adapter: scale that instead"]
    assert of_update(before, after, "operator", World(own=("operator",))) == []


def test_a_finalizer_comes_off_whatever_else() -> None:
    after = graph()
    after["metadata"]["deletionTimestamp"] = "now"
    assert of_update(one(), after, "me", World()) == []


def review(path: str, thing: dict[str, Any], operation: str = "CREATE", **more: Any) -> dict[str, Any]:
    request = {"uid": "u", "operation": operation, "object": thing, "userInfo": {"username": "me"}, **more}
    return admission.review({"apiVersion": "v", "kind": "AdmissionReview", "request": request}, path, "1.6.1", World())["response"]  # type: ignore[no-any-return]


def test_reviews() -> None:
    made = review("/mutate-nvidia-com-v1beta1-dynamographdeployment", one())
    assert made["patch"][-1] == {"op": "add", "path": "/metadata/annotations/nvidia.com~1dynamo-operator-origin-version", "value": "1.6.1"}
    assert review("/validate-nvidia-com-v1beta1-dynamographdeployment", one())["allowed"]
    no = review("/validate-nvidia-com-v1beta1-dynamographdeployment", copy.deepcopy(with_image("x:latest")))
    assert not no["allowed"] and "set runtimeVersionOverride" in no["status"]["message"]
    old = {"metadata": {}, "spec": {"services": {"w": {"volumeMounts": [{"name": "c"}], "ingress": {"enabled": True}}}}}
    no = review("/validate-nvidia-com-v1alpha1-dynamographdeployment", old)
    assert "spec.services[w].volumeMounts[c]: mountPoint is required; spec.services[w].ingress.host is required" in no["status"]["message"]
    assert "deprecated" in review("/validate-nvidia-com-v1alpha1-dynamographdeployment", {"metadata": {}, "spec": {"services": {"w": {}}}})["warnings"][0]
