from __future__ import annotations

import copy
from typing import Any

import pytest
from test_operator import ENGINE, component, graph

from platform_operator import conversion
from platform_operator.conversion import NEW, OLD, convert

IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa"


def old(**service: Any) -> dict[str, Any]:
    spec = {"services": {"Worker": {"extraPodSpec": {"mainContainer": {"image": IMAGE}}, **service}}}
    return {"apiVersion": OLD, "kind": "DynamoGraphDeployment", "metadata": {"name": "d", "namespace": "ns"}, "spec": spec}


def new(*components: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": NEW, **graph(*components, **spec)}


def up(**service: Any) -> dict[str, Any]:
    return convert(old(**service), NEW)["spec"]["components"][0]  # type: ignore[no-any-return]


def main(component_: dict[str, Any]) -> dict[str, Any]:
    return component_["podTemplate"]["spec"]["containers"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "sub", "made"), [("worker", "prefill", "prefill"), ("worker", "decode", "decode"), ("worker", None, "worker"), ("frontend", None, "frontend")])
def test_kinds(kind: str, sub: str | None, made: str) -> None:
    assert up(componentType=kind, **({"subComponentType": sub} if sub else {}))["type"] == made


def test_a_service_becomes_a_component_with_a_pod_template() -> None:
    made = up(
        componentType="worker", envs=[{"name": "A", "value": "b"}], envFromSecret="hf", resources={"limits": {"gpu": "8", "cpu": "4", "custom": {"vpc.amazonaws.com/efa": "16"}}},
        readinessProbe={"tcpSocket": {"port": 1}}, labels={"l": "1"}, extraPodMetadata={"labels": {"m": "2"}, "annotations": {"n": "3"}},
        volumeMounts=[{"name": "w", "mountPoint": "/w"}, {"name": "c", "mountPoint": "/c", "useAsCompilationCache": True}], sharedMemory={"size": "64Gi"},
    )  # fmt: skip
    assert main(made) == {
        "name": "main", "image": IMAGE, "env": [{"name": "A", "value": "b"}], "envFrom": [{"secretRef": {"name": "hf"}}],
        "resources": {"limits": {"cpu": "4", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16"}}, "readinessProbe": {"tcpSocket": {"port": 1}},
        "volumeMounts": [{"name": "w", "mountPath": "/w"}],
    }  # fmt: skip
    assert made["podTemplate"]["metadata"] == {"labels": {"l": "1", "m": "2"}, "annotations": {"n": "3"}}
    assert made["compilationCache"] == {"pvcName": "c", "mountPath": "/c"} and made["sharedMemorySize"] == "64Gi"


def test_what_is_a_presence_in_the_one_is_a_word_in_the_other() -> None:
    assert "scalingAdapter" not in up(scalingAdapter={}) and up(scalingAdapter={"enabled": True})["scalingAdapter"] == {}
    assert up(sharedMemory={"disabled": True})["sharedMemorySize"] == "0"
    assert up(failover={"enabled": True, "mode": "interPod"})["experimental"] == {"failover": {"mode": "InterPod"}}
    sidecar = up(frontendSidecar={"image": IMAGE, "args": ["x"]})
    assert sidecar["podTemplate"]["spec"]["containers"][1] == {"name": sidecar["frontendSidecar"], "image": IMAGE, "args": ["x"]}


EVERYTHING = old(
    componentType="worker", subComponentType="decode", dynamoNamespace="gone", serviceName="gone", autoscaling={"enabled": True}, ingress={"enabled": True, "host": "h"},
    resources={"limits": {"gpu": "8"}}, volumeMounts=[{"name": "c", "useAsCompilationCache": True}], scalingAdapter={"enabled": False}, frontendSidecar={"image": IMAGE},
)  # fmt: skip
EVERYTHING["spec"] |= {"pvcs": [{"name": "p"}], "envs": [{"name": "A", "value": "b"}], "topologyConstraint": {"topologyProfile": "t"}}


def test_what_was_written_in_the_older_version_is_read_back_as_it_was() -> None:
    stored = convert(EVERYTHING, NEW)
    assert stored["spec"]["env"] == [{"name": "A", "value": "b"}] and stored["spec"]["topologyConstraint"] == {"clusterTopologyName": "t"}
    assert convert(stored, OLD) == EVERYTHING


def test_a_change_in_the_stored_version_is_seen_in_the_older_one() -> None:
    stored = convert(EVERYTHING, NEW)
    stored["spec"]["components"][0]["replicas"] = 3
    assert convert(stored, OLD)["spec"]["services"]["Worker"]["replicas"] == 3


def test_the_newer_version_is_read_in_the_older_one_and_written_back() -> None:
    one = new(
        component("Zed", "decode", 8, ENGINE, multinode={"nodeCount": 2}, sharedMemorySize="0", scalingAdapter={}, experimental={"gpuMemoryService": {"mode": "IntraPod"}}),
        component("a", "frontend"), env=[{"name": "A", "value": "b"}],
    )  # fmt: skip
    seen = convert(one, OLD)
    assert seen["spec"]["services"]["Zed"] | {"extraPodSpec": None} == {
        "componentType": "worker", "subComponentType": "decode", "multinode": {"nodeCount": 2}, "sharedMemory": {"disabled": True}, "scalingAdapter": {"enabled": True},
        "gpuMemoryService": {"enabled": True, "mode": "intraPod"}, "extraPodSpec": None,
    }  # fmt: skip
    assert convert(seen, NEW) == one, "the order of components too"


def test_status_follows() -> None:
    said = {"state": "successful", "components": {"w": {"componentKind": "Deployment", "componentNames": ["d-w"], "replicas": 1, "updatedReplicas": 1}},
            "rollingUpdate": {"updatedComponents": ["w"]}}  # fmt: skip
    down = convert(new(component("w", "worker")) | {"status": said}, OLD)
    assert down["status"]["services"]["w"]["componentName"] == "d-w" and down["status"]["rollingUpdate"] == {"updatedServices": ["w"]}
    assert convert(down, NEW)["status"] == said


def test_a_review_answers_all_or_says_why_not() -> None:
    asked = {"apiVersion": "v", "kind": "ConversionReview", "request": {"uid": "u", "desiredAPIVersion": NEW, "objects": [old(), copy.deepcopy(EVERYTHING)]}}
    assert [o["apiVersion"] for o in conversion.review(asked)["response"]["convertedObjects"]] == [NEW, NEW]
    asked["request"]["objects"] = [{"kind": "DynamoGraphDeployment"}]
    assert "cannot convert to nvidia.com/v1beta1" in conversion.review(asked)["response"]["result"]["message"]
