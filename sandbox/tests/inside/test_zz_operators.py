"""LeaderWorkerSet by its real controller, installed by the real helm; who changed what; and the end of it all."""

from __future__ import annotations

import json
import socket
import time

import account
import boto3
from conftest import RUN, Kube


def test_leader_worker_set(lws):
    kube = lws
    worker = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "docker.io/alpine/helm:3.22.0", "command": ["sleep", "1000"]}]}}
    pair = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "pair", "namespace": "default"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": worker}},
    }  # fmt: skip
    kube.apply(pair)
    kube.wait(lambda: kube.run("get", "pod", "pair-0-1").returncode == 0)
    kube.ready("pair-0-1")
    lookup = ("exec", "pair-0-1", "--", "sh", "-c", "echo $LWS_LEADER_ADDRESS; getent hosts $LWS_LEADER_ADDRESS")
    leader = kube.wait(lambda: (done := kube.run(*lookup)).returncode == 0 and done.stdout.split())  # the name follows the pod
    assert leader[0] == "pair-0.pair.default" and leader[1].startswith("10.42.")


def test_writes_are_counted_by_who_made_them(kube):
    kube("create", "configmap", "counted")
    kube("get", "configmap", "counted")

    def rows():
        lines = (RUN / "audit.log").read_text().splitlines()
        return [row for row in map(json.loads, lines) if (row.get("objectRef") or {}).get("name") == "counted"]

    found = kube.wait(rows)
    assert [row["verb"] for row in found] == ["create"], "reads are not written down"
    assert found[0]["user"]["username"].startswith("arn:aws:iam::123456789012:user/")


def test_the_end(kube, subnets, roles, tmp_path):
    """Node groups drain and go, the cluster goes, nothing answers, and the next cluster is empty."""
    eks = boto3.client("eks")
    for name in ("system", "gpu"):
        eks.delete_nodegroup(clusterName="demo", nodegroupName=name)
    for name in ("system", "gpu"):
        account.until(name, lambda name=name: account.group_status("demo", name), "gone")
    assert json.loads(kube("get", "nodes", "-o", "json"))["items"] == []
    eks.delete_cluster(name="demo")
    account.until("cluster", lambda: eks.list_clusters()["clusters"], [])
    with socket.socket() as one:
        assert one.connect_ex(("10.0.0.1", 6443)) != 0
    began = time.monotonic()
    again = Kube(account.cluster("again", subnets, roles[0]), tmp_path)
    assert time.monotonic() - began < 60
    assert "counted" not in again("get", "configmaps", "-A") and "lws-system" not in again("get", "namespaces")
