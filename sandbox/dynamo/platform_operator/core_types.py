"""Core Kubernetes types as parts of a CRD's schema, taken from the API server's own OpenAPI (v3).

Opened like this, a typo deep in a pod template is refused by strict validation; a type that is only named would keep whatever it is given.
"""

from __future__ import annotations

import json
from typing import Any

PLACES = {"core/v1": "io.k8s.api.core.v1", "autoscaling/v2": "io.k8s.api.autoscaling.v2", "meta/v1": "io.k8s.apimachinery.pkg.apis.meta.v1"}
DOCUMENTS = ("api/v1", "apis/autoscaling/v2")
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
# What upstream's generator writes for every amount.
QUANTITY = {**INT_OR_STRING, "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"}
KEPT = {"type", "format", "enum", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"}
# What the API server takes of an object's metadata inside another object: the rest is the server's own to set.
EMBEDDED = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "namespace": {"type": "string"}, "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 262144}},
    },
}  # fmt: skip
# Its limits are in the words of Kubernetes' types and not in the server's OpenAPI.
NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
CONDITION = {
    "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "type": {"type": "string", "maxLength": 316, "pattern": rf"^({NAME}(\.{NAME})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "message": {"type": "string", "maxLength": 32768},
    },
}  # fmt: skip
# Upstream's definitions are made from newer types than the cluster's, which have another field instead.
GONE = {"io.k8s.api.core.v1.PodSpec": "workloadRef"}
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": EMBEDDED,
    "io.k8s.apimachinery.pkg.apis.meta.v1.Condition": CONDITION,
}


class Core:
    """The types of some OpenAPI documents, by the names that `fields.tsv` has for them."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.schemas: dict[str, Any] = {}
        self.opened: dict[str, dict[str, Any]] = {}
        for document in documents:
            self.schemas |= document["components"]["schemas"]

    def open(self, name: str) -> dict[str, Any] | None:
        """`core/v1 PodSpec` → its whole schema, one's own to change; None for what is no core type."""
        group, _, kind = name.partition(" ")
        # By way of text: a deep copy would keep one node for the same type in several places.
        return json.loads(json.dumps(self._named(f"{PLACES[group]}.{kind}"))) if group in PLACES else None

    def _named(self, name: str) -> dict[str, Any]:
        if name not in self.opened:
            self.opened[name] = SPECIAL.get(name) or self._node(self.schemas[name])
            self.opened[name].get("properties", {}).pop(GONE.get(name), None)
        return self.opened[name]

    def _node(self, node: dict[str, Any]) -> dict[str, Any]:
        if reference := node.get("$ref") or (node.get("allOf") or [{}])[0].get("$ref"):
            found = dict(self._named(reference.rpartition("/")[2]))
        else:
            found = {key: value for key, value in node.items() if key in KEPT}
        if node.get("default", {}) != {}:  # `{}` only says that the field is no pointer in Go
            found["default"] = node["default"]
        if properties := node.get("properties"):
            found["properties"] = {name: self._node(child) for name, child in properties.items()}
            for name in node.get("required", []):  # nor is Go's zero value a default of what has to be given
                if not found["properties"][name].get("default"):
                    found["properties"][name].pop("default", None)
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                found[key] = self._node(node[key])
                found[key].pop("default", None)
        if keys := found.get("x-kubernetes-list-map-keys"):
            item = found["items"] = dict(found["items"])
            given = [key for key in keys if "default" not in item["properties"][key]]
            item["required"] = sorted({*item.get("required", []), *given})
        if not found.get("type") and found != INT_OR_STRING and "x-kubernetes-int-or-string" not in found:
            found |= {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return found
