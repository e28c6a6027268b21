"""FSx for Lustre: a file system is shared by all nodes, and a mount that would fail on AWS fails here, in its words."""

from __future__ import annotations

from typing import Any

import account
import boto3
import pytest
from conftest import pod


@pytest.fixture(scope="module")
def filesystem(kube, subnets) -> dict[str, Any]:
    ec2, fsx = boto3.client("ec2"), boto3.client("fsx")
    config = kube.cluster["resourcesVpcConfig"]
    group = ec2.create_security_group(GroupName="fsx", Description="lustre", VpcId=config["vpcId"])["GroupId"]
    peers = [{"GroupId": one} for one in (group, config["clusterSecurityGroupId"])]
    ranges = [{"IpProtocol": "tcp", "FromPort": low, "ToPort": high, "UserIdGroupPairs": peers} for low, high in ((988, 988), (1018, 1023))]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=ranges)
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
    made = fsx.create_file_system(FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=subnets[:1], SecurityGroupIds=[group], LustreConfiguration=lustre)["FileSystem"]
    describe = lambda: fsx.describe_file_systems(FileSystemIds=[made["FileSystemId"]])["FileSystems"][0]  # noqa: E731
    account.until("file system", lambda: describe()["Lifecycle"], "AVAILABLE")
    return describe()


def volume(name: str, filesystem: dict[str, Any], mount: str) -> list[dict[str, Any]]:
    attributes = {"dnsname": filesystem["DNSName"], "mountname": mount}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": name, "resources": {"requests": {"storage": "1200Gi"}}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": "1200Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "claimRef": {"namespace": "default", "name": name},
            "csi": {"driver": "fsx.csi.aws.com", "volumeHandle": filesystem["FileSystemId"], "volumeAttributes": attributes},
        }},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec},
    ]  # fmt: skip


def user(name: str, claim: str, *command: str, **more: Any) -> dict[str, Any]:
    volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}]
    return pod(name, *command, volumes=volumes, container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}, **more)


def test_what_one_node_writes_another_reads(kube, filesystem):
    kube.apply(*volume("models", filesystem, filesystem["LustreConfiguration"]["MountName"]))
    kube.wait(lambda: kube.get("pvc", "models")["status"]["phase"] == "Bound")
    kube.apply(user("writer", "models", "sleep", "1000", nodeSelector={"eks.amazonaws.com/nodegroup": "system"}))
    kube.apply(user("reader", "models", "sleep", "1000", nodeSelector={"role": "gpu"}, tolerations=[{"operator": "Exists"}]))
    kube.ready("writer")
    kube.ready("reader")
    kube("exec", "writer", "--", "sh", "-c", "echo 42 > /shared/answer")
    assert kube("exec", "reader", "--", "cat", "/shared/answer").strip() == "42"
    assert "wheels" in kube("exec", "reader", "--", "ls", "/shared").split()
    kube("delete", "pod", "writer", "reader", "--wait=false")


def test_a_wrong_mount_name_fails_as_lustre_does(kube, filesystem):
    kube.apply(*volume("wrong", filesystem, "abcdefgh"), user("mistaken", "wrong", "sleep", "1000"))
    kube.wait(lambda: "mount.lustre: mount" in kube.events("mistaken"), limit=60)
    assert "/var/lib/kubelet/pods/" in kube.events("mistaken")
    kube("delete", "pod", "mistaken", "--wait=false")
