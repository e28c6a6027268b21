"""A whole walk by hand: every call that `nemo` makes, each answer held against botocore's models (see shapes.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import REGION, TRUST, Server, code, message

TAGS = {"nemo:deployment": "walk", "nemo:inputs": "abc"}
ROWS = [{"Key": key, "Value": value} for key, value in TAGS.items()]
SELF = {"IpProtocol": "-1", "SourceSecurityGroupId": {"Fn::GetAtt": ["Efa", "GroupId"]}, "GroupId": {"Ref": "Efa"}}
RUNNING = {"Name": "instance-state-name", "Values": ["pending", "running"]}
MINE = [{"Name": "tag:nemo:deployment", "Values": ["walk"]}]


def resource(kind: str, **props: Any) -> dict[str, Any]:
    return {"Type": kind, "Properties": props}


def template() -> dict[str, Any]:
    """Two private subnets behind a NAT gateway, roles, and a launch template with sixteen adapters."""
    out: dict[str, Any] = {
        "Vpc": resource("AWS::EC2::VPC", CidrBlock="10.180.0.0/16", EnableDnsSupport=True, EnableDnsHostnames=True),
        "Igw": resource("AWS::EC2::InternetGateway"),
        "Attached": resource("AWS::EC2::VPCGatewayAttachment", VpcId={"Ref": "Vpc"}, InternetGatewayId={"Ref": "Igw"}),
        "Public": resource("AWS::EC2::Subnet", VpcId={"Ref": "Vpc"}, CidrBlock="10.180.0.0/20", AvailabilityZone=f"{REGION}b"),
        "PublicTable": resource("AWS::EC2::RouteTable", VpcId={"Ref": "Vpc"}),
        "PublicRoute": {
            **resource("AWS::EC2::Route", RouteTableId={"Ref": "PublicTable"}, DestinationCidrBlock="0.0.0.0/0", GatewayId={"Ref": "Igw"}),
            "DependsOn": "Attached",
        },
        "PublicLink": resource("AWS::EC2::SubnetRouteTableAssociation", SubnetId={"Ref": "Public"}, RouteTableId={"Ref": "PublicTable"}),
        "Address": {**resource("AWS::EC2::EIP", Domain="vpc"), "DependsOn": "Attached"},
        "Nat": resource("AWS::EC2::NatGateway", SubnetId={"Ref": "Public"}, AllocationId={"Fn::GetAtt": ["Address", "AllocationId"]}),
        "Table": resource("AWS::EC2::RouteTable", VpcId={"Ref": "Vpc"}),
        "Route": resource("AWS::EC2::Route", RouteTableId={"Ref": "Table"}, DestinationCidrBlock="0.0.0.0/0", NatGatewayId={"Ref": "Nat"}),
        "Efa": resource("AWS::EC2::SecurityGroup", VpcId={"Ref": "Vpc"}, GroupDescription="adapters of GPU nodes and Lustre"),
        "EfaIn": resource("AWS::EC2::SecurityGroupIngress", **SELF),
    }
    for number, zone in enumerate("ab"):
        out[f"Private{number}"] = resource(
            "AWS::EC2::Subnet", VpcId={"Ref": "Vpc"}, CidrBlock=f"10.180.{32 + 16 * number}.0/20", AvailabilityZone=f"{REGION}{zone}"
        )
        out[f"Link{number}"] = resource("AWS::EC2::SubnetRouteTableAssociation", SubnetId={"Ref": f"Private{number}"}, RouteTableId={"Ref": "Table"})
    for name in ("ClusterRole", "NodeRole", "PodRole"):
        trust = json.loads(TRUST)
        out[name] = resource("AWS::IAM::Role", AssumeRolePolicyDocument=trust, ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"])
    outputs = {name: {"Value": {"Ref": name}} for name in ("Vpc", "Private0", "Private1", "Efa")}
    outputs |= {name: {"Value": {"Fn::GetAtt": [name, "Arn"]}} for name in ("ClusterRole", "NodeRole", "PodRole")}
    return {"Resources": out, "Outputs": outputs}


def adapters(group: str, cluster_group: str) -> list[dict[str, Any]]:
    rows = [{"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface"}]
    rows += [{"NetworkCardIndex": card, "DeviceIndex": 1 if card == 0 else 0, "InterfaceType": "efa-only"} for card in range(16)]
    return [{**row, "Groups": [group, cluster_group], "DeleteOnTermination": True} for row in rows]


@pytest.fixture(scope="module")
def stack(plain: Server) -> dict[str, str]:
    cfn = plain.client("cloudformation")
    ask = {
        "StackName": "walk-network",
        "TemplateBody": json.dumps(template()),
        "Tags": ROWS,
        "ClientRequestToken": "token-1",
        "Capabilities": ["CAPABILITY_IAM"],
    }
    first = cfn.create_stack(**ask)["StackId"]
    assert cfn.create_stack(**ask)["StackId"] == first
    assert code(lambda: cfn.create_stack(**{**ask, "ClientRequestToken": "other"})) == "AlreadyExistsException"
    plain.advance(400)
    found = cfn.describe_stacks(StackName="walk-network")["Stacks"][0]
    assert found["StackStatus"] == "CREATE_COMPLETE" and {row["Key"]: row["Value"] for row in found["Tags"]} == TAGS
    assert cfn.describe_stack_events(StackName="walk-network")["StackEvents"][0]["ResourceStatus"] == "CREATE_COMPLETE"
    assert cfn.list_stack_resources(StackName="walk-network")["StackResourceSummaries"]
    assert [row["StackName"] for row in cfn.list_stacks(StackStatusFilter=["CREATE_COMPLETE"])["StackSummaries"]].count("walk-network") == 1
    assert "No updates are to be performed" in message(lambda: cfn.update_stack(**{**ask, "ClientRequestToken": "token-2"}))
    plain.advance(20)
    return {row["OutputKey"]: row["OutputValue"] for row in found["Outputs"]}


@pytest.fixture(scope="module")
def cluster(plain: Server, stack: dict[str, str]) -> dict[str, Any]:
    eks = plain.client("eks")
    ask = {
        "name": "walk",
        "version": "1.35",
        "roleArn": stack["ClusterRole"],
        "resourcesVpcConfig": {"subnetIds": [stack["Private0"], stack["Private1"]], "endpointPublicAccess": True, "endpointPrivateAccess": True},
        "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
        "bootstrapSelfManagedAddons": False,
        "clientRequestToken": "walk-cluster",
        "tags": TAGS,
    }
    assert eks.create_cluster(**ask)["cluster"]["status"] == "CREATING"
    assert eks.create_cluster(**ask)["cluster"]["name"] == "walk"
    assert code(lambda: eks.create_cluster(**{**ask, "version": "1.34"})) == "InvalidParameterException"
    assert code(lambda: eks.create_cluster(**{**ask, "clientRequestToken": "other"})) == "ResourceInUseException"
    plain.advance(600)
    made = eks.describe_cluster(name="walk")["cluster"]
    assert made["status"] == "ACTIVE" and made["tags"] == TAGS and made["endpoint"] and made["certificateAuthority"]["data"]
    assert eks.list_tags_for_resource(resourceArn=made["arn"])["tags"] == TAGS
    return dict(made)


def test_what_check_asks(plain: Server) -> None:
    ec2, quotas = plain.client("ec2"), plain.client("service-quotas")
    assert plain.client("sts").get_caller_identity()["Account"] == "123456789012"
    kind = ec2.describe_instance_types(InstanceTypes=["p5en.48xlarge"])["InstanceTypes"][0]
    assert kind["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"] == 16 and len(kind["NetworkInfo"]["NetworkCards"]) == 16
    assert kind["GpuInfo"]["Gpus"][0]["Count"] == 8 and kind["GpuInfo"]["Gpus"][0]["Name"] == "H200"
    assert kind["GpuInfo"]["Gpus"][0]["MemoryInfo"]["SizeInMiB"] == 141 * 1024
    assert code(lambda: ec2.describe_instance_types(InstanceTypes=["p5ne.48xlarge"])) == "InvalidInstanceType"
    for one in ("m7i.2xlarge", "g6e.12xlarge", "p6-b300.48xlarge"):
        assert ec2.describe_instance_types(InstanceTypes=[one])["InstanceTypes"]
    where = [{"Name": "instance-type", "Values": ["p5en.48xlarge"]}]
    offered = ec2.describe_instance_type_offerings(LocationType="availability-zone-id", Filters=where)["InstanceTypeOfferings"]
    assert sorted(row["Location"] for row in offered) == ["use2-az2", "use2-az3"]
    zones = {row["ZoneId"]: row["ZoneName"] for row in ec2.describe_availability_zones()["AvailabilityZones"]}
    assert zones["use2-az2"] == f"{REGION}b"
    quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")["Quota"]
    assert quota["Value"] == 192 and quota["ServiceName"]
    assert quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")["Quota"]["Value"] == 0
    assert len(quotas.list_service_quotas(ServiceCode="ec2", MaxResults=2)["Quotas"]) == 2
    assert quotas.list_aws_default_service_quotas(ServiceCode="vpc")["Quotas"]
    assert code(lambda: quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-NONE")) == "NoSuchResourceException"


def test_prices(plain: Server) -> None:
    pricing = plain.client("pricing", region="us-east-1")

    def asked(service: str, **fields: str) -> list[dict[str, Any]]:
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()]
        return [json.loads(row) for row in pricing.get_products(ServiceCode=service, Filters=filters)["PriceList"]]

    def usd(row: dict[str, Any]) -> float:
        term = next(iter(row["terms"]["OnDemand"].values()))
        return float(next(iter(term["priceDimensions"].values()))["pricePerUnit"]["USD"])

    loose = asked("AmazonEC2", instanceType="p5en.48xlarge", regionCode=REGION)
    assert len(loose) > 3 and any(usd(row) == 0 for row in loose)  # who does not say which one gets them all
    exact = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    assert [usd(row) for row in asked("AmazonEC2", instanceType="p5en.48xlarge", regionCode=REGION, **exact)] == [63.3]
    assert [usd(row) for row in asked("AmazonEC2", instanceType="m7i.2xlarge", regionCode=REGION, **exact)] == [0.4032]
    assert [usd(row) for row in asked("AmazonEKS", usagetype="USE2-AmazonEKS-Hours:perCluster", regionCode=REGION)] == [0.1]
    assert [usd(row) for row in asked("AmazonEC2", usagetype="USE2-NatGateway-Hours")] == [0.045]
    assert [usd(row) for row in asked("AmazonFSx", fileSystemType="Lustre", throughputCapacity="250", regionCode=REGION)] == [0.21]
    assert [usd(row) for row in asked("AmazonEC2", productFamily="Storage", volumeApiName="gp3", regionCode=REGION)] == [0.08]
    assert code(lambda: plain.client("pricing").get_products(ServiceCode="AmazonEC2")) == "InvalidSignatureException"  # no endpoint there


def test_network_as_seen_by_tag(plain: Server, stack: dict[str, str]) -> None:
    ec2 = plain.client("ec2")
    subnets = ec2.describe_subnets(Filters=MINE)["Subnets"]
    assert len(subnets) == 3 and all(4000 < row["AvailableIpAddressCount"] < 4096 for row in subnets)
    assert [row["VpcId"] for row in ec2.describe_vpcs(Filters=MINE)["Vpcs"]] == [stack["Vpc"]]
    assert len(ec2.describe_addresses(Filters=MINE)["Addresses"]) == 1
    assert ec2.describe_nat_gateways(Filter=MINE)["NatGateways"][0]["State"] == "available"
    assert ec2.describe_security_groups(Filters=MINE)["SecurityGroups"]
    assert ec2.describe_route_tables(Filters=MINE)["RouteTables"] and ec2.describe_internet_gateways(Filters=MINE)["InternetGateways"]
    assert ec2.describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [stack["Vpc"]]}])["NetworkInterfaces"]
    assert ec2.describe_capacity_reservations(Filters=[*MINE, {"Name": "state", "Values": ["active"]}])["CapacityReservations"] == []
    role = plain.client("iam").get_role(RoleName=stack["NodeRole"].split("/")[-1])["Role"]
    assert {row["Key"] for row in role["Tags"]} >= set(TAGS)


def test_access_addons_and_identities(plain: Server, stack: dict[str, str], cluster: dict[str, Any]) -> None:
    eks, who = plain.client("eks"), "arn:aws:iam::123456789012:role/colleague"
    ask = {"clusterName": "walk", "principalArn": who, "clientRequestToken": "entry-1", "tags": TAGS}
    assert eks.create_access_entry(**ask)["accessEntry"]["accessEntryArn"] == eks.create_access_entry(**ask)["accessEntry"]["accessEntryArn"]
    assert code(lambda: eks.create_access_entry(clusterName="walk", principalArn=who, clientRequestToken="x")) == "ResourceInUseException"
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    eks.associate_access_policy(clusterName="walk", principalArn=who, policyArn=policy, accessScope={"type": "cluster"})
    assert eks.list_associated_access_policies(clusterName="walk", principalArn=who)["associatedAccessPolicies"][0]["policyArn"] == policy
    assert who in eks.list_access_entries(clusterName="walk")["accessEntries"]
    assert eks.describe_access_entry(clusterName="walk", principalArn=who)["accessEntry"]["tags"] == TAGS
    known = eks.describe_addon_versions(addonName="aws-fsx-csi-driver", kubernetesVersion="1.35")["addons"][0]["addonVersions"]
    default = next(row["addonVersion"] for row in known if row["compatibilities"][0]["defaultVersion"])
    made = {"clusterName": "walk", "addonName": "aws-fsx-csi-driver", "addonVersion": default, "clientRequestToken": "addon-1", "tags": TAGS}
    made["podIdentityAssociations"] = [{"serviceAccount": "fsx-csi-controller-sa", "roleArn": stack["PodRole"]}]
    assert eks.create_addon(**made)["addon"]["addonArn"] == eks.create_addon(**made)["addon"]["addonArn"]
    plain.advance(40)
    assert eks.describe_addon(clusterName="walk", addonName="aws-fsx-csi-driver")["addon"]["status"] == "ACTIVE"
    pod = {"clusterName": "walk", "namespace": "nemo", "serviceAccount": "agent", "roleArn": stack["PodRole"], "clientRequestToken": "pod-1"}
    first = eks.create_pod_identity_association(**pod)["association"]["associationId"]
    assert eks.create_pod_identity_association(**pod)["association"]["associationId"] == first
    assert len(eks.list_pod_identity_associations(clusterName="walk")["associations"]) == 2
    assert eks.describe_pod_identity_association(clusterName="walk", associationId=first)["association"]["roleArn"] == stack["PodRole"]
    eks.delete_pod_identity_association(clusterName="walk", associationId=first)
    eks.delete_addon(clusterName="walk", addonName="aws-fsx-csi-driver")
    plain.advance(40)
    assert eks.list_addons(clusterName="walk")["addons"] == [] and not eks.list_pod_identity_associations(clusterName="walk")["associations"]
    eks.delete_access_entry(clusterName="walk", principalArn=who)


def test_gpu_nodes(plain: Server, stack: dict[str, str], cluster: dict[str, Any]) -> None:
    eks, ec2 = plain.client("eks"), plain.client("ec2")
    cluster_group = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]

    def group(name: str, rows: list[dict[str, Any]], subnet: str, **more: Any) -> dict[str, Any]:
        data = {"InstanceType": "p5en.48xlarge", "NetworkInterfaces": rows, "TagSpecifications": [{"ResourceType": "instance", "Tags": ROWS}]}
        lt = ec2.create_launch_template(LaunchTemplateName=f"walk-{name}", LaunchTemplateData=data)["LaunchTemplate"]["LaunchTemplateId"]
        ask = {
            "clusterName": "walk",
            "nodegroupName": name,
            "subnets": [subnet],
            "nodeRole": stack["NodeRole"],
            "launchTemplate": {"id": lt, "version": "1"},
            "amiType": "AL2023_x86_64_NVIDIA",
            "scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 1},
            "clientRequestToken": f"group-{name}",
            "tags": TAGS,
            **more,
        }
        assert eks.create_nodegroup(**ask)["nodegroup"]["nodegroupArn"] == eks.create_nodegroup(**ask)["nodegroup"]["nodegroupArn"]
        plain.advance(125)
        return dict(eks.describe_nodegroup(clusterName="walk", nodegroupName=name)["nodegroup"])

    good = adapters(stack["Efa"], cluster_group)

    def issue(name: str, rows: list[dict[str, Any]], subnet: str) -> str:
        found = group(name, rows, subnet)
        assert found["status"] == "CREATE_FAILED"
        eks.delete_nodegroup(clusterName="walk", nodegroupName=name)
        plain.advance(310)
        return str(found["health"]["issues"][0]["message"])

    assert "not supported in your requested Availability Zone (us-east-2a)" in issue("zone", good, stack["Private0"])
    seventeen = [*good, {"NetworkCardIndex": 16, "DeviceIndex": 0, "InterfaceType": "efa-only", "Groups": [cluster_group]}]
    assert "Network card index 16 exceeds" in issue("cards", seventeen, stack["Private1"])
    assert "primary network interface" in issue("primary", [{**good[1], "DeviceIndex": 0}, *good[2:]], stack["Private1"])
    free = ec2.describe_subnets(SubnetIds=[stack["Private1"]])["Subnets"][0]["AvailableIpAddressCount"]
    made = group("gpu", good, stack["Private1"])
    assert made["status"] == "ACTIVE" and made["tags"] == TAGS and made["health"]["issues"] == [] and "remoteAccess" not in made
    assert stack["NodeRole"] in eks.list_access_entries(clusterName="walk")["accessEntries"]
    assert ec2.describe_subnets(SubnetIds=[stack["Private1"]])["Subnets"][0]["AvailableIpAddressCount"] == free - 1  # efa-only takes none
    nodes = [row for one in ec2.describe_instances(Filters=[*MINE, RUNNING])["Reservations"] for row in one["Instances"]]
    assert [(row["InstanceType"], row["SubnetId"]) for row in nodes] == [("p5en.48xlarge", stack["Private1"])]
    assert any(":instance/" in arn for arn in tagged(plain))
    assert "VcpuLimitExceeded" in issue("second", good, stack["Private1"])
    alone = [{**row, "Groups": [stack["Efa"]]} for row in good]
    plain.admin("POST", "/quotas", {"L-417A185B": 384})
    assert group("alone", alone, stack["Private1"])["status"] == "CREATING"  # it cannot reach the control plane, and goes on trying
    plain.advance(1600)
    assert eks.describe_nodegroup(clusterName="walk", nodegroupName="alone")["nodegroup"]["health"]["issues"][0]["code"] == "NodeCreationFailure"
    plain.admin("POST", "/quotas", {"L-417A185B": 192})
    for name in ("gpu", "alone"):
        eks.delete_nodegroup(clusterName="walk", nodegroupName=name)
    plain.advance(310)
    assert eks.list_nodegroups(clusterName="walk")["nodegroups"] == []
    assert not ec2.describe_instances(Filters=[*MINE, RUNNING])["Reservations"]
    assert ec2.describe_subnets(SubnetIds=[stack["Private1"]])["Subnets"][0]["AvailableIpAddressCount"] == free


def test_file_system_and_its_mount(plain: Server, stack: dict[str, str], cluster: dict[str, Any]) -> None:
    fsx = plain.client("fsx")
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250, "DataCompressionType": "LZ4"}
    ask = {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 2400,
        "StorageType": "SSD",
        "SubnetIds": [stack["Private1"]],
        "SecurityGroupIds": [stack["Efa"]],
        "LustreConfiguration": lustre,
        "ClientRequestToken": "fs-1",
        "Tags": ROWS,
    }
    assert "Must be 1200 or a multiple of 2400" in message(lambda: fsx.create_file_system(**{**ask, "StorageCapacity": 3600}))
    wrong = {**lustre, "PerUnitStorageThroughput": 200}
    assert "the provided throughput is invalid" in message(lambda: fsx.create_file_system(**{**ask, "LustreConfiguration": wrong}))
    efa = {**lustre, "EfaEnabled": True, "MetadataConfiguration": {"Mode": "AUTOMATIC"}}
    assert "multiple of 19200" in message(lambda: fsx.create_file_system(**{**ask, "LustreConfiguration": efa}))
    closed = plain.client("ec2").create_security_group(GroupName="closed", Description="closed", VpcId=stack["Vpc"])["GroupId"]
    assert code(lambda: fsx.create_file_system(**{**ask, "SecurityGroupIds": [closed]})) == "InvalidNetworkSettings"
    made = fsx.create_file_system(**ask)["FileSystem"]
    ident, name = made["FileSystemId"], made["LustreConfiguration"]["MountName"]
    assert made["Lifecycle"] == "CREATING" and fsx.create_file_system(**ask)["FileSystem"]["FileSystemId"] == ident
    assert code(lambda: fsx.create_file_system(**{**ask, "StorageCapacity": 4800})) == "IncompatibleParameterError"

    def mount(**change: str) -> dict[str, Any]:
        query = {"volume": ident, "dnsname": made["DNSName"], "mountname": name, "zone": f"{REGION}b", "cluster": "walk", **change}
        return dict(plain.admin("GET", "/fsx-mount?" + "&".join(f"{key}={value}" for key, value in query.items())))

    assert "Is the MGS running?" in mount()["error"]  # not there yet
    plain.advance(500)
    assert fsx.describe_file_systems(FileSystemIds=[ident])["FileSystems"][0]["Lifecycle"] == "AVAILABLE"
    assert "Can't parse NID" in mount(dnsname="fs-0.fsx.us-east-2.amazonaws.com")["error"]
    assert "Is the MGS running?" in mount()["error"]  # no node is in a group that the file system lets in
    data = {"InstanceType": "m7i.2xlarge", "SecurityGroupIds": [stack["Efa"], cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]]}
    lt = plain.client("ec2").create_launch_template(LaunchTemplateName="walk-system", LaunchTemplateData=data)["LaunchTemplate"]
    plain.client("eks").create_nodegroup(
        clusterName="walk",
        nodegroupName="system",
        subnets=[stack["Private0"], stack["Private1"]],
        nodeRole=stack["NodeRole"],
        launchTemplate={"id": lt["LaunchTemplateId"], "version": "$Latest"},
        scalingConfig={"minSize": 0, "maxSize": 2, "desiredSize": 1},
    )
    plain.advance(125)
    assert mount() == {"ok": True, "path_id": ident}
    assert "crosses zones" in mount(zone=f"{REGION}a")["warning"]
    assert "Is the filesystem name correct?" in mount(mountname="fsx")["error"]
    assert fsx.list_tags_for_resource(ResourceARN=made["ResourceARN"])["Tags"] == ROWS
    found = tagged(plain)
    assert {arn.split(":")[2] for arn in found} == {"cloudformation", "ec2", "eks", "fsx"}
    assert made["ResourceARN"] in found and cluster["arn"] in found
    plain.client("eks").delete_nodegroup(clusterName="walk", nodegroupName="system")
    fsx.delete_file_system(FileSystemId=ident)
    assert fsx.describe_file_systems(FileSystemIds=[ident])["FileSystems"][0]["Lifecycle"] == "DELETING"
    plain.advance(300)
    assert code(lambda: fsx.describe_file_systems(FileSystemIds=[ident])) == "FileSystemNotFound"
    plain.client("ec2").delete_security_group(GroupId=closed)


def tagged(plain: Server) -> list[str]:
    pages = plain.client("resourcegroupstaggingapi").get_paginator("get_resources")
    wanted = [{"Key": "nemo:deployment", "Values": ["walk"]}]
    return [row["ResourceARN"] for page in pages.paginate(TagFilters=wanted) for row in page["ResourceTagMappingList"]]


def test_images(plain: Server) -> None:
    ecr = plain.client("ecr")
    made = ecr.create_repository(
        repositoryName="walk/agent", imageTagMutability="IMMUTABLE", imageScanningConfiguration={"scanOnPush": False}, tags=ROWS
    )["repository"]
    assert code(lambda: ecr.create_repository(repositoryName="walk/agent")) == "RepositoryAlreadyExistsException"
    assert ecr.describe_repositories(repositoryNames=["walk/agent"])["repositories"][0]["repositoryUri"] == made["repositoryUri"]
    assert ecr.list_tags_for_resource(resourceArn=made["repositoryArn"])["tags"] and made["repositoryArn"] in tagged(plain)
    assert ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
    assert code(lambda: ecr.describe_images(repositoryName="walk/agent", imageIds=[{"imageTag": "1"}])) == "ImageNotFoundException"
    assert code(lambda: ecr.describe_repositories(repositoryNames=["walk/none"])) == "RepositoryNotFoundException"
    ecr.delete_repository(repositoryName="walk/agent", force=True)


def test_clean_up_leaves_nothing(plain: Server, stack: dict[str, str], cluster: dict[str, Any]) -> None:
    """Runs last: the order of a real clean-up, and what the tagging API still says afterwards."""
    eks, cfn = plain.client("eks"), plain.client("cloudformation")
    plain.advance(310)
    eks.delete_cluster(name="walk")
    plain.advance(310)
    assert code(lambda: eks.describe_cluster(name="walk")) == "ResourceNotFoundException"
    cfn.delete_stack(StackName="walk-network", ClientRequestToken="token-3")
    cfn.delete_stack(StackName="walk-network", ClientRequestToken="token-3")
    plain.advance(400)
    assert "does not exist" in message(lambda: cfn.describe_stacks(StackName="walk-network"))
    left = [arn for arn in tagged(plain) if ":instance/" not in arn]  # terminated ones are listed for a while, too
    assert len(left) == 1 and ":natgateway/" in left[0]  # listed after its end, as on AWS
    nat = plain.client("ec2").describe_nat_gateways(NatGatewayIds=[left[0].split("/")[-1]])["NatGateways"][0]
    assert nat["State"] == "deleted"
