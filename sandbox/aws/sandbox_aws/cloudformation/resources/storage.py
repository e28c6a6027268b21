"""File systems, repositories, buckets, HyperPod clusters, log groups and parameters."""

from __future__ import annotations

from typing import Any

from .base import KINDS, Context, Kind, Props, given, truth


def _file_system(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = given(props, "FileSystemType", "StorageType", "SubnetIds", "SecurityGroupIds", "FileSystemTypeVersion", "KmsKeyId")
    lustre = dict(props.get("LustreConfiguration") or {})
    for key in ("PerUnitStorageThroughput", "AutomaticBackupRetentionDays"):
        if key in lustre:
            lustre[key] = int(lustre[key])
    made = ctx.client("fsx").create_file_system(
        **args, StorageCapacity=int(props["StorageCapacity"]), LustreConfiguration=lustre, Tags=ctx.tags(props)
    )["FileSystem"]
    return made["FileSystemId"], {
        "DNSName": made["DNSName"],
        "LustreMountName": made["LustreConfiguration"].get("MountName", ""),
        "ResourceARN": made["ResourceARN"],
    }


def _file_system_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    ctx.client("fsx").update_file_system(FileSystemId=physical, StorageCapacity=int(new["StorageCapacity"]))


KINDS["AWS::FSx::FileSystem"] = Kind(
    _file_system,
    lambda ctx, ident, attrs, props: ctx.client("fsx").delete_file_system(FileSystemId=ident),
    _file_system_update,
    frozenset({"StorageCapacity"}),
    required=("FileSystemType", "SubnetIds"),
)


def _repository_association(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    made = ctx.client("fsx").create_data_repository_association(
        **given(props, "FileSystemId", "FileSystemPath", "DataRepositoryPath", "S3", "BatchImportMetaDataOnCreate"), Tags=ctx.tags(props)
    )["Association"]
    return made["AssociationId"], {"AssociationId": made["AssociationId"], "ResourceARN": made["ResourceARN"]}


KINDS["AWS::FSx::DataRepositoryAssociation"] = Kind(
    _repository_association,
    lambda ctx, ident, attrs, props: ctx.client("fsx").delete_data_repository_association(AssociationId=ident, DeleteDataInFileSystem=False),
    required=("FileSystemId",),
)


def _repository(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args: Props = {"imageTagMutability": props.get("ImageTagMutability", "MUTABLE")}
    if props.get("ImageScanningConfiguration"):
        args["imageScanningConfiguration"] = {"scanOnPush": truth(props["ImageScanningConfiguration"].get("ScanOnPush"))}
    made = ctx.client("ecr").create_repository(repositoryName=ctx.name(props, "RepositoryName", 250, lower=True), tags=ctx.tags(props), **args)[
        "repository"
    ]
    return made["repositoryName"], {"Arn": made["repositoryArn"], "RepositoryUri": made["repositoryUri"]}


def _repository_update(ctx: Context, physical: str, attrs: dict[str, Any], old: Props, new: Props) -> None:
    ctx.client("ecr").put_image_tag_mutability(repositoryName=physical, imageTagMutability=new.get("ImageTagMutability", "MUTABLE"))


KINDS["AWS::ECR::Repository"] = Kind(
    _repository,
    lambda ctx, ident, attrs, props: ctx.client("ecr").delete_repository(repositoryName=ident, force=truth(props.get("EmptyOnDelete"))),
    _repository_update,
    frozenset({"ImageTagMutability", "EmptyOnDelete", "Tags"}),
    name_key="RepositoryName",
)


def _bucket(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    name = ctx.name(props, "BucketName", 63, lower=True)
    place = {} if ctx.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": ctx.region}}
    ctx.client("s3").create_bucket(Bucket=name, **place)
    return name, {
        "Arn": f"arn:aws:s3:::{name}",
        "DomainName": f"{name}.s3.amazonaws.com",
        "RegionalDomainName": f"{name}.s3.{ctx.region}.amazonaws.com",
    }


KINDS["AWS::S3::Bucket"] = Kind(
    _bucket,
    lambda ctx, ident, attrs, props: ctx.client("s3").delete_bucket(Bucket=ident),
    lambda ctx, ident, attrs, old, new: None,
    frozenset({"Tags", "PublicAccessBlockConfiguration", "BucketEncryption", "LifecycleConfiguration"}),
    name_key="BucketName",
)


def _hyperpod(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    args = given(props, "Orchestrator", "VpcConfig", "NodeRecovery", "NodeProvisioningMode", "ClusterRole")
    arn = ctx.client("sagemaker").create_cluster(
        ClusterName=ctx.name(props, "ClusterName", 63), InstanceGroups=_groups(props), Tags=ctx.tags(props), **args
    )["ClusterArn"]
    return arn, {"ClusterArn": arn, "ClusterStatus": "InService"}


def _groups(props: Props) -> list[Props]:
    rows = []
    for group in props.get("InstanceGroups") or []:
        group = {key: value for key, value in group.items() if key not in ("CurrentCount", "TargetCount", "Status")}
        for key in ("InstanceCount", "ThreadsPerCore"):
            if key in group:
                group[key] = int(group[key])
        rows.append(group)
    return rows


KINDS["AWS::SageMaker::Cluster"] = Kind(
    _hyperpod,
    lambda ctx, ident, attrs, props: ctx.client("sagemaker").delete_cluster(ClusterName=ident.split("/")[-1]),
    lambda ctx, ident, attrs, old, new: (
        ctx.client("sagemaker").update_cluster(ClusterName=ident.split("/")[-1], InstanceGroups=_groups(new)) and None
    ),
    frozenset({"InstanceGroups", "NodeRecovery", "Tags"}),
    required=("InstanceGroups",),
    name_key="ClusterName",
)


def _log_group(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    name = ctx.name(props, "LogGroupName", 512)
    ctx.client("logs").create_log_group(logGroupName=name)
    return name, {"Arn": f"arn:aws:logs:{ctx.region}:{ctx.account}:log-group:{name}:*"}


KINDS["AWS::Logs::LogGroup"] = Kind(
    _log_group,
    lambda ctx, ident, attrs, props: ctx.client("logs").delete_log_group(logGroupName=ident),
    lambda ctx, ident, attrs, old, new: None,
    frozenset({"RetentionInDays", "Tags"}),
    name_key="LogGroupName",
)


def _parameter(ctx: Context, props: Props) -> tuple[str, dict[str, Any]]:
    name = ctx.name(props, "Name", 512)
    ctx.client("ssm").put_parameter(Name=name, Value=props["Value"], Type=props.get("Type", "String"), Overwrite=False)
    return name, {"Value": props["Value"], "Type": props.get("Type", "String")}


KINDS["AWS::SSM::Parameter"] = Kind(
    _parameter,
    lambda ctx, ident, attrs, props: ctx.client("ssm").delete_parameter(Name=ident),
    lambda ctx, ident, attrs, old, new: (
        ctx.client("ssm").put_parameter(Name=ident, Value=new["Value"], Type=new.get("Type", "String"), Overwrite=True) and {"Value": new["Value"]}
    ),
    frozenset({"Value", "Description", "Tags"}),
    required=("Value",),
    name_key="Name",
)
KINDS["AWS::CloudFormation::WaitConditionHandle"] = Kind(
    lambda ctx, props: (f"https://cloudformation-waitcondition-{ctx.region}.s3.amazonaws.com/{ctx.logical}", {}),
    lambda ctx, ident, attrs, props: None,
)
