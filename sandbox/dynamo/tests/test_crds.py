from __future__ import annotations

from typing import Any

from platform_operator import crds


def dgd(version: str) -> dict[str, Any]:
    found = crds.schema("DynamoGraphDeployment", version)
    return found["properties"]["spec"]["properties"]  # type: ignore[no-any-return]


def test_the_stored_version_is_v1beta1_and_the_other_one_is_served() -> None:
    made = next(c for c in crds.all_of_them("ns") if c["spec"]["names"]["kind"] == "DynamoGraphDeployment")
    assert {v["name"]: v["storage"] for v in made["spec"]["versions"]} == {"v1alpha1": False, "v1beta1": True}
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] == "ns"


def test_fields_have_their_types_enums_and_limits() -> None:
    assert dgd("v1alpha1")["backendFramework"]["enum"] == ["sglang", "vllm", "trtllm"]
    components = dgd("v1beta1")["components"]
    assert components["maxItems"] == 25 and components["x-kubernetes-list-map-keys"] == ["name"]
    assert "name" in components["items"]["required"]
    weight = dgd("v1alpha1")["experimental"]["properties"]["kvTransferPolicy"]["properties"]["preferredWeight"]
    assert weight == {"type": "number", "minimum": 0, "maximum": 1}


def test_core_types_keep_what_they_are_given() -> None:
    template = dgd("v1beta1")["components"]["items"]["properties"]["podTemplate"]
    assert template == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def test_every_node_of_a_schema_has_a_type_or_keeps_all() -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        assert "type" in node or "x-kubernetes-preserve-unknown-fields" in node or "x-kubernetes-int-or-string" in node, path
        assert not ("properties" in node and "additionalProperties" in node), path
        for name, child in node.get("properties", {}).items():
            walk(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                walk(node[key], f"{path}.{key}")

    for made in crds.all_of_them("ns"):
        for version in made["spec"]["versions"]:
            walk(version["schema"]["openAPIV3Schema"], made["metadata"]["name"])
