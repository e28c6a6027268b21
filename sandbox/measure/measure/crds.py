"""Every rendered document against CustomResourceDefinitions as upstream publishes them. Called by `scripts/test-real-crds DIR`.

The definitions are applied to a real API server, and each document is put to it as `nemo apply` would: server-side, with strict field
validation, as a dry run. Then the sandbox's own definitions are held against upstream's: where they are kinder, a manifest would pass here and fail there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from . import rendered
from .apiserver import ApiServer, Refused, stand_in_crds

# Limits that may be stricter or looser; descriptions and hints for clients refuse nothing.
LIMITS = {
    "minimum": 1, "minLength": 1, "minItems": 1, "minProperties": 1, "maximum": -1, "maxLength": -1, "maxItems": -1, "maxProperties": -1,
}  # fmt: skip
STRICT = "&dryRun=All&fieldValidation=Strict"


def read(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.rglob("*.yaml")):
        defined = [document for document in rendered.documents(path.read_text()) if document.get("kind") == "CustomResourceDefinition"]
        if defined:
            print(f"real-crds: {path.relative_to(folder)}: {origin(path)}")
        found += defined
    if not found:
        raise SystemExit(f"{folder}: no CustomResourceDefinition in *.yaml below it")
    return found


def origin(path: Path) -> str:
    """The commit of the checkout that the file is in, or of the file `COMMIT` beside it; and what the file's bytes hash to."""
    told = path.with_name("COMMIT")
    commit = told.read_text().strip() if told.exists() else ""
    if not commit:
        asked = subprocess.run(["git", "-C", str(path.parent), "log", "-1", "--format=%H of %cs", "--", path.name], capture_output=True, text=True)
        commit = f"commit {asked.stdout.strip()}" if asked.stdout.strip() else "no commit known"
    return f"{commit}, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def put(server: ApiServer, documents: list[Any], upstream: set[tuple[str, str]]) -> tuple[Counter[str], list[str]]:
    """How many of each kind were taken, and what was refused."""
    for namespace in sorted({document["metadata"].get("namespace", "default") for document in documents}):
        server.apply(f"/api/v1/namespaces/{namespace}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    known: dict[str, dict[str, dict[str, Any]]] = {}
    taken, refused = Counter[str](), []
    for document in documents:
        version, kind, meta = document["apiVersion"], document["kind"], document["metadata"]
        title = f"{version} {kind}"
        try:
            known.setdefault(version, server.resources(version))
            resource = known[version][kind]
        except (Refused, KeyError):
            taken[f"{title}: no definition of it in the folder, not tried"] += 1
            continue
        place = f"{resource['prefix']}/namespaces/{meta['namespace']}" if resource["namespaced"] else resource["prefix"]
        try:
            server.apply(f"{place}/{resource['name']}/{meta['name']}", document, STRICT)
            taken[f"{title}: taken by {'upstream' if (version, kind) in upstream else 'Kubernetes'}"] += 1
        except Refused as no:
            refused.append(f"{title} {meta['name']}: {no}")
    return taken, refused


def one_of_each(documents: list[Any]) -> list[Any]:
    return list({(document["apiVersion"], document["kind"]): document for document in documents}.values())


def typo(document: Any) -> Any:
    """The same with a field that no container has."""

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {key: walk(value) for key, value in node.items()} | ({"imagePullPolice": "Always"} if "image" in node and "command" in node else {})

    return walk(document)


def served(crds: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Schema by apiVersion and kind."""
    return {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): version["schema"]["openAPIV3Schema"]
        for crd in crds
        for version in crd["spec"]["versions"]
    }


def kinder(ours: dict[str, Any], theirs: dict[str, Any], path: str = "") -> list[str]:
    """Where our schema takes what theirs refuses."""
    if path in ("", ".spec") and not theirs.get("properties"):
        return []
    if ours.get("x-kubernetes-preserve-unknown-fields") and not theirs.get("x-kubernetes-preserve-unknown-fields"):
        return [f"{path}: takes any field"]
    wrong = [f"{path}: takes {key}, which upstream does not have" for key in ours.get("properties", {}) if "properties" in theirs and key not in theirs["properties"]]
    wrong += [f"{path}: {key} is required upstream" for key in theirs.get("required", []) if key not in ours.get("required", [])]
    if "enum" in theirs and not set(ours.get("enum", ["anything"])) <= set(theirs["enum"]):
        wrong.append(f"{path}: {ours.get('enum', 'anything')}, upstream {theirs['enum']}")
    if theirs.get("type") != ours.get("type") and "type" in theirs and not theirs.get("x-kubernetes-int-or-string"):
        wrong.append(f"{path}: {ours.get('type', 'anything')}, upstream {theirs['type']}")
    for limit, sign in LIMITS.items():
        if limit in theirs and (limit not in ours or (ours[limit] - theirs[limit]) * sign < 0):
            wrong.append(f"{path}: {limit} {ours.get(limit, 'none')}, upstream {theirs[limit]}")
    if "pattern" in theirs and ours.get("pattern") != theirs["pattern"]:
        wrong.append(f"{path}: pattern {ours.get('pattern', 'none')}, upstream {theirs['pattern']}")
    if theirs.get("x-kubernetes-list-type") in ("map", "set") and ours.get("x-kubernetes-list-type") != theirs["x-kubernetes-list-type"]:
        wrong.append(f"{path}: a list of type {ours.get('x-kubernetes-list-type', 'atomic')}, upstream {theirs['x-kubernetes-list-type']}")
    if len(theirs.get("x-kubernetes-validations", [])) > len(ours.get("x-kubernetes-validations", [])):
        lack = ours.get("x-kubernetes-validations", [])
        wrong.append(f"{path}: {len(lack)} CEL rules, upstream {[rule['rule'] for rule in theirs['x-kubernetes-validations']]}")
    for key, schema in theirs.get("properties", {}).items():
        if key in ours.get("properties", {}):
            wrong += kinder(ours["properties"][key], schema, f"{path}.{key}")
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(theirs.get(key), dict) and isinstance(ours.get(key), dict):
            wrong += kinder(ours[key], theirs[key], path + mark)
    return wrong


def main() -> None:
    folder, binary = Path(sys.argv[1]), Path(os.environ["NEMO"])
    crds = read(folder)
    with tempfile.TemporaryDirectory() as made, ApiServer() as server:
        documents = rendered.flat(rendered.all_of_them(binary, Path(made)))
        stand_in = stand_in_crds(server)
        for crd in crds:
            server.define(crd)
        upstream = served(crds)
        taken, refused = put(server, documents, set(upstream))
        misspelt = [typo(document) for document in one_of_each(documents) if (document["apiVersion"], document["kind"]) in upstream]
        unseen, _ = put(server, misspelt, set())
        if unseen:
            raise SystemExit(f"a misspelt field is not refused, so that what is taken says nothing: {dict(unseen)}")
    for what, count in sorted(taken.items()):
        print(f"real-crds: {count} {what}")
    ours = served(stand_in)
    kinds = {(document["apiVersion"], document["kind"]) for document in documents}
    apart = [f"{' '.join(kind)} {line}" for kind in sorted(kinds & set(ours) & set(upstream)) for line in kinder(ours[kind], upstream[kind])]
    for line in refused:
        print(f"real-crds: refused: {line}")
    for line in apart:
        print(f"real-crds: the sandbox is kinder: {line}")
    print(f"real-crds: {sum(taken.values())} documents taken, {len(refused)} refused; the sandbox is kinder in {len(apart)} places")
    sys.exit(1 if refused or apart else 0)


if __name__ == "__main__":
    main()
