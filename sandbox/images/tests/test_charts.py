"""The charts, rendered by the real helm."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from images import __main__ as cli
from images import store

HELM = cli.CACHE / "bin" / "helm"
LIST = Path(__file__).resolve().parents[1] / "images.toml"
NVIDIA, EFA, DYNAMO = "nvidia-device-plugin-0.17.4", "aws-efa-k8s-device-plugin-v0.5.30", "dynamo-platform-1.6.1"


def helm(chart: str, *sets: str) -> subprocess.CompletedProcess[str]:
    assert HELM.exists(), "scripts/setup builds it"
    archive = next((store.make(cli.CACHE, LIST) / "charts").rglob(f"{chart}.tgz"))
    name = chart.rpartition("-")[0]
    words = [word for one in sets for word in ("--set-json" if "=[" in one or "={" in one else "--set", one)]
    return subprocess.run([HELM, "template", name, archive, "--namespace", "kube-system", *words], capture_output=True, text=True)


def rendered(chart: str, kind: str, *sets: str) -> dict[str, Any]:
    done = helm(chart, *sets)
    assert done.returncode == 0, done.stderr
    return next(d for d in yaml.safe_load_all(done.stdout) if d and d["kind"] == kind)  # type: ignore[no-any-return]


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def test_device_plugins_take_image_tolerations_and_affinity() -> None:
    made = rendered(NVIDIA, "DaemonSet", "image.repository=r/p", "image.tag=t", 'tolerations=[{"operator":"Exists"}]', 'affinity={"nodeAffinity":{}}')
    assert made["metadata"]["name"] == "nvidia-device-plugin"
    assert pod(made)["containers"][0]["image"] == "r/p:t" and pod(made)["tolerations"] == [{"operator": "Exists"}]
    made = rendered(EFA, "DaemonSet", "image.repository=r/p", 'tolerations=[{"operator":"Exists"}]')
    assert made["metadata"]["name"] == "aws-efa-k8s-device-plugin"
    assert {"operator": "Exists"} in pod(made)["tolerations"]
    terms = pod(made)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert "p5en.48xlarge" in terms[0]["matchExpressions"][0]["values"]


def test_the_nvidia_plugin_wants_labelled_nodes_by_default() -> None:
    terms = pod(rendered(NVIDIA, "DaemonSet"))["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert any(t["matchExpressions"][0]["key"] == "nvidia.com/gpu.present" for t in terms)


def test_the_operator_applies_its_crds_first() -> None:
    made = rendered(DYNAMO, "Deployment", "dynamo-operator.controllerManager.manager.image.repository=r/p")
    assert made["metadata"]["name"] == "dynamo-platform-dynamo-operator-controller-manager"
    assert pod(made)["initContainers"][0]["command"] == ["/manager", "crd-apply"]
    assert pod(made)["containers"][0]["image"] == "r/p:1.6.1"


@pytest.mark.parametrize(
    ("chart", "setting", "why"),
    [
        (DYNAMO, "dynamo-operator.controllerManager.toleration=x", "additional properties 'toleration' not allowed"),
        (DYNAMO, "global.nats.install=true", "global.nats.install: the subchart nats is not in the sandbox"),
        (DYNAMO, "nats.enabled=false", "nats.enabled was removed"),
        (DYNAMO, "dynamo-operator.discoveryBackend=consul", "must be kubernetes or etcd"),
        (NVIDIA, "image.repo=x", "additional properties 'repo' not allowed"),
        (EFA, "affinity.x=1", "additional properties 'affinity' not allowed"),
    ],
)
def test_what_is_refused(chart: str, setting: str, why: str) -> None:
    done = helm(chart, setting)
    assert done.returncode != 0 and why in done.stderr
