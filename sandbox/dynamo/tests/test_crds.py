from __future__ import annotations

from typing import Any

import pytest

from platform_operator import crds
from platform_operator.core_types import QUANTITY, Core

META, CORE = "io.k8s.apimachinery.pkg.apis.meta.v1", "io.k8s.api.core.v1"
STRING = {"type": "string", "default": ""}


def ref(name: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}, "description": "in the server's words"}


def made(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "description": "in the server's words", "properties": properties}


def document() -> dict[str, Any]:
    """As the API server words its OpenAPI, cut down to what holds each case."""
    port = made(containerPort={"type": "integer", "format": "int32", "default": 0}, protocol={"type": "string", "default": "TCP"}, name={"type": "string"})
    port["required"] = ["containerPort"]
    container = made(name=STRING, image={"type": "string"}, ports={"type": "array", "items": ref(f"{CORE}.ContainerPort"), "x-kubernetes-list-type": "map",
                     "x-kubernetes-list-map-keys": ["containerPort", "protocol"], "x-kubernetes-patch-strategy": "merge"},
                     limits={"type": "object", "additionalProperties": ref("io.k8s.apimachinery.pkg.api.resource.Quantity")})  # fmt: skip
    container["required"] = ["name"]
    pod = made(containers={"type": "array", "items": ref(f"{CORE}.Container")}, imagePullSecrets={
        "type": "array", "items": ref(f"{CORE}.LocalObjectReference"), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})  # fmt: skip
    pod["required"] = ["containers"]
    return {"components": {"schemas": {
        f"{CORE}.PodTemplateSpec": made(metadata=ref(f"{META}.ObjectMeta"), spec=ref(f"{CORE}.PodSpec")),
        f"{CORE}.PodSpec": pod, f"{CORE}.Container": container, f"{CORE}.ContainerPort": port, f"{CORE}.LocalObjectReference": made(name=STRING),
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"description": "…", "oneOf": [{"type": "string"}, {"type": "number"}]},
        **{f"{CORE}.{name}": made() for name in ("EnvVar", "Probe", "ConfigMapKeySelector")}, f"{META}.Condition": made(type={"type": "string"}),
        **{f"io.k8s.api.autoscaling.v2.{name}": made() for name in ("MetricSpec", "HorizontalPodAutoscalerBehavior")},
    }}}  # fmt: skip


@pytest.fixture(scope="module")
def core() -> Core:
    return Core(document())


def dgd(version: str, core: Core) -> dict[str, Any]:
    found = crds.schema("DynamoGraphDeployment", version, core)
    return found["properties"]["spec"]["properties"]  # type: ignore[no-any-return]


def test_the_stored_version_is_v1beta1_and_the_other_one_is_served(core: Core) -> None:
    made = next(c for c in crds.all_of_them("ns", core) if c["spec"]["names"]["kind"] == "DynamoGraphDeployment")
    assert {v["name"]: v["storage"] for v in made["spec"]["versions"]} == {"v1alpha1": False, "v1beta1": True}
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] == "ns"


def test_fields_have_their_types_enums_and_limits(core: Core) -> None:
    assert dgd("v1alpha1", core)["backendFramework"]["enum"] == ["sglang", "vllm", "trtllm"]
    components = dgd("v1beta1", core)["components"]
    assert components["maxItems"] == 25 and components["x-kubernetes-list-map-keys"] == ["name"]
    assert "name" in components["items"]["required"]
    weight = dgd("v1alpha1", core)["experimental"]["properties"]["kvTransferPolicy"]["properties"]["preferredWeight"]
    assert weight == {"type": "number", "minimum": 0, "maximum": 1}
    clients = dgd("v1alpha1", core)["services"]["additionalProperties"]["properties"]["gpuMemoryService"]["properties"]["extraClientContainers"]
    assert clients["items"] == {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
    assert crds.schema("DynamoGraphDeployment", "v1beta1", core)["properties"]["status"]["properties"]["rollingUpdate"]["properties"]["phase"]["enum"][-1] == ""


def test_core_types_are_opened_to_the_bottom(core: Core) -> None:
    template = dgd("v1beta1", core)["components"]["items"]["properties"]["podTemplate"]
    assert set(template["properties"]["metadata"]["properties"]) == {"name", "namespace", "finalizers", "labels", "annotations"}
    pod = template["properties"]["spec"]
    container = pod["properties"]["containers"]["items"]
    assert pod["required"] == ["containers"] and container["required"] == ["name"]
    assert container["properties"]["limits"]["additionalProperties"] == QUANTITY
    assert container["properties"]["ports"]["items"]["properties"]["protocol"] == {"type": "string", "default": "TCP"}
    assert "description" not in str(template) and "patch-strategy" not in str(template)


def test_beside_a_main_container_the_others_are_extra(core: Core) -> None:
    pod = dgd("v1alpha1", core)["services"]["additionalProperties"]["properties"]["extraPodSpec"]
    assert pod["required"] == [] == pod["properties"]["mainContainer"]["required"]
    assert "image" in pod["properties"]["mainContainer"]["properties"]


def test_rules_stand_where_they_belong(core: Core) -> None:
    spec = crds.schema("DynamoGraphDeployment", "v1beta1", core)["properties"]["spec"]
    assert [r["optionalOldSelf"] for r in spec["x-kubernetes-validations"]] == [True]
    assert len(spec["properties"]["components"]["x-kubernetes-validations"]) == 2
    assert any("minAvailable" in r["message"] for r in spec["properties"]["components"]["items"]["x-kubernetes-validations"])


def test_every_node_of_a_schema_has_a_type_or_keeps_all(core: Core) -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        assert "type" in node or "x-kubernetes-preserve-unknown-fields" in node or "x-kubernetes-int-or-string" in node, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert len(set(node.get("required", []))) == len(node.get("required", [])), path
        for name, child in node.get("properties", {}).items():
            walk(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                walk(node[key], f"{path}.{key}")

    for made in crds.all_of_them("ns", core):
        for version in made["spec"]["versions"]:
            walk(version["schema"]["openAPIV3Schema"], made["metadata"]["name"])
