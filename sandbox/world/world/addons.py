"""EKS's own add-ons as objects in kube-system: real Deployments and DaemonSets of images from EKS's registry, so that an add-on
is healthy only where its pods run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import kube
from .paths import EKS_IMAGES

NAMESPACE = "/namespaces/kube-system"
EVERYWHERE = [{"operator": "Exists"}]
CONTROL = [{"key": "CriticalAddonsOnly", "operator": "Exists"}, {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]


@dataclass(frozen=True)
class Addon:
    """What an add-on puts into the cluster."""

    image: str  # repository in EKS's registry
    daemon: str = ""  # its DaemonSet
    deployment: str = ""
    host: bool = False  # on the node's own network, so that it runs before the CNI does
    driver: str = ""  # CSI driver


ADDONS = {
    "vpc-cni": Addon("amazon-k8s-cni", daemon="aws-node", host=True),
    "kube-proxy": Addon("eks/kube-proxy", daemon="kube-proxy", host=True),
    "eks-pod-identity-agent": Addon("eks/eks-pod-identity-agent", daemon="eks-pod-identity-agent", host=True),
    "coredns": Addon("eks/coredns", deployment="coredns"),
    "aws-ebs-csi-driver": Addon("eks/aws-ebs-csi-driver", daemon="ebs-csi-node", deployment="ebs-csi-controller", driver="ebs.csi.aws.com"),
    "aws-fsx-csi-driver": Addon("eks/aws-fsx-csi-driver", daemon="fsx-csi-node", deployment="fsx-csi-controller", driver="fsx.csi.aws.com"),
}
BOOTSTRAP = ("vpc-cni", "kube-proxy", "coredns")  # what a new cluster has unless bootstrapSelfManagedAddons is false


def labels(addon: str, name: str) -> dict[str, str]:
    extra = {"k8s-app": "kube-dns"} if addon == "coredns" else {"k8s-app": name}
    return {"app.kubernetes.io/name": addon, "app": name, **extra}


def workload(addon: str, version: str, kind: str, name: str) -> dict[str, Any]:
    what, own = ADDONS[addon], labels(addon, name)
    daemon = kind == "DaemonSet"
    container = {"name": name, "image": f"{EKS_IMAGES}/{what.image}:{version}", "resources": {"requests": {"cpu": "25m", "memory": "40Mi"}}}
    pod = {
        "priorityClassName": "system-node-critical" if daemon else "system-cluster-critical",
        "tolerations": EVERYWHERE if daemon else CONTROL,
        "hostNetwork": what.host and daemon,
        "terminationGracePeriodSeconds": 5,
        "serviceAccountName": name,
        "containers": [container],
    }
    spec: dict[str, Any] = {"selector": {"matchLabels": own}, "template": {"metadata": {"labels": own}, "spec": pod}}
    if not daemon:
        spec["replicas"] = 2
    managed = {**own, "app.kubernetes.io/managed-by": "EKS"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "kube-system", "labels": managed}, "spec": spec}


def install(addon: str, version: str) -> None:
    what = ADDONS[addon]
    for kind, plural, name in (("DaemonSet", "daemonsets", what.daemon), ("Deployment", "deployments", what.deployment)):
        if name:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}}
            kube.apply(f"/api/v1{NAMESPACE}/serviceaccounts/{name}", account)
            kube.apply(f"/apis/apps/v1{NAMESPACE}/{plural}/{name}", workload(addon, version, kind, name))
    if what.driver:
        driver = {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": what.driver}, "spec": {"attachRequired": what.driver.startswith("ebs")},
        }  # fmt: skip
        kube.apply(f"/apis/storage.k8s.io/v1/csidrivers/{what.driver}", driver)
    if addon == "coredns":
        ports = [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53}, {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53}]
        spec = {"clusterIP": "10.100.0.10", "selector": {"k8s-app": "kube-dns"}, "ports": ports}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}, "spec": spec}
        kube.apply(f"/api/v1{NAMESPACE}/services/kube-dns", service)


def health(addon: str, version: str) -> dict[str, Any]:
    """ACTIVE, or DEGRADED with EKS's own code, as the workloads say. Installs or moves the version first."""
    what = ADDONS.get(addon)
    if what is None:
        return {"status": "CREATE_FAILED", "issues": [{"code": "AdmissionRequestDenied", "message": f"the sandbox has no objects for add-on {addon}"}]}
    install(addon, version)
    unhealthy = []
    if what.deployment:
        status = kube.get(f"/apis/apps/v1{NAMESPACE}/deployments/{what.deployment}")["status"]
        if status.get("readyReplicas", 0) < 2:
            unhealthy.append(f"deployment {what.deployment}: {status.get('readyReplicas', 0)} of 2 replicas ready")
    if what.daemon:
        status = kube.get(f"/apis/apps/v1{NAMESPACE}/daemonsets/{what.daemon}")["status"]
        if status.get("numberReady", 0) < status.get("desiredNumberScheduled", 0):
            unhealthy.append(f"daemonset {what.daemon}: {status.get('numberReady', 0)} of {status.get('desiredNumberScheduled', 0)} pods ready")
    if unhealthy:
        message = "The add-on is unhealthy because it doesn't have the desired number of replicas. " + "; ".join(unhealthy)
        return {"status": "DEGRADED", "issues": [{"code": "InsufficientNumberOfReplicas", "message": message}]}
    return {"status": "ACTIVE", "issues": []}


def remove(addon: str) -> None:
    what = ADDONS.get(addon)
    if what is None:
        return
    if what.daemon:
        kube.delete(f"/apis/apps/v1{NAMESPACE}/daemonsets/{what.daemon}")
    if what.deployment:
        kube.delete(f"/apis/apps/v1{NAMESPACE}/deployments/{what.deployment}")
    if what.driver:
        kube.delete(f"/apis/storage.k8s.io/v1/csidrivers/{what.driver}")


def access_policies() -> None:
    """EKS's access policies, as far as Kubernetes' own roles say the same: sign-in puts their holders into these groups."""
    for role in ("admin", "edit", "view"):
        name = f"eks-access:{role}"
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}],
        }  # fmt: skip
        kube.apply(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}", binding)
