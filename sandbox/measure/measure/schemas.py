"""JSON schemas of kinds, from the API server's own OpenAPI: one file a kind, whole in itself, for kubeconform."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from .apiserver import PATIENCE, ApiServer

LOCATION = "{{ .Group }}/{{ .ResourceKind }}-{{ .ResourceAPIVersion }}.json"
REF = "#/components/schemas/"


def write(server: ApiServer, kinds: set[tuple[str, str]], folder: Path) -> None:
    """`kinds`: apiVersion and kind."""
    for api_version in sorted({version for version, _ in kinds}):
        document = published(server, "api/v1" if api_version == "v1" else f"apis/{api_version}")
        schemas = document["components"]["schemas"]
        group, _, version = api_version.rpartition("/")
        for kind in (kind for one, kind in kinds if one == api_version):
            wanted = {"group": group, "version": version, "kind": kind}
            name = next(name for name, schema in schemas.items() if wanted in schema.get("x-kubernetes-group-version-kind", []))
            needed: dict[str, Any] = {}
            _gather(name, schemas, needed)
            path = folder / (group or version) / f"{kind.lower()}-{version}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"$defs": needed, "$ref": f"#/$defs/{name}"}))


def published(server: ApiServer, group: str) -> Any:
    """The OpenAPI document of a group and version. A new definition's comes some time after it is served, and nothing tells when."""
    end = time.monotonic() + PATIENCE
    while group not in (paths := server.get("/openapi/v3")["paths"]):
        if time.monotonic() > end:
            raise SystemExit(f"the API server does not publish {group} after {PATIENCE} s")
        time.sleep(0.2)
    return server.get(paths[group]["serverRelativeURL"])


def _gather(name: str, schemas: dict[str, Any], needed: dict[str, Any]) -> None:
    if name in needed:
        return
    needed[name] = {}
    needed[name] = _turned(schemas[name], schemas, needed)


def _turned(node: Any, schemas: dict[str, Any], needed: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_turned(item, schemas, needed) for item in node]
    if not isinstance(node, dict):
        return node
    found = {}
    for key, value in node.items():
        if key == "$ref":
            name = value.removeprefix(REF)
            _gather(name, schemas, needed)
            found[key] = f"#/$defs/{name}"
        elif key == "properties":
            found[key] = {name: _turned(schema, schemas, needed) for name, schema in value.items()}
        elif key != "description" and not key.startswith("x-kubernetes"):  # what validates nothing is only more to load
            found[key] = _turned(value, schemas, needed)
    if node.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    return found
