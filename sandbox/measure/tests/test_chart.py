"""A chart from documents: what it makes is what it was made from, in Go's templates read by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from measure import chart
from measure.crds import kinder


def made(folder: Path) -> dict[str, list[Any]]:
    """A stand-in for helm, as far as these templates go: range, with, end and scalars."""
    values = json.loads((folder / "values.yaml").read_text())
    return {path.stem: list(yaml.safe_load_all(run(path.read_text().splitlines(), {"Values": values}))) for path in (folder / "templates").iterdir()}


def run(lines: list[str], scope: Any) -> str:
    done, at = [], 0
    while at < len(lines):
        opened = re.fullmatch(r"\{\{- (range|with) \.(\S+) \}\}", lines[at].strip())
        if not opened:
            done.append(re.sub(r"\{\{ (\S+)( \| \w+)? \}\}", lambda found: json.dumps(look(found[1], scope)), lines[at]))
            at += 1
            continue
        depth, end = 1, at
        while depth:
            end += 1
            depth += bool(re.match(r"\{\{- (range|with) ", lines[end].strip())) - (lines[end].strip() == "{{- end }}")
        found = look("." + opened[2], scope) if isinstance(scope, dict) else None
        for one in (found or []) if opened[1] == "range" else [found] if found else []:
            done.append(run(lines[at + 1 : end], one))
        at = end + 1
    return "\n".join(line for line in done if line)


def look(path: str, scope: Any) -> Any:
    if path.startswith('"'):
        return json.loads(path)
    for part in path.strip(".").split("."):
        scope = scope.get(part) if part else scope
    return scope


def pod(name: str, args: list[str], env: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "main", "args": args, "env": env, **more}]}}


A = pod("a", ["--x", "1"], [{"name": "E", "value": "1"}], ports=[{"containerPort": 9090}])
B = pod("b", ["--x", "1", "--y"], [{"name": "E", "value": "2"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])


def test_lists_of_any_length_and_fields_that_some_lack(tmp_path: Path) -> None:
    sets = {"m-bf16/agg-deployments": {"worker.yaml": [A]}, "n-fp8/agg-deployments": {"worker.yaml": [B]}}
    actions = chart.write(tmp_path / "chart", sets, {})
    found = made(tmp_path / "chart")
    assert [document for document in found["agg_deployments_worker_Pod"] if document] == [A, B]
    assert actions >= 6


def test_a_file_that_holds_other_kinds_elsewhere(tmp_path: Path) -> None:
    settings = {"kind": "ConfigMap", "data": {"a": "1"}}
    sets = {"m-bf16/e-pd-deployments": {"frontend.yaml": [A]}, "n-fp8/e-pd-deployments": {"frontend.yaml": [settings, B]}}
    chart.write(tmp_path / "chart", sets, {})
    found = [document for documents in made(tmp_path / "chart").values() for document in documents if document]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, [A, settings, B]))


def test_what_differs_in_other_settings_is_a_value(tmp_path: Path) -> None:
    sets = {"m-bf16/agg-deployments": {"worker.yaml": [A]}}
    chart.write(tmp_path / "chart", sets, {"m-bf16/agg-deployments": {"worker.yaml": [pod("other", *(A["spec"]["containers"][0][key] for key in ("args", "env")))]}})
    template = (tmp_path / "chart" / "templates" / "agg_deployments_worker_Pod.yaml").read_text()
    assert "{{ .name | quote }}" in template and '"main"' in template
    values = json.loads((tmp_path / "chart" / "values.yaml").read_text())
    assert [one["name"] for one in values["agg_deployments_worker_Pod"]] == ["a"]


def test_where_a_definition_is_kinder() -> None:
    theirs = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string", "enum": ["x"]}}}
    assert kinder(theirs, theirs) == []
    ours = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "string"}, "c": {"type": "string"}}}
    assert kinder(ours, theirs) == [
        ": takes c, which upstream does not have",
        ": a is required upstream",
        ".a: minimum 0, upstream 1",
        ".b: anything, upstream ['x']",
    ]
    assert kinder({"x-kubernetes-preserve-unknown-fields": True}, theirs) == [": takes any field"]
