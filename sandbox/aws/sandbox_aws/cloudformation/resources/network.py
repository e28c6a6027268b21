"""VPCs and what is in them: subnets, gateways, addresses, routes, endpoints."""

from __future__ import annotations

import json
from typing import Any

from .base import KINDS, Context, Kind, Props, given, retag, truth


def _vpc(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ec2 = ctx.client("ec2")
    vpc = ec2.create_vpc(**given(props, "CidrBlock", "InstanceTenancy"), TagSpecifications=ctx.ec2_tags("vpc", props))["Vpc"]
    _vpc_update(ctx, vpc["VpcId"], {}, {}, props)
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc["VpcId"]]}, {"Name": "group-name", "Values": ["default"]}])[
        "SecurityGroups"
    ]
    return vpc["VpcId"], {"VpcId": vpc["VpcId"], "CidrBlock": vpc["CidrBlock"], "DefaultSecurityGroup": groups[0]["GroupId"] if groups else ""}


def _vpc_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    for key in ("EnableDnsSupport", "EnableDnsHostnames"):
        if key in new and new.get(key) != old.get(key):
            ctx.client("ec2").modify_vpc_attribute(VpcId=physical, **{key: {"Value": truth(new[key])}})
    if old:
        retag(ctx, physical, old, new)


KINDS["AWS::EC2::VPC"] = Kind(
    _vpc,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_vpc(VpcId=ident),
    _vpc_update,
    frozenset({"EnableDnsSupport", "EnableDnsHostnames", "Tags"}),
)


