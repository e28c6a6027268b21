"""The operator's CustomResourceDefinitions, structural, built from `fields.tsv`: what was read in the upstream CRDs (2026-11-30; 1.4 to 1.5-dev).

Core Kubernetes types are named there; `core_types` opens them. CEL rules are in `rules`.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

from . import rules
from .core_types import QUANTITY, Core

TABLE = Path(__file__).with_name("fields.tsv")
GROUP = "nvidia.com"
OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SIMPLE = {
    "string": {"type": "string"}, "boolean": {"type": "boolean"}, "integer": {"type": "integer"}, "number": {"type": "number"},
    "integer(int32)": {"type": "integer", "format": "int32"}, "integer(int64)": {"type": "integer", "format": "int64"},
    "string(date-time)": {"type": "string", "format": "date-time"}, "any": {"x-kubernetes-preserve-unknown-fields": True},
    "int-or-string (Quantity)": QUANTITY, "object": {"type": "object"}, "object (free form)": OPEN,
}  # fmt: skip
NUMBERS = {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
# Short names as upstream's; kinds without rows in the table have an open spec and status.
KINDS = {
    "DynamoGraphDeployment": ("dgd", ["v1alpha1", "v1beta1"]),
    "DynamoComponentDeployment": ("dcd", ["v1alpha1", "v1beta1"]),
    "DynamoGraphDeploymentRequest": ("dgdr", ["v1alpha1", "v1beta1"]),
    "DynamoGraphDeploymentScalingAdapter": ("dgdsa", ["v1alpha1"]),
    "DynamoModel": ("dm", ["v1alpha1"]),
    "DynamoCheckpoint": ("ckpt", ["v1alpha1"]),
    "DynamoWorkerMetadata": ("dwm", ["v1alpha1"]),
}


def all_of_them(namespace: str, core: Core) -> list[dict[str, Any]]:
    return [crd(kind, short, versions, namespace, core) for kind, (short, versions) in KINDS.items()]


def crd(kind: str, short: str, versions: list[str], namespace: str, core: Core) -> dict[str, Any]:
    plural = kind.lower() + "s"
    worker = kind == "DynamoWorkerMetadata"
    spec: dict[str, Any] = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": kind, "listKind": kind + "List", "plural": plural, "singular": kind.lower(), "shortNames": [short]},
        "versions": [
            {
                "name": version, "served": True, "storage": version == versions[-1],
                "schema": {"openAPIV3Schema": _worker_metadata() if worker else schema(kind, version, core)},
                **({} if worker else {"subresources": {"status": {}}}),
            }
            for version in versions
        ],
    }  # fmt: skip
    if len(versions) > 1:  # the manager converts; where it does not answer, only the stored version can be used
        service = {"name": "webhook-service", "namespace": namespace, "path": "/convert"}
        spec["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}}
    meta = {"name": f"{plural}.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def schema(kind: str, version: str, core: Core) -> dict[str, Any]:
    root: dict[str, Any] = {"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}}
    mine = [r for r in rows() if r["kind"] == kind and r["apiVersion"] == f"{GROUP}/{version}"]
    if not mine:
        root["properties"] |= {"spec": dict(OPEN), "status": dict(OPEN)}
        return root
    for row in mine:
        *parents, name = _parts(row["path"])
        place = root
        for part in parents:
            place = _into(place, part)
        if name in ("*", "[]"):
            continue
        place.setdefault("properties", {})[name] = _field(row, core)
        if row["required"] == "yes" and name not in place.get("required", []):  # a key of a list is already
            place.setdefault("required", []).append(name)
        if name == "mainContainer":  # needs no name, for it has one; and beside it the other containers of a pod are extra
            place["properties"][name]["required"].remove("name")
            place["required"].remove("containers")
    for path, rule in rules.of(kind, version):
        place = root
        for part in _parts(path):
            place = _into(place, part)
        place.setdefault("x-kubernetes-validations", []).append(rule.schema())
    return root


def _parts(path: str) -> list[str]:
    return re.findall(r"[^.\[\]]+|\[\]", path)


def rows() -> list[dict[str, str]]:
    with TABLE.open() as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _into(place: dict[str, Any], part: str) -> dict[str, Any]:
    if part == "[]":
        return place.setdefault("items", {"type": "object"})  # type: ignore[no-any-return]
    if part == "*":
        return place.setdefault("additionalProperties", {"type": "object"})  # type: ignore[no-any-return]
    return place.setdefault("properties", {}).setdefault(part, {"type": "object"})  # type: ignore[no-any-return]


def _field(row: dict[str, str], core: Core) -> dict[str, Any]:
    kind = row["type"]
    if kind.startswith("list of "):
        found: dict[str, Any] = {"type": "array", "items": _simple(kind[8:], core)}
    elif kind.startswith("map of "):
        found = {"type": "object", "additionalProperties": _simple(kind[7:], core)}
    else:
        found = _simple(kind, core)
    if row["enum"]:
        found["enum"] = ["" if word == '""' else word for word in row["enum"].split(",")]
    if row["default"]:
        found["default"] = json.loads(row["default"])
    for limit in filter(None, row["limits"].split("; ")):
        name, _, value = limit.partition("=")
        node = found["items"] if name.startswith("items.") else found
        name = name.removeprefix("items.")
        if name in NUMBERS:
            node[name] = json.loads(value)
        elif name == "pattern":
            node["pattern"] = value
        elif limit == "list=set":
            found["x-kubernetes-list-type"] = "set"
        elif key := re.fullmatch(r"list=map\((\w+)\)", limit):
            found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key[1]]}
            item = found["items"]
            item.setdefault("properties", {}).setdefault(key[1], {"type": "string"})
            item["required"] = sorted({*item.get("required", []), key[1]})
    return found


def _simple(kind: str, core: Core) -> dict[str, Any]:
    return core.open(kind) or dict(SIMPLE.get(kind, OPEN))


def _worker_metadata() -> dict[str, Any]:
    spec = {"type": "object", "required": ["data"], "properties": {"data": dict(OPEN)}}
    return {
        "type": "object", "required": ["spec"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": spec},
    }  # fmt: skip
