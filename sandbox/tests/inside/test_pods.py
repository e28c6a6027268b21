"""What the product does with pods, by kubectl."""

from __future__ import annotations

import socket
import time
import urllib.request

import pytest
from conftest import pod

SERVE = "mkdir -p /tmp/w && cd /tmp/w && hostname > index.html && exec python3 -m http.server 8000 --bind 0.0.0.0"


@pytest.fixture(scope="module")
def web_pod(kube):
    kube.apply(
        pod("web", "sh", "-c", SERVE, labels={"app": "web"}, container={"readinessProbe": {"httpGet": {"port": 8000, "path": "/"}, "periodSeconds": 1}}),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]}},
        pod("client", "sleep", "10000"),
    )
    kube.ready("web")
    kube.ready("client")
    return kube


def test_logs_follow(kube):
    kube.apply(pod("ticker", "sh", "-c", "i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.2; done"))
    kube.ready("ticker")
    following = kube.popen("logs", "-f", "ticker")
    try:
        lines = [following.stdout.readline().strip() for _ in range(8)]
    finally:
        following.kill()
    assert lines[0] == "tick 0" and lines[7] == "tick 7"
    kube("delete", "pod", "ticker", "--wait=false")


def test_exec_gives_the_exit_code_and_both_streams(web_pod):
    done = web_pod.run("exec", "-i", "client", "--", "sh", "-c", "cat; echo oops >&2; exit 3", stdin="through")
    assert done.returncode == 3 and done.stdout == "through" and "oops" in done.stderr


def test_port_forward(web_pod):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    forward = web_pod.popen("port-forward", "pod/web", f"{port}:8000")
    try:
        assert "Forwarding" in forward.stdout.readline()
        for _ in range(3):
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read().decode().strip() == "web"
    finally:
        forward.kill()


def test_names_and_a_service_from_inside_a_pod(web_pod):
    fetch = "import urllib.request; print(urllib.request.urlopen('http://web.default.svc.cluster.local/', timeout=10).read().decode())"
    assert web_pod("exec", "client", "--", "python3", "-c", fetch).strip() == "web"
    resolved = web_pod("exec", "client", "--", "getent", "hosts", "kubernetes.default").split()
    assert resolved[0] == "10.100.0.1"
    assert web_pod("exec", "client", "--", "getent", "hosts", "hub.sandbox").split()[0] == "10.0.0.1"
    assert web_pod.run("exec", "client", "--", "getent", "hosts", "no-such-host.example").returncode == 2
    tls = "import urllib.request; print(urllib.request.urlopen('https://nvidia.github.io/k8s-device-plugin/stable/nvidia-device-plugin-0.17.4.tgz').status)"
    assert web_pod("exec", "client", "--", "python3", "-c", tls).strip() == "200", "pods trust the sandbox's CA"


def test_a_pending_pod_says_why(kube):
    kube.apply(pod("large", "sleep", "1", container={"resources": {"requests": {"cpu": "1000"}}}))
    conditions = kube.wait(lambda: kube.get("pod", "large")["status"].get("conditions"))
    assert conditions[0]["reason"] == "Unschedulable" and "Insufficient cpu" in conditions[0]["message"]
    kube("delete", "pod", "large")


def test_a_job_gives_up_after_its_backoff_limit(kube):
    template = {"spec": {"restartPolicy": "Never", "containers": pod("x", "sh", "-c", "exit 7")["spec"]["containers"]}}
    kube.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fails", "namespace": "default"}, "spec": {"backoffLimit": 1, "template": template}})
    began = time.monotonic()
    condition = kube.wait(lambda: [c for c in kube.get("job", "fails")["status"].get("conditions", []) if c["type"] == "Failed"], limit=60)
    assert condition[0]["reason"] == "BackoffLimitExceeded" and kube.get("job", "fails")["status"]["failed"] == 2
    assert time.monotonic() - began >= 5, "the second try waits, as the real controller lets it"
