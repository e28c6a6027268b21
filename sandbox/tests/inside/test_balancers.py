"""A Service of type LoadBalancer, as the cloud's controller keeps it."""

from __future__ import annotations

import subprocess

from conftest import Kube, pod
from test_pods import SERVE

ANNOTATIONS = {
    "service.beta.kubernetes.io/aws-load-balancer-type": "nlb",
    "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags": "owner=tests",
}


def curl(host: str, client: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["curl", "-sS", "--noproxy", "*", "--max-time", "3", "--interface", client, f"http://{host}/"], capture_output=True, text=True)


def test_has_a_name_lets_in_who_may_and_goes_before_its_service(kube: Kube, web) -> None:
    balancers = lambda: web.get("http://aws.sandbox:5005/_sandbox/loadbalancers").json()  # noqa: E731
    spec = {"type": "LoadBalancer", "selector": {"app": "balanced"}, "loadBalancerSourceRanges": ["10.9.0.0/16"], "ports": [{"port": 80, "targetPort": 8000}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "balanced", "namespace": "default", "annotations": ANNOTATIONS}, "spec": spec}
    serve = SERVE.replace("exec python3 -m http.server", "exec python3 -u -m http.server")
    kube.apply(pod("balanced", "sh", "-c", serve, labels={"app": "balanced"}, container={"readinessProbe": {"httpGet": {"port": 8000, "path": "/"}, "periodSeconds": 1}}), service)
    kube.ready("balanced")
    host = kube.wait(lambda: kube("get", "service", "balanced", "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}"))
    [row] = balancers()
    assert (row["dns"], row["public"], row["type"], row["service"]) == (host, False, "nlb", "default/balanced")
    assert kube.wait(lambda: curl(host, "10.9.0.1").stdout).strip() == "balanced", "its name leads to the pod once it is active"
    assert curl(host, "10.77.0.1").returncode == 28, "who may not connect hears nothing"
    assert "10.9.0.1 - " in kube("logs", "balanced"), "the pod sees the client's own address"
    kube("delete", "service", "balanced", "--timeout=60s")
    assert balancers() == [], "the Service stayed until it was gone"
    assert curl(host, "10.9.0.1").returncode == 6, "and its name with it"
    kube("delete", "pod", "balanced", "--wait=false")
