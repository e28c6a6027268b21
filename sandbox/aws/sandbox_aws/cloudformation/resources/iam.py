"""Roles, policies, instance profiles and identity providers."""

from __future__ import annotations

import json
from typing import Any

from .base import KINDS, Context, Kind, Props, given


def _role(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    iam, name = ctx.client("iam"), ctx.name(props, "RoleName")
    args = given(props, "Path", "Description", "PermissionsBoundary")
    if props.get("MaxSessionDuration"):
        args["MaxSessionDuration"] = int(props["MaxSessionDuration"])
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(props["AssumeRolePolicyDocument"]), Tags=ctx.tags(props), **args)[
        "Role"
    ]
    try:
        _role_policies(ctx, name, {}, props)
    except Exception:
        _role_delete(ctx, name, {}, props)  # the handler cleans up what it began
        raise
    return name, {"Arn": made["Arn"], "RoleId": made["RoleId"]}


def _role_policies(ctx: Context, name: str, old: Props, new: Props) -> None:
    iam = ctx.client("iam")
    before, after = set(old.get("ManagedPolicyArns") or []), list(new.get("ManagedPolicyArns") or [])
    for arn in after:
        if arn not in before:
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    for arn in before - set(after):
        iam.detach_role_policy(RoleName=name, PolicyArn=arn)
    for policy in new.get("Policies") or []:
        iam.put_role_policy(RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=json.dumps(policy["PolicyDocument"]))
    for policy in {row["PolicyName"] for row in old.get("Policies") or []} - {row["PolicyName"] for row in new.get("Policies") or []}:
        iam.delete_role_policy(RoleName=name, PolicyName=policy)


def _role_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    iam = ctx.client("iam")
    if new["AssumeRolePolicyDocument"] != old.get("AssumeRolePolicyDocument"):
        iam.update_assume_role_policy(RoleName=physical, PolicyDocument=json.dumps(new["AssumeRolePolicyDocument"]))
    if new.get("Description") != old.get("Description") or new.get("MaxSessionDuration") != old.get("MaxSessionDuration"):
        iam.update_role(RoleName=physical, Description=new.get("Description") or "", MaxSessionDuration=int(new.get("MaxSessionDuration") or 3600))
    _role_policies(ctx, physical, old, new)
    if ctx.tags(new):
        iam.tag_role(RoleName=physical, Tags=ctx.tags(new))


def _role_delete(ctx: Context, physical: str, attrs: dict[str, Any], props: Props) -> None:
    iam = ctx.client("iam")
    for policy in iam.list_attached_role_policies(RoleName=physical)["AttachedPolicies"]:
        if policy["PolicyArn"] in (props.get("ManagedPolicyArns") or []):
            iam.detach_role_policy(RoleName=physical, PolicyArn=policy["PolicyArn"])
    for policy in iam.list_role_policies(RoleName=physical)["PolicyNames"]:
        if policy in [row["PolicyName"] for row in props.get("Policies") or []]:
            iam.delete_role_policy(RoleName=physical, PolicyName=policy)
    iam.delete_role(RoleName=physical)


KINDS["AWS::IAM::Role"] = Kind(
    _role,
    _role_delete,
    _role_update,
    frozenset({"AssumeRolePolicyDocument", "ManagedPolicyArns", "Policies", "Description", "MaxSessionDuration", "Tags"}),
    required=("AssumeRolePolicyDocument",),
    name_key="RoleName",
)


