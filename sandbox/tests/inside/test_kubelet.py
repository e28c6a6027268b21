"""What the container runtime under the real kubelet has to get right."""

from __future__ import annotations

import json
import time

import pytest
from conftest import pod

STAY = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def full(kube):
    """One pod with every kind of environment and volume that manifests of the product use."""
    kube("create", "configmap", "settings", "--from-literal=color=blue", "--from-literal=file.txt=from-config")
    kube("create", "secret", "generic", "keys", "--from-literal=token=hunter2")
    mounts = [
        {"name": "scratch", "mountPath": "/scratch"}, {"name": "settings", "mountPath": "/settings"}, {"name": "keys", "mountPath": "/keys"},
        {"name": "settings", "mountPath": "/one/file.txt", "subPath": "file.txt"}, {"name": "pod", "mountPath": "/pod"}, {"name": "shm", "mountPath": "/dev/shm"},
    ]  # fmt: skip
    env = [
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
        {"name": "MIXED", "value": "mixed $(COLOR) $(MEMORY)"},
    ]  # fmt: skip
    container = {"env": env, "volumeMounts": mounts, "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}, "securityContext": {"readOnlyRootFilesystem": True}}
    volumes = [
        {"name": "scratch", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "settings"}}, {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "pod", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]  # fmt: skip
    image = pod("x")["spec"]["containers"][0]["image"]
    first = {"name": "first", "image": image, "command": ["sh", "-c", "echo made > /scratch/x"], "volumeMounts": mounts[:1]}
    side = {"name": "side", "image": image, "restartPolicy": "Always", "command": ["sh", "-c", STAY]}
    kube.apply(pod("full", "sh", "-c", f"trap 'echo bye; exit 0' TERM; {STAY.split(';', 1)[1]}", labels={"role": "full"}, container=container, volumes=volumes, initContainers=[first, side]))
    kube.ready("full")
    return lambda *command: kube("exec", "full", "-c", "main", "--", *command).strip()


def test_environment(full):
    assert full("sh", "-c", "echo $COLOR $KEY $MIXED") == "blue hunter2 mixed blue 67108864"
    assert full("printenv", "POD_IP").startswith("10.42.")
    assert full("printenv", "KUBERNETES_SERVICE_HOST") == "10.100.0.1"


def test_volumes(full):
    read = full("sh", "-c", "for f in /scratch/x /settings/color /one/file.txt /keys/token /pod/labels; do cat $f; echo; done; stat -f -c %T /dev/shm")
    assert read.split()[:5] == ["made", "blue", "from-config", "hunter2", 'role="full"'] and read.split()[-1] == "tmpfs"
    assert full("sh", "-c", "touch /scratch/y && ! touch /nowhere 2> /dev/null && echo ro") == "ro"


def test_the_service_account_token_opens_the_api(full):
    ask = "import ssl, urllib.request as u; d='/var/run/secrets/kubernetes.io/serviceaccount/'; r=u.Request('https://kubernetes.default.svc/version', headers={'Authorization': 'Bearer '+open(d+'token').read()}); print(u.urlopen(r, context=ssl.create_default_context(cafile=d+'ca.crt')).status)"
    assert full("python3", "-c", ask) == "200"


def test_sigterm_reaches_the_program_and_its_last_words_the_log(kube, full):
    following = kube.popen("logs", "-f", "full", "-c", "main")
    time.sleep(0.5)  # the follower has to be there before the pod ends
    kube("delete", "pod", "full", "--timeout=20s")
    assert "bye" in following.communicate(timeout=10)[0]


def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(kube):
    kube.apply(pod("deaf", "sleep", "1000", terminationGracePeriodSeconds=2))
    kube.ready("deaf")
    began = time.monotonic()
    kube("delete", "pod", "deaf", "--timeout=30s")
    assert 2 <= time.monotonic() - began < 8


def test_liveness_restarts_and_the_old_log_is_kept(kube):
    probe = {"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1}
    kube.apply(pod("unwell", "sh", "-c", f"echo one life; {STAY}", container={"livenessProbe": probe}))
    kube.wait(lambda: (kube.get("pod", "unwell")["status"].get("containerStatuses") or [{}])[0].get("restartCount", 0) >= 1)
    assert kube.wait(lambda: kube.run("logs", "--previous", "unwell").stdout).strip() == "one life"
    kube("delete", "pod", "unwell", "--wait=false")


def test_a_startup_probe_holds_readiness_back(kube):
    probe = {"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 60}
    kube.apply(pod("slow", "sh", "-c", "sleep 3; exec python3 -m http.server 8000 --bind 0.0.0.0", container={"startupProbe": probe}))
    kube.wait(lambda: kube.get("pod", "slow")["status"]["phase"] == "Running")
    assert kube.get("pod", "slow")["status"]["containerStatuses"][0]["started"] is False
    kube.ready("slow")
    kube("delete", "pod", "slow", "--wait=false")


def test_exit_code_reason_and_termination_message(kube):
    kube.apply(pod("ends", "sh", "-c", "echo last words > /dev/termination-log; exit 4", restartPolicy="Never"))
    state = kube.wait(lambda: (kube.get("pod", "ends")["status"].get("containerStatuses") or [{"state": {}}])[0]["state"].get("terminated"))
    assert (state["exitCode"], state["reason"], state["message"].strip()) == (4, "Error", "last words")
    kube.wait(lambda: kube.get("pod", "ends")["status"]["phase"] == "Failed")


def test_users(kube):
    context = {"runAsUser": 1000, "runAsGroup": 2000, "runAsNonRoot": True, "fsGroup": 1000}
    kube.apply(pod("person", "sh", "-c", "id -u; id -g; touch /scratch/mine && echo wrote", restartPolicy="Never", securityContext=context,
                   volumes=[{"name": "s", "emptyDir": {}}], container={"volumeMounts": [{"name": "s", "mountPath": "/scratch"}]}))  # fmt: skip
    kube.wait(lambda: kube.get("pod", "person")["status"]["phase"] == "Succeeded")
    assert kube("logs", "person").split() == ["1000", "2000", "wrote"]


def test_a_missing_key_is_a_configuration_error(kube):
    kube.apply(pod("unset", "true", container={"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "none"}}}]}))
    waiting = kube.wait(lambda: (kube.get("pod", "unset")["status"].get("containerStatuses") or [{"state": {}}])[0]["state"].get("waiting", {}).get("reason") == "CreateContainerConfigError")
    assert waiting and 'configmap "none" not found' in kube.wait(lambda: kube.events("unset"))
    kube("delete", "pod", "unset", "--wait=false")


def test_an_ephemeral_container(kube):
    kube.apply(pod("looked-at", "sh", "-c", STAY))
    kube.ready("looked-at")
    image = pod("x")["spec"]["containers"][0]["image"]
    kube("debug", "looked-at", f"--image={image}", "-c", "looker", "--", "sh", "-c", "echo looking")
    assert kube.wait(lambda: kube.run("logs", "looked-at", "-c", "looker").stdout).strip() == "looking"
    kube("delete", "pod", "looked-at", "--wait=false")


def test_a_host_network_pod_has_the_nodes_address(kube):
    kube.apply(pod("hosted", "sh", "-c", STAY, hostNetwork=True))
    kube.ready("hosted")
    status = json.loads(kube("get", "pod", "hosted", "-o", "json"))["status"]
    assert status["podIP"] == status["hostIP"]
    addresses = json.loads(kube("get", "nodes", "-o", "json"))["items"]
    assert status["podIP"] in [a["address"] for node in addresses for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
    kube("delete", "pod", "hosted", "--wait=false")


def test_a_node_port(kube):
    kube.apply(
        pod("door", "python3", "-m", "http.server", "8000", "--bind", "0.0.0.0", labels={"app": "door"}),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "door", "namespace": "default"}, "spec": {"type": "NodePort", "selector": {"app": "door"}, "ports": [{"port": 8000}]}},
    )
    kube.ready("door")
    port = kube.get("service", "door")["spec"]["ports"][0]["nodePort"]
    node = kube.get("pod", "door")["status"]["hostIP"]
    fetch = f"import urllib.request as u; print(u.urlopen('http://{node}:{port}/', timeout=5).status)"
    kube.apply(pod("caller", "sleep", "1000"))
    kube.ready("caller")
    assert kube.wait(lambda: kube.run("exec", "caller", "--", "python3", "-c", fetch).stdout).strip() == "200"
    kube("delete", "pod", "door", "caller", "--wait=false")
