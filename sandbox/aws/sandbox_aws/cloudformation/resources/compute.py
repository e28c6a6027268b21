"""Security groups, launch templates, capacity reservations and placement groups."""

from __future__ import annotations

from typing import Any

from .base import KINDS, Context, Kind, Props, given, retag, truth


def permission(rule: Props, egress: bool) -> Props:
    """One rule of a template as an IpPermission."""
    made: Props = {"IpProtocol": str(rule["IpProtocol"])}
    for key in ("FromPort", "ToPort"):
        if rule.get(key) is not None:
            made[key] = int(rule[key])
    note = given(rule, "Description")
    peer = rule.get("DestinationSecurityGroupId") if egress else rule.get("SourceSecurityGroupId")
    if rule.get("CidrIp"):
        made["IpRanges"] = [{"CidrIp": rule["CidrIp"], **note}]
    if rule.get("CidrIpv6"):
        made["Ipv6Ranges"] = [{"CidrIpv6": rule["CidrIpv6"], **note}]
    if peer:
        made["UserIdGroupPairs"] = [{"GroupId": peer, **note}]
    prefix = rule.get("DestinationPrefixListId") if egress else rule.get("SourcePrefixListId")
    if prefix:
        made["PrefixListIds"] = [{"PrefixListId": prefix, **note}]
    return made


ALL_OUT = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


