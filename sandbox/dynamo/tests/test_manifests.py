"""Every command line of the golden manifests, put to Dynamo's own argument code: what nemo renders is what the program takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dynamo.vllm.args import parse_args

from engine import flags

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"
# What Kubernetes puts in place of the variables.
PLACED = {"$(LWS_WORKER_INDEX)": "1", "$(LWS_LEADER_ADDRESS)": "vllm-worker-0.vllm-worker.nemo"}


def containers(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in containers(item)]
    if not isinstance(value, dict):
        return []
    own = [value] if "dynamo.vllm" in value.get("command", []) else []
    return own + [found for item in value.values() for found in containers(item)]


LINES = {
    f"{path.parent.name}/{path.name}/{at}": [PLACED.get(word, word) for word in container["args"]]
    for path in sorted(GOLDEN.glob("*/*.yaml"))
    for at, container in enumerate(containers([document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)]))
}


def test_there_are_command_lines_of_every_form() -> None:
    for form in ("deployments", "lws", "dgd-v1alpha1", "dgd-v1beta1", "dgd-grove"):
        assert any(f"-{form}/" in name for name in LINES), form


@pytest.mark.parametrize("name", LINES)
def test_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dynamo.vllm"])
    config = parse_args(LINES[name])
    flags.refuse_unknown_names(config.engine_args)
    assert config.model == LINES[name][1]