def _inline(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    for role in _roles(props):
        ctx.client("iam").put_role_policy(RoleName=role, PolicyName=props["PolicyName"], PolicyDocument=json.dumps(props["PolicyDocument"]))
    return ctx.name({}, ""), {}


def _roles(props: Props) -> list[str]:
    return list(props.get("Roles") or []) + ([props["RoleName"]] if props.get("RoleName") else [])


def _inline_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    for role in set(_roles(old)) - set(_roles(new)):
        ctx.client("iam").delete_role_policy(RoleName=role, PolicyName=old["PolicyName"])
    _inline(ctx, new)


def _inline_delete(ctx: Context, physical: str, attrs: dict[str, Any], props: Props) -> None:
    for role in _roles(props):
        ctx.client("iam").delete_role_policy(RoleName=role, PolicyName=props["PolicyName"])


for _name in ("AWS::IAM::Policy", "AWS::IAM::RolePolicy"):
    KINDS[_name] = Kind(_inline, _inline_delete, _inline_update, frozenset({"PolicyDocument", "Roles"}), required=("PolicyName", "PolicyDocument"))


def _managed(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    iam = ctx.client("iam")
    arn = iam.create_policy(
        PolicyName=ctx.name(props, "ManagedPolicyName", 128),
        PolicyDocument=json.dumps(props["PolicyDocument"]),
        **given(props, "Path", "Description"),
    )["Policy"]["Arn"]
    for role in props.get("Roles") or []:
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    return arn, {"PolicyArn": arn}


def _managed_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    iam = ctx.client("iam")
    if new["PolicyDocument"] != old["PolicyDocument"]:
        versions = iam.list_policy_versions(PolicyArn=physical)["Versions"]
        if len(versions) >= 5:
            iam.delete_policy_version(PolicyArn=physical, VersionId=[row["VersionId"] for row in versions if not row["IsDefaultVersion"]][-1])
        iam.create_policy_version(PolicyArn=physical, PolicyDocument=json.dumps(new["PolicyDocument"]), SetAsDefault=True)
    for role in set(new.get("Roles") or []) - set(old.get("Roles") or []):
        iam.attach_role_policy(RoleName=role, PolicyArn=physical)
    for role in set(old.get("Roles") or []) - set(new.get("Roles") or []):
        iam.detach_role_policy(RoleName=role, PolicyArn=physical)


def _managed_delete(ctx: Context, physical: str, attrs: dict[str, Any], props: Props) -> None:
    iam = ctx.client("iam")
    for role in props.get("Roles") or []:
        iam.detach_role_policy(RoleName=role, PolicyArn=physical)
    for row in iam.list_policy_versions(PolicyArn=physical)["Versions"]:
        if not row["IsDefaultVersion"]:
            iam.delete_policy_version(PolicyArn=physical, VersionId=row["VersionId"])
    iam.delete_policy(PolicyArn=physical)


KINDS["AWS::IAM::ManagedPolicy"] = Kind(
    _managed, _managed_delete, _managed_update, frozenset({"PolicyDocument", "Roles"}), required=("PolicyDocument",), name_key="ManagedPolicyName"
)


def _profile(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    iam, name = ctx.client("iam"), ctx.name(props, "InstanceProfileName", 128)
    arn = iam.create_instance_profile(InstanceProfileName=name, **given(props, "Path"))["InstanceProfile"]["Arn"]
    for role in props["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    return name, {"Arn": arn}


def _profile_delete(ctx: Context, physical: str, attrs: dict[str, Any], props: Props) -> None:
    iam = ctx.client("iam")
    for role in props["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=physical, RoleName=role)
    iam.delete_instance_profile(InstanceProfileName=physical)


KINDS["AWS::IAM::InstanceProfile"] = Kind(_profile, _profile_delete, required=("Roles",), name_key="InstanceProfileName")


def _oidc(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    arn = ctx.client("iam").create_open_id_connect_provider(
        Url=props["Url"], ClientIDList=props.get("ClientIdList") or [], ThumbprintList=props.get("ThumbprintList") or []
    )["OpenIDConnectProviderArn"]
    return arn, {"Arn": arn}


KINDS["AWS::IAM::OIDCProvider"] = Kind(
    _oidc, lambda ctx, ident, attrs, props: ctx.client("iam").delete_open_id_connect_provider(OpenIDConnectProviderArn=ident), required=("Url",)
)


def _linked(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    name = ctx.client("iam").create_service_linked_role(AWSServiceName=props["AWSServiceName"])["Role"]["RoleName"]
    return name, {"RoleName": name}


KINDS["AWS::IAM::ServiceLinkedRole"] = Kind(
    _linked, lambda ctx, ident, attrs, props: ctx.client("iam").delete_role(RoleName=ident), required=("AWSServiceName",)
)
