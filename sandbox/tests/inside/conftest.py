from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import account
import boto3
import pytest
import requests

SANDBOX = Path(__file__).resolve().parents[2]
RUN = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo" / "sandbox" / os.environ.get("SANDBOX_NAME", "default")
MODEL = "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16"
IMAGE = "docker.io/alpine/helm:3.22.0"  # any image that names a program: its pods see the machine's sh and python3


class Kube:
    """kubectl with a token of the cluster's creator."""

    def __init__(self, cluster: dict[str, Any], folder: Path) -> None:
        self.cluster, self.ca = cluster, folder / "ca.crt"
        self.ca.write_bytes(base64.b64decode(cluster["certificateAuthority"]["data"]))
        self.config = folder / "kubeconfig"
        self.config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": cluster["endpoint"], "certificate-authority": str(self.ca)}}],
            "users": [{"name": "u", "user": {"token": account.token(cluster["name"])}}],
        }))  # fmt: skip

    def popen(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        return subprocess.Popen(["kubectl", *words], env={**os.environ, "KUBECONFIG": str(self.config)}, **more)

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "KUBECONFIG": str(self.config)}
        return subprocess.run(["kubectl", *words], env=env, input=stdin, capture_output=True, text=True, timeout=120)

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return json.loads(self("get", kind, name, "-n", namespace, "-o", "json"))

    def wait(self, what: Callable[[], Any], limit: float = 40) -> Any:
        """The first true answer."""
        end = time.monotonic() + limit
        while True:
            if got := what():
                return got
            assert time.monotonic() < end, f"not after {limit} s: {self('get', 'pods', '-A')}"
            time.sleep(0.2)

    def ready(self, pod: str, limit: float = 40) -> None:
        self("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={limit:.0f}s")

    def events(self, name: str) -> str:
        return self("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "jsonpath={.items[*].message}")


def pod(name: str, *command: str, labels: dict[str, str] | None = None, image: str = IMAGE, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, **({"command": list(command)} if command else {}), **spec.pop("container", {})}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }  # fmt: skip


@pytest.fixture(scope="session")
def roles() -> tuple[str, str]:
    return account.role("cluster", "eks.amazonaws.com"), account.role("node", "ec2.amazonaws.com")


@pytest.fixture(scope="session")
def subnets() -> list[str]:
    return account.network()


@pytest.fixture(scope="session")
def cluster(roles: tuple[str, str], subnets: list[str]) -> dict[str, Any]:
    with socket.socket() as one:
        assert one.connect_ex(("10.0.0.1", 6443)) != 0, "something answers where no cluster is"
    return account.cluster("demo", subnets, roles[0])


@pytest.fixture(scope="session")
def empty(cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Kube:
    """The cluster before it has nodes."""
    return Kube(cluster, tmp_path_factory.mktemp("kube"))


@pytest.fixture(scope="session")
def statuses_without_nodes(empty: Kube) -> dict[str, str]:
    eks = boto3.client("eks")
    for name in account.ADDONS:
        eks.create_addon(clusterName="demo", addonName=name)
    for name in ("coredns", "aws-fsx-csi-driver"):
        account.until(name, lambda name=name: account.addon_status("demo", name), "DEGRADED")
    return {name: account.addon_status("demo", name) for name in account.ADDONS}


@pytest.fixture(scope="session")
def kube(empty: Kube, statuses_without_nodes: dict[str, str], roles: tuple[str, str], subnets: list[str]) -> Kube:
    """The cluster with two system nodes, a GPU node, and EKS's add-ons healthy."""
    account.node_group("demo", "system", roles[1], subnets, "m7i.2xlarge", 2)
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    account.node_group("demo", "gpu", roles[1], subnets[:1], "p5en.48xlarge", 1, labels={"role": "gpu"}, taints=[taint])
    for name in ("system", "gpu"):
        account.until(name, lambda name=name: account.group_status("demo", name), "ACTIVE")
    for name in account.ADDONS:
        account.until(name, lambda name=name: account.addon_status("demo", name), "ACTIVE")
    empty.wait(lambda: empty.run("get", "serviceaccount", "default").returncode == 0)
    return empty


def helm(kube: Kube, release: str, namespace: str, chart: str, *more: str) -> None:
    """The real helm, in a Job, as `nemo` runs it."""
    account_ = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": "default"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "installer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": "default"}],
    }  # fmt: skip
    args = ["upgrade", "--install", release, chart, *more, "-n", namespace, "--create-namespace", "--wait", "--timeout", "2m"]
    spec = {"serviceAccountName": "installer", "restartPolicy": "Never", "containers": [{"name": "helm", "image": IMAGE, "args": args}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"helm-{release}", "namespace": "default"}, "spec": {"backoffLimit": 2, "template": {"spec": spec}}}
    kube.apply(account_, binding, job)
    kube("wait", "--for=condition=complete", f"job/helm-{release}", "--timeout=100s")


@pytest.fixture(scope="session")
def lws(kube: Kube) -> Kube:
    """The cluster with LeaderWorkerSets."""
    helm(kube, "lws", "lws-system", "oci://registry.k8s.io/lws/charts/lws", "--version", "0.9.0")
    return kube


@pytest.fixture(scope="session")
def devices(kube: Kube) -> Kube:
    """The cluster with its GPU node's devices."""
    for name, image in (("gpu-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"), ("efa-plugin", "public.ecr.aws/eks/aws-efa-k8s-device-plugin:v0.5.20")):
        spec = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"role": "gpu"}, "containers": [{"name": "plugin", "image": image}]}
        template = {"metadata": {"labels": {"app": name}}, "spec": spec}
        kube.apply({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        })  # fmt: skip
    return kube


@pytest.fixture(scope="session")
def model() -> str:
    """A folder that every pod sees, with the model's files (23 MB)."""
    folder = RUN / "pods" / "model"
    python = subprocess.run([SANDBOX / "hub" / "setup.sh"], capture_output=True, text=True, check=True).stdout.strip() + "/bin/python"
    subprocess.run([python, "-m", "hub.lay", MODEL, str(folder), "--byte-factor", "10000"], cwd=SANDBOX / "hub", check=True)
    return "/run/w/pods/model"


@pytest.fixture(scope="session")
def operator(lws: Kube, devices: Kube) -> Kube:
    """The cluster with the Dynamo platform. What is installed after it, it does not see: LeaderWorkerSets (and Volcano, without which it takes none) come first."""
    group = {"group": "scheduling.volcano.sh", "scope": "Namespaced", "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}}
    open_ = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    volcano = {"spec": {**group, "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": open_}]}}
    lws.apply({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "podgroups.scheduling.volcano.sh"}, **volcano})
    lws.wait(lambda: lws.run("get", "podgroups.scheduling.volcano.sh").returncode == 0)
    helm(lws, "dynamo-platform", "dynamo-system", "https://helm.ngc.nvidia.com/nvidia/ai-dynamo/charts/dynamo-platform-1.6.1.tgz")
    answered(lws)
    return lws


def answered(kube: Kube) -> None:
    """Ready pods are not enough: the webhooks have to answer."""
    probe = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "probe", "namespace": "default"}, "spec": {}}
    kube.wait(lambda: "at least one component" in kube.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(probe)).stderr)


@pytest.fixture(scope="session")
def web() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    return session
