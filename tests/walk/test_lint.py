"""nemo lint by its binary: what is printed in each form, what --fix writes, how it ends. Needs no world."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jsonschema
from conftest import BINARY, ROOT

POD = """apiVersion: v1
kind: Pod
metadata: {name: p, namespace: nemo}   # kept
spec:
  containers:
  - name: main
    image: x/vllm-runtime:1.6.1-efa
    command: [python3, -m, dynamo.vllm]
    args: [--max-model-len, 8192]
    env:
    - {name: NCCL_SOCKET_IFNAME, value: "^lo,docker"}
    resources: {limits: {nvidia.com/gpu: "1", vpc.amazonaws.com/efa: "2"}}
    securityContext: {capabilities: {add: [IPC_LOCK]}}
"""


def lint(folder: Path, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, "lint", *args], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60, env={**os.environ, "NO_COLOR": "1"})


def test_findings_end_with_16_and_name_file_line_and_value(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    done = lint(tmp_path, "pod.yaml")
    assert done.returncode == 16, done.stderr
    assert "pod.yaml:11: error N24" in done.stdout and "pod.yaml:9: error yaml-type" in done.stdout, done.stdout
    assert "nemo explain" in done.stderr
    told = lint(tmp_path, ".", "--output", "json")
    answer, failure = (json.loads(line) for line in told.stdout.splitlines())
    schema = json.loads((ROOT / "schemas" / "lint.json").read_text())
    jsonschema.validate(answer, schema)
    assert failure["failure"]["exit_code"] == 16 and {finding["rule"] for finding in answer["findings"]} == {"N24", "yaml-type"}


def test_sarif_is_what_its_schema_says(tmp_path: Path) -> None:
    done = lint(tmp_path, "-", "--output", "sarif", stdin=POD)
    assert done.returncode == 16, done.stderr
    sarif = json.loads(done.stdout)
    jsonschema.validate(sarif, json.loads((ROOT / "tests" / "data" / "sarif-2.1.0.json").read_text()))
    assert len(sarif["runs"][0]["results"]) == 2


def test_fix_changes_words_and_keeps_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    file.chmod(0o640)
    done = lint(tmp_path, "--fix", "pod.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert file.read_text() == POD.replace("8192", '"8192"').replace("^lo,docker", "^lo,docker,pod-id-link0")
    assert file.stat().st_mode & 0o777 == 0o640
    assert '- "^lo,docker"' in done.stderr and '+ "^lo,docker,pod-id-link0"' in done.stderr, done.stderr
    assert lint(tmp_path, "--fix", "-", stdin=POD).returncode == 2


def test_bad_yaml_names_file_line_and_what(tmp_path: Path) -> None:
    (tmp_path / "chart.yaml").write_text("a: 1\nb: {{ .Values.b }}\n")
    done = lint(tmp_path, "chart.yaml")
    assert done.returncode == 10, done.stderr
    assert "chart.yaml:2" in done.stderr and "helm template" in done.stderr, done.stderr


def test_our_own_manifests_are_clean() -> None:
    for folder in sorted((ROOT / "tests" / "golden").iterdir()):
        files = [str(file) for file in sorted(folder.rglob("*.yaml")) if "apiVersion:" in file.read_text()]
        if files:
            done = lint(ROOT, *files)
            assert done.returncode == 0, done.stdout
