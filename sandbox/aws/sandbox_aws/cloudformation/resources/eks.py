"""Clusters, node groups, add-ons, access entries and pod identities."""

from __future__ import annotations

from typing import Any

from .base import KINDS, Context, Kind, Props, camel, given, truth


def _tag_map(ctx: Context, props: Props) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in ctx.tags(props)}


def _eks_cluster(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = camel({key: value for key, value in props.items() if key not in ("Tags", "Name", "Logging")})
    vpc = args.get("resourcesVpcConfig") or {}
    for key in ("endpointPublicAccess", "endpointPrivateAccess"):
        if key in vpc:
            vpc[key] = truth(vpc[key])
    name = ctx.name(props, "Name", 100)
    made = ctx.client("eks").create_cluster(name=name, tags=_tag_map(ctx, props), **args)["cluster"]
    return name, {"Arn": made["arn"]}


def _eks_cluster_finish(ctx: Context, physical: str, attrs: dict[str, Any], props: Props) -> dict[str, Any]:
    row = ctx.client("eks").describe_cluster(name=physical)["cluster"]
    return {
        **attrs,
        "Endpoint": row.get("endpoint", ""),
        "CertificateAuthorityData": row.get("certificateAuthority", {}).get("data", ""),
        "Id": physical,
        "ClusterSecurityGroupId": row["resourcesVpcConfig"].get("clusterSecurityGroupId", ""),
        "OpenIdConnectIssuerUrl": row["identity"]["oidc"]["issuer"],
    }


def _eks_cluster_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    eks = ctx.client("eks")
    if new.get("Version") and new.get("Version") != old.get("Version"):
        eks.update_cluster_version(name=physical, version=str(new["Version"]))
    keys = [key for key in ("ComputeConfig", "StorageConfig", "KubernetesNetworkConfig", "AccessConfig") if new.get(key) != old.get(key)]
    if keys:
        eks.update_cluster_config(name=physical, **camel(given(new, *keys)))


KINDS["AWS::EKS::Cluster"] = Kind(
    _eks_cluster,
    lambda ctx, ident, attrs, props: ctx.client("eks").delete_cluster(name=ident),
    _eks_cluster_update,
    frozenset({"Version", "ComputeConfig", "StorageConfig", "KubernetesNetworkConfig", "AccessConfig", "Tags"}),
    _eks_cluster_finish,
    required=("RoleArn", "ResourcesVpcConfig"),
    name_key="Name",
)


def _nodegroup(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = camel({key: value for key, value in props.items() if key not in ("Tags", "NodegroupName", "ForceUpdateEnabled")})
    for section in ("scalingConfig", "updateConfig"):
        if section in args:
            args[section] = {key: int(value) for key, value in args[section].items()}
    if "launchTemplate" in args and "version" in args["launchTemplate"]:
        args["launchTemplate"]["version"] = str(args["launchTemplate"]["version"])
    made = ctx.client("eks").create_nodegroup(
        nodegroupName=ctx.name(props, "NodegroupName", 63), tags={str(key): str(value) for key, value in (props.get("Tags") or {}).items()}, **args
    )["nodegroup"]
    return f"{props['ClusterName']}/{made['nodegroupName']}", {
        "Arn": made["nodegroupArn"],
        "NodegroupName": made["nodegroupName"],
        "ClusterName": props["ClusterName"],
    }


def _nodegroup_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    eks, (cluster, name) = ctx.client("eks"), physical.split("/")
    args: Props = {}
    if new.get("ScalingConfig") != old.get("ScalingConfig"):
        args["scalingConfig"] = {key: int(value) for key, value in camel(new["ScalingConfig"]).items()}
    if new.get("Labels") != old.get("Labels"):
        args["labels"] = {
            "addOrUpdateLabels": new.get("Labels") or {},
            "removeLabels": sorted(set(old.get("Labels") or {}) - set(new.get("Labels") or {})),
        }
    if args:
        eks.update_nodegroup_config(clusterName=cluster, nodegroupName=name, **args)
    if new.get("LaunchTemplate") != old.get("LaunchTemplate") or new.get("Version") != old.get("Version"):
        template = {"launchTemplate": {key: str(value) for key, value in camel(new["LaunchTemplate"]).items()}} if new.get("LaunchTemplate") else {}
        eks.update_nodegroup_version(
            clusterName=cluster, nodegroupName=name, **template, **({"version": str(new["Version"])} if new.get("Version") else {})
        )


KINDS["AWS::EKS::Nodegroup"] = Kind(
    _nodegroup,
    lambda ctx, ident, attrs, props: ctx.client("eks").delete_nodegroup(clusterName=ident.split("/")[0], nodegroupName=ident.split("/")[1]),
    _nodegroup_update,
    frozenset({"ScalingConfig", "Labels", "LaunchTemplate", "Version", "Tags", "UpdateConfig"}),
    required=("ClusterName", "NodeRole", "Subnets"),
    name_key="NodegroupName",
)


def _addon(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = camel({key: value for key, value in props.items() if key not in ("Tags", "PreserveOnDelete")})
    made = ctx.client("eks").create_addon(tags=_tag_map(ctx, props), **args)["addon"]
    return f"{props['ClusterName']}|{props['AddonName']}", {"Arn": made["addonArn"]}


def _addon_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    ctx.client("eks").update_addon(
        **camel({key: value for key, value in new.items() if key not in ("Tags", "PreserveOnDelete", "PodIdentityAssociations")})
    )


KINDS["AWS::EKS::Addon"] = Kind(
    _addon,
    lambda ctx, ident, attrs, props: ctx.client("eks").delete_addon(clusterName=ident.split("|")[0], addonName=ident.split("|")[1]),
    _addon_update,
    frozenset({"AddonVersion", "ConfigurationValues", "ResolveConflicts", "ServiceAccountRoleArn", "Tags"}),
    required=("ClusterName", "AddonName"),
)


def _entry(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    eks = ctx.client("eks")
    args = camel({key: value for key, value in props.items() if key not in ("Tags", "AccessPolicies")})
    made = eks.create_access_entry(tags=_tag_map(ctx, props), **args)["accessEntry"]
    for policy in props.get("AccessPolicies") or []:
        eks.associate_access_policy(clusterName=props["ClusterName"], principalArn=props["PrincipalArn"], **camel(policy))
    return f"{props['PrincipalArn']}|{props['ClusterName']}", {"AccessEntryArn": made["accessEntryArn"]}


KINDS["AWS::EKS::AccessEntry"] = Kind(
    _entry,
    lambda ctx, ident, attrs, props: ctx.client("eks").delete_access_entry(clusterName=props["ClusterName"], principalArn=props["PrincipalArn"]),
    required=("ClusterName", "PrincipalArn"),
)


def _identity(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    made = ctx.client("eks").create_pod_identity_association(
        tags=_tag_map(ctx, props), **camel({key: value for key, value in props.items() if key != "Tags"})
    )["association"]
    return made["associationArn"], {"AssociationArn": made["associationArn"], "AssociationId": made["associationId"]}


KINDS["AWS::EKS::PodIdentityAssociation"] = Kind(
    _identity,
    lambda ctx, ident, attrs, props: ctx.client("eks").delete_pod_identity_association(
        clusterName=props["ClusterName"], associationId=attrs["AssociationId"]
    ),
    required=("ClusterName", "Namespace", "ServiceAccount", "RoleArn"),
)
