"""Nodes as their instance types have them, add-ons, devices, images."""

from __future__ import annotations

import json

import boto3
from conftest import pod

REGISTRY = "123456789012.dkr.ecr.us-east-2.amazonaws.com"


def test_addons_are_degraded_without_nodes(statuses_without_nodes):
    assert statuses_without_nodes["coredns"] == "DEGRADED"
    assert statuses_without_nodes["aws-fsx-csi-driver"] == "DEGRADED"
    assert statuses_without_nodes["kube-proxy"] == "ACTIVE", "a DaemonSet that wants no pods is healthy"


def test_a_gpu_node_is_a_p5en(kube):
    (node,) = json.loads(kube("get", "nodes", "-l", "eks.amazonaws.com/nodegroup=gpu", "-o", "json"))["items"]
    labels, allocatable = node["metadata"]["labels"], node["status"]["allocatable"]
    assert labels["node.kubernetes.io/instance-type"] == "p5en.48xlarge"
    assert labels["topology.kubernetes.io/zone"] == "us-east-2b" and labels["role"] == "gpu"
    assert allocatable["cpu"] == "95690m" and int(allocatable["pods"]) == 100
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    instance = node["spec"]["providerID"].rsplit("/", 1)[1]
    (found,) = boto3.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
    assert found["PrivateIpAddress"] == node["status"]["addresses"][0]["address"] and found["InstanceType"] == "p5en.48xlarge"
    assert node["status"]["capacity"]["hugepages-2Mi"] == "10256Mi"


def test_devices_appear_with_their_plugins(kube, request):
    (node,) = json.loads(kube("get", "nodes", "-l", "role=gpu", "-o", "json"))["items"]
    assert not [resource for resource in node["status"]["allocatable"] if "/" in resource], "no plugin runs yet"
    limits = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16"}
    tolerate = [{"operator": "Exists"}]
    kube.apply(pod("hungry", "sleep", "1000", tolerations=tolerate, container={"resources": {"limits": limits}}))
    reason = kube.wait(lambda: [c["message"] for c in kube.get("pod", "hungry")["status"].get("conditions", []) if c.get("reason") == "Unschedulable"])
    assert "Insufficient nvidia.com/gpu" in reason[0] and "Insufficient vpc.amazonaws.com/efa" in reason[0]
    request.getfixturevalue("devices")
    kube.ready("hungry")
    assert kube("exec", "hungry", "--", "printenv", "NVIDIA_VISIBLE_DEVICES").strip() == "0,1,2,3,4,5,6,7"
    assert kube("exec", "hungry", "--", "printenv", "SANDBOX_EFA_DEVICES").strip() == "16"
    kube("delete", "pod", "hungry")


def test_an_image_that_is_not_in_ecr(kube):
    ecr = boto3.client("ecr")
    ecr.create_repository(repositoryName="here")
    name_of = {"no-tag": f"{REGISTRY}/here:none", "no-repository": f"{REGISTRY}/nowhere:1"}
    for name, image in name_of.items():
        kube.apply(pod(name, image=image))
    for name in name_of:
        waiting = kube.wait(lambda name=name: [c["state"]["waiting"] for c in kube.get("pod", name)["status"].get("containerStatuses", []) if "Pull" in c["state"].get("waiting", {}).get("reason", "")])
        assert waiting[0]["reason"] in ("ErrImagePull", "ImagePullBackOff")
        assert f"{name_of[name]}: not found" in kube.events(name)
        kube("delete", "pod", name, "--wait=false")
