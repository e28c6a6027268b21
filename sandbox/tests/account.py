"""An account with a cluster in it, made by the AWS API alone: the shortest way to nodes."""

from __future__ import annotations

import base64
import datetime
import json
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import boto3
import botocore.auth
from botocore.model import ServiceId
from botocore.signers import RequestSigner

ZONES = ("us-east-2b", "us-east-2c")  # p5en.48xlarge is not offered in us-east-2a
ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "aws-ebs-csi-driver", "aws-fsx-csi-driver")


def until(what: str, get: Callable[[], Any], want: Any, limit: float = 120) -> None:
    end = time.monotonic() + limit
    while (got := get()) != want:
        assert "FAILED" not in str(got), f"{what}: {got}"
        assert time.monotonic() < end, f"{what}: still {got} after {limit} s"
        time.sleep(0.1)


def role(name: str, service: str) -> str:
    iam = boto3.client("iam")
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}]}
    return iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]


def network() -> list[str]:
    """Private subnets in two zones behind one NAT gateway."""
    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.20.0.0/16")["Vpc"]["VpcId"]
    for setting in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=vpc, **{setting: {"Value": True}})
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)

    def subnet(number: int, zone: str, table: str) -> str:
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.20.{number * 32}.0/19", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        ec2.associate_route_table(RouteTableId=table, SubnetId=made)
        return made

    def table(**target: str) -> str:
        made = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.create_route(RouteTableId=made, DestinationCidrBlock="0.0.0.0/0", **target)
        return made

    public = subnet(0, ZONES[0], table(GatewayId=gateway))
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=public, AllocationId=address)["NatGateway"]["NatGatewayId"]
    until("NAT gateway", lambda: ec2.describe_nat_gateways(NatGatewayIds=[nat])["NatGateways"][0]["State"], "available")
    private = table(NatGatewayId=nat)
    return [subnet(number + 1, zone, private) for number, zone in enumerate(ZONES)]


def cluster(name: str, subnets: list[str], role_arn: str) -> dict[str, Any]:
    eks = boto3.client("eks")
    until("role", lambda: made(lambda: eks.create_cluster(
        name=name, roleArn=role_arn, version="1.35", resourcesVpcConfig={"subnetIds": subnets},
        accessConfig={"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
    )), True)  # fmt: skip
    until("cluster", lambda: eks.describe_cluster(name=name)["cluster"]["status"], "ACTIVE")
    return eks.describe_cluster(name=name)["cluster"]


def made(call: Callable[[], Any]) -> bool:
    """A new role cannot be used for some seconds."""
    try:
        call()
        return True
    except boto3.client("eks").exceptions.InvalidParameterException as no:
        assert "role" in str(no).lower(), no
        return False


def node_group(cluster_name: str, name: str, role_arn: str, subnets: list[str], instance_type: str, count: int, **more: Any) -> None:
    eks = boto3.client("eks")
    until("role", lambda: made(lambda: eks.create_nodegroup(
        clusterName=cluster_name, nodegroupName=name, subnets=subnets, nodeRole=role_arn, instanceTypes=[instance_type],
        scalingConfig={"minSize": 1, "maxSize": count, "desiredSize": count}, **more,
    )), True)  # fmt: skip


def group_status(cluster_name: str, name: str) -> str:
    eks = boto3.client("eks")
    try:
        group = eks.describe_nodegroup(clusterName=cluster_name, nodegroupName=name)["nodegroup"]
    except eks.exceptions.ResourceNotFoundException:
        return "gone"
    return group["status"] if group["status"] != "CREATE_FAILED" else f"CREATE_FAILED {group['health']}"


def addon_status(cluster_name: str, name: str) -> str:
    return boto3.client("eks").describe_addon(clusterName=cluster_name, addonName=name)["addon"]["status"]


def token(cluster_name: str, secret: str | None = None, age: float = 0) -> str:
    """A bearer token as EKS takes it; for bad ones: signed with another secret, or `age` seconds ago."""
    session = boto3.session.Session()
    if secret:
        session = boto3.session.Session(aws_access_key_id=session.get_credentials().access_key, aws_secret_access_key=secret)
    signer = RequestSigner(ServiceId("sts"), session.region_name, "sts", "v4", session.get_credentials(), session.events)
    url = f"https://sts.{session.region_name}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
    ask = {"method": "GET", "url": url, "body": {}, "headers": {"x-k8s-aws-id": cluster_name}, "context": {}}
    if not age:
        signed = signer.generate_presigned_url(ask, region_name=session.region_name, expires_in=60, operation_name="")
    else:
        then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
        with mock.patch.object(botocore.auth, "get_current_datetime", lambda *_, **__: then.replace(tzinfo=None)):
            signed = signer.generate_presigned_url(ask, region_name=session.region_name, expires_in=60, operation_name="")
        assert then.strftime("%Y%m%dT%H%M") in signed, "the clock of botocore was not turned back"
    return "k8s-aws-v1." + base64.urlsafe_b64encode(signed.encode()).decode().rstrip("=")