def _group(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    ec2 = ctx.client("ec2")
    name = ctx.name(props, "GroupName", 255)
    ident = ec2.create_security_group(
        GroupName=name, Description=props["GroupDescription"], **given(props, "VpcId"), TagSpecifications=ctx.ec2_tags("security-group", props)
    )["GroupId"]
    if props.get("SecurityGroupIngress"):
        ec2.authorize_security_group_ingress(GroupId=ident, IpPermissions=[permission(rule, False) for rule in props["SecurityGroupIngress"]])
    if props.get("SecurityGroupEgress"):
        ec2.revoke_security_group_egress(GroupId=ident, IpPermissions=[ALL_OUT])
        ec2.authorize_security_group_egress(GroupId=ident, IpPermissions=[permission(rule, True) for rule in props["SecurityGroupEgress"]])
    return ident, {"GroupId": ident, "VpcId": props.get("VpcId", ""), "Id": ident, "GroupName": name}


def _group_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    ec2 = ctx.client("ec2")
    for key, egress in (("SecurityGroupIngress", False), ("SecurityGroupEgress", True)):
        before, after = old.get(key) or [], new.get(key) or []
        way = "egress" if egress else "ingress"
        gone, fresh = [rule for rule in before if rule not in after], [rule for rule in after if rule not in before]
        if gone:
            getattr(ec2, f"revoke_security_group_{way}")(GroupId=physical, IpPermissions=[permission(rule, egress) for rule in gone])
        if fresh:
            getattr(ec2, f"authorize_security_group_{way}")(GroupId=physical, IpPermissions=[permission(rule, egress) for rule in fresh])
    retag(ctx, physical, old, new)


KINDS["AWS::EC2::SecurityGroup"] = Kind(
    _group,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_security_group(GroupId=ident),
    _group_update,
    frozenset({"SecurityGroupIngress", "SecurityGroupEgress", "Tags"}),
    required=("GroupDescription",),
    name_key="GroupName",
)


def _rule(egress: bool) -> Kind:
    way = "egress" if egress else "ingress"

    def create(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
        made = getattr(ctx.client("ec2"), f"authorize_security_group_{way}")(GroupId=props["GroupId"], IpPermissions=[permission(props, egress)])
        rules = made.get("SecurityGroupRules") or [{}]
        ident = rules[0].get("SecurityGroupRuleId") or f"{ctx.logical}-rule"
        return ident, {"Id": ident}

    def delete(ctx: Context, ident: str, attrs: dict[str, Any], props: Props) -> None:
        getattr(ctx.client("ec2"), f"revoke_security_group_{way}")(GroupId=props["GroupId"], IpPermissions=[permission(props, egress)])

    return Kind(create, delete, required=("GroupId", "IpProtocol"))


KINDS["AWS::EC2::SecurityGroupIngress"], KINDS["AWS::EC2::SecurityGroupEgress"] = _rule(False), _rule(True)


def _numbers(value: Any) -> Any:
    """Launch template data with the numbers and truths that templates may write as texts."""
    whole = {"DeviceIndex", "NetworkCardIndex", "VolumeSize", "Iops", "Throughput", "HttpPutResponseHopLimit", "CoreCount", "ThreadsPerCore"}
    truths = {"DeleteOnTermination", "AssociatePublicIpAddress", "Encrypted", "EbsOptimized", "Enabled", "DisableApiTermination"}
    if isinstance(value, dict):
        return {key: int(inner) if key in whole else truth(inner) if key in truths else _numbers(inner) for key, inner in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value


def _lt(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    made = ctx.client("ec2").create_launch_template(
        LaunchTemplateName=ctx.name(props, "LaunchTemplateName", 128),
        LaunchTemplateData=_numbers(props["LaunchTemplateData"]),
        **given(props, "VersionDescription"),
        TagSpecifications=ctx.ec2_tags("launch-template", props),
    )["LaunchTemplate"]
    return made["LaunchTemplateId"], {
        "LaunchTemplateId": made["LaunchTemplateId"],
        "LatestVersionNumber": str(made["LatestVersionNumber"]),
        "DefaultVersionNumber": str(made["DefaultVersionNumber"]),
    }


def _lt_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> dict[str, Any]:
    version = ctx.client("ec2").create_launch_template_version(
        LaunchTemplateId=physical, LaunchTemplateData=_numbers(new["LaunchTemplateData"]), **given(new, "VersionDescription")
    )
    return {**attrs, "LatestVersionNumber": str(version["LaunchTemplateVersion"]["VersionNumber"])}


KINDS["AWS::EC2::LaunchTemplate"] = Kind(
    _lt,
    lambda ctx, ident, attrs, props: ctx.client("ec2").delete_launch_template(LaunchTemplateId=ident),
    _lt_update,
    frozenset({"LaunchTemplateData", "VersionDescription"}),
    required=("LaunchTemplateData",),
    name_key="LaunchTemplateName",
)


def _reservation(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = given(
        props, "InstanceType", "InstancePlatform", "AvailabilityZone", "Tenancy", "EndDateType", "InstanceMatchCriteria", "PlacementGroupArn"
    )
    made = ctx.client("ec2").create_capacity_reservation(
        **args, InstanceCount=int(props["InstanceCount"]), TagSpecifications=ctx.ec2_tags("capacity-reservation", props)
    )["CapacityReservation"]
    return made["CapacityReservationId"], {
        "Id": made["CapacityReservationId"],
        "AvailabilityZone": made["AvailabilityZone"],
        "InstanceType": made["InstanceType"],
        "TotalInstanceCount": made["TotalInstanceCount"],
        "AvailableInstanceCount": made["AvailableInstanceCount"],
    }


KINDS["AWS::EC2::CapacityReservation"] = Kind(
    _reservation,
    lambda ctx, ident, attrs, props: ctx.client("ec2").cancel_capacity_reservation(CapacityReservationId=ident),
    required=("InstanceType", "InstanceCount"),
)


def _placement(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    name = ctx.name(props, "GroupName", 255)
    ctx.client("ec2").create_placement_group(
        GroupName=name, Strategy=props.get("Strategy", "cluster"), TagSpecifications=ctx.ec2_tags("placement-group", props)
    )
    return name, {"GroupName": name}


KINDS["AWS::EC2::PlacementGroup"] = Kind(
    _placement, lambda ctx, ident, attrs, props: ctx.client("ec2").delete_placement_group(GroupName=ident), name_key="GroupName"
)