def _subnet(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    made = ctx.client("ec2").create_subnet(
        **given(props, "VpcId", "CidrBlock", "AvailabilityZone", "AvailabilityZoneId", "Ipv6CidrBlock"),
        TagSpecifications=ctx.ec2_tags("subnet", props),
    )["Subnet"]
    _subnet_update(ctx, made["SubnetId"], {}, {}, props)
    return made["SubnetId"], {
        "SubnetId": made["SubnetId"],
        "AvailabilityZone": made["AvailabilityZone"],
        "AvailabilityZoneId": made.get("AvailabilityZoneId", ""),
        "VpcId": made["VpcId"],
        "CidrBlock": made["CidrBlock"],
    }


def _subnet_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    if "MapPublicIpOnLaunch" in new and new.get("MapPublicIpOnLaunch") != old.get("MapPublicIpOnLaunch"):
        ctx.client("ec2").modify_subnet_attribute(SubnetId=physical, MapPublicIpOnLaunch={"Value": truth(new["MapPublicIpOnLaunch"])})
    if old:
        retag(ctx, physical, old, new)


KINDS["AWS::EC2::Subnet"] = Kind(
    _subnet,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_subnet(SubnetId=ident),
    _subnet_update,
    frozenset({"MapPublicIpOnLaunch", "Tags"}),
    required=("VpcId",),
)


def _igw(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ident = ctx.client("ec2").create_internet_gateway(TagSpecifications=ctx.ec2_tags("internet-gateway", props))["InternetGateway"][
        "InternetGatewayId"
    ]
    return ident, {"InternetGatewayId": ident}


def _plain_retag(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    retag(ctx, physical, old, new)


KINDS["AWS::EC2::InternetGateway"] = Kind(
    _igw, lambda ctx, ident, attrs, props: ctx.client("ec2").delete_internet_gateway(InternetGatewayId=ident), _plain_retag, frozenset({"Tags"})
)


def _attach(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ctx.client("ec2").attach_internet_gateway(VpcId=props["VpcId"], InternetGatewayId=props["InternetGatewayId"])
    return f"IGW|{props['VpcId']}", {"AttachmentType": "IGW"}


KINDS["AWS::EC2::VPCGatewayAttachment"] = Kind(
    _attach,
    lambda ctx, ident, attrs, props: ctx.client("ec2").detach_internet_gateway(VpcId=props["VpcId"], InternetGatewayId=props["InternetGatewayId"]),
    required=("VpcId",),
)


def _eip(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    made = ctx.client("ec2").allocate_address(Domain=props.get("Domain", "vpc"))
    ctx.client("ec2").create_tags(Resources=[made["AllocationId"]], Tags=ctx.tags(props) + ctx.system_tags())
    return made["PublicIp"], {"AllocationId": made["AllocationId"], "PublicIp": made["PublicIp"]}


def _eip_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    retag(ctx, attrs["AllocationId"], old, new)


KINDS["AWS::EC2::EIP"] = Kind(
    _eip, lambda ctx, ident, attrs, props: ctx.client("ec2").release_address(AllocationId=attrs["AllocationId"]), _eip_update, frozenset({"Tags"})
)


def _nat(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ident = ctx.client("ec2").create_nat_gateway(
        **given(props, "SubnetId", "AllocationId", "ConnectivityType"), TagSpecifications=ctx.ec2_tags("natgateway", props)
    )["NatGateway"]["NatGatewayId"]
    return ident, {"NatGatewayId": ident}


KINDS["AWS::EC2::NatGateway"] = Kind(
    _nat,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_nat_gateway(NatGatewayId=ident),
    _plain_retag,
    frozenset({"Tags"}),
    required=("SubnetId",),
)


def _table(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ident = ctx.client("ec2").create_route_table(VpcId=props["VpcId"], TagSpecifications=ctx.ec2_tags("route-table", props))["RouteTable"][
        "RouteTableId"
    ]
    return ident, {"RouteTableId": ident}


KINDS["AWS::EC2::RouteTable"] = Kind(
    _table,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_route_table(RouteTableId=ident),
    _plain_retag,
    frozenset({"Tags"}),
    required=("VpcId",),
)
TARGETS = (
    "GatewayId",
    "NatGatewayId",
    "TransitGatewayId",
    "NetworkInterfaceId",
    "VpcPeeringConnectionId",
    "EgressOnlyInternetGatewayId",
    "VpcEndpointId",
)
DESTINATIONS = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")


def _route(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ctx.client("ec2").create_route(**given(props, "RouteTableId", *DESTINATIONS, *TARGETS))
    return "|".join([props["RouteTableId"], *given(props, *DESTINATIONS).values()]), {}


def _route_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    ctx.client("ec2").replace_route(**given(new, "RouteTableId", *DESTINATIONS, *TARGETS))


KINDS["AWS::EC2::Route"] = Kind(
    _route,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_route(**given(props, "RouteTableId", *DESTINATIONS)),
    _route_update,
    frozenset(TARGETS),
    required=("RouteTableId",),
)


def _association(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    return ctx.client("ec2").associate_route_table(RouteTableId=props["RouteTableId"], SubnetId=props["SubnetId"])["AssociationId"], {}


KINDS["AWS::EC2::SubnetRouteTableAssociation"] = Kind(
    _association,
    lambda ctx, ident, attrs, props: ctx.client("ec2").disassociate_route_table(AssociationId=ident),
    required=("RouteTableId", "SubnetId"),
)


def _endpoint(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = given(props, "VpcId", "ServiceName", "VpcEndpointType", "RouteTableIds", "SubnetIds", "SecurityGroupIds", "PrivateDnsEnabled")
    if "PrivateDnsEnabled" in args:
        args["PrivateDnsEnabled"] = truth(args["PrivateDnsEnabled"])
    if props.get("PolicyDocument"):
        args["PolicyDocument"] = json.dumps(props["PolicyDocument"])
    ident = ctx.client("ec2").create_vpc_endpoint(**args, TagSpecifications=ctx.ec2_tags("vpc-endpoint", props))["VpcEndpoint"]["VpcEndpointId"]
    return ident, {"Id": ident}


def _endpoint_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    args: Props = {}
    for key, name in (("RouteTableIds", "RouteTableIds"), ("SubnetIds", "SubnetIds"), ("SecurityGroupIds", "SecurityGroupIds")):
        before, after = set(old.get(key) or []), set(new.get(key) or [])
        args.update({f"Add{name}": sorted(after - before), f"Remove{name}": sorted(before - after)})
    if new.get("PolicyDocument") and new.get("PolicyDocument") != old.get("PolicyDocument"):
        args["PolicyDocument"] = json.dumps(new["PolicyDocument"])
    ctx.client("ec2").modify_vpc_endpoint(VpcEndpointId=physical, **{key: value for key, value in args.items() if value})


KINDS["AWS::EC2::VPCEndpoint"] = Kind(
    _endpoint,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_vpc_endpoints(VpcEndpointIds=[ident]),
    _endpoint_update,
    frozenset({"RouteTableIds", "SubnetIds", "SecurityGroupIds", "PolicyDocument", "Tags"}),
    required=("VpcId", "ServiceName"),
)
