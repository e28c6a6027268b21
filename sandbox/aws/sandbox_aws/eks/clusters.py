"""Clusters: create, update, delete."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.eks.exceptions import InvalidParameterException, ResourceInUseException, ResourceNotFoundException

from .. import clock, ec2, iam, offerings, sts
from ..config import SETTINGS
from ..hooks import HOOKS
from .base import Base

ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


class ClusterCalls(Base):
    """Names of the methods are the API's."""

    def create_cluster(self) -> ActionResult:
        get, version, world = self._get_param, self._get_param("version"), clock.world()
        same = self.eks_backend.clusters.get(get("name"))
        if same and self._same_call(same):
            return ActionResult({"cluster": same})
        self._check_cluster(same)
        super().create_cluster()
        cluster = self._cluster(get("name"))
        cluster.life = world.begin("eks", "CreateCluster", cluster.arn, "CREATING", "ACTIVE", "FAILED")
        cluster.bootstrap_addons = get("bootstrapSelfManagedAddons", True)
        self._control_plane("cluster-start", cluster, lambda: None)
        cluster.created_at, cluster.asked = world.clock.date(), self._asked()
        cluster.region, cluster.enis, cluster.group = self.region, [], None
        self._network(cluster)
        cluster.version = version or offerings.versions()[-1]
        cluster.compute_config, cluster.storage_config = get("computeConfig"), get("storageConfig")
        cluster.upgrade_policy = get("upgradePolicy") or {"supportType": "EXTENDED"}
        self._first_access(cluster)
        return ActionResult({"cluster": cluster})

    def _check_cluster(self, same: Any) -> None:
        """What EKS refuses at once."""
        get, version = self._get_param, self._get_param("version")
        if version and version not in offerings.versions():
            raise InvalidParameterException(message=f"unsupported Kubernetes version {version}")
        auto = [
            bool(part)
            for part in (
                (get("computeConfig") or {}).get("enabled"),
                (get("storageConfig") or {}).get("blockStorage", {}).get("enabled"),
                (get("kubernetesNetworkConfig") or {}).get("elasticLoadBalancing", {}).get("enabled"),
            )
        ]
        if any(auto) and not all(auto):
            raise InvalidParameterException(
                message="For EKS Auto Mode, please ensure that all required configs, including computeConfig, kubernetesNetworkConfig, "
                "and blockStorage are all either fully enabled or fully disabled."
            )
        if not SETTINGS.strict:
            return
        wanted, known = (get("resourcesVpcConfig") or {}).get("subnetIds") or [], ec2.subnets(self.region)
        missing = [subnet for subnet in wanted if subnet not in known]
        if missing:
            raise InvalidParameterException(message=f"The subnet ID '{missing[0]}' does not exist (Service: Ec2, Status Code: 400)")
        if len({known[subnet].availability_zone for subnet in wanted}) < 2:
            raise InvalidParameterException(message="Subnets specified must be in at least two different AZs")
        problem = None if same else iam.role_problem(get("roleArn"))
        if problem:
            raise InvalidParameterException(message=problem)

    def _network(self, cluster: Any) -> None:
        """The cluster's own security group, and the interfaces of its control plane."""
        asked, known = self._get_param("resourcesVpcConfig") or {}, ec2.subnets(self.region)
        wanted = asked.get("subnetIds") or []
        if not wanted or wanted[0] not in known:
            return
        vpc, owner = known[wanted[0]].vpc_id, ec2.backend(self.region)
        group = owner.create_security_group(
            f"eks-cluster-sg-{cluster.name}-{uuid.uuid4().hex[:6]}",
            "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes",
            vpc_id=vpc,
            tags={
                "aws:eks:cluster-name": cluster.name,
                f"kubernetes.io/cluster/{cluster.name}": "owned",
                "Name": f"eks-cluster-sg-{cluster.name}",
            },
        )
        cluster.group = group.id
        owner.authorize_security_group_ingress(group.id, "-1", None, None, [], source_groups=[{"GroupId": group.id}])
        cluster.resources_vpc_config = {
            "endpointPublicAccess": True,
            "endpointPrivateAccess": False,
            "publicAccessCidrs": ["0.0.0.0/0"],
            "securityGroupIds": [],
            **asked,
            "vpcId": vpc,
            "clusterSecurityGroupId": group.id,
        }
        cluster.enis = [ec2.service_eni(self.region, subnet, [group.id], f"Amazon EKS {cluster.name}", "eks") for subnet in wanted[:2]]

    def _first_access(self, cluster: Any) -> None:
        """The authentication mode, and the creator as administrator where that is wanted."""
        access = self._get_param("accessConfig") or {}
        bootstrap = access.get("bootstrapClusterCreatorAdminPermissions", True)
        cluster.access_config = {
            "authenticationMode": access.get("authenticationMode", "CONFIG_MAP"),
            "bootstrapClusterCreatorAdminPermissions": bootstrap,
        }
        if bootstrap and cluster.access_config["authenticationMode"] != "CONFIG_MAP":
            creator = sts.iam_arn(sts.principal(getattr(clock.world().effects, "access_key", "")))
            self._entry(cluster, creator, [], "STANDARD", {})["policies"].append(
                {"policyArn": ADMIN_POLICY, "accessScope": {"type": "cluster", "namespaces": []}, "associatedAt": utcnow(), "modifiedAt": utcnow()}
            )

    def delete_cluster(self) -> ActionResult:
        cluster, world = self._cluster(), clock.world()
        if cluster.status == "DELETING":
            return ActionResult({"cluster": cluster})
        if cluster.status == "CREATING":
            raise ResourceInUseException(clusterName=cluster.name, message=f"Cluster '{cluster.name}' is not in ACTIVE status")
        if cluster.nodegroups:
            raise ResourceInUseException(
                clusterName=cluster.name, nodegroupName=next(iter(cluster.nodegroups)), message="Cluster has nodegroups attached"
            )
        cluster.life = world.begin("eks", "DeleteCluster", cluster.arn, "DELETING", "DELETED")

        backend = self.eks_backend

        def gone() -> None:
            backend.clusters.pop(cluster.name, None)
            for eni in cluster.enis:
                ec2.drop_eni(cluster.region, eni)
            if cluster.group and not ec2.in_use(cluster.region, group_id=cluster.group):
                ec2.backend(cluster.region).delete_security_group(group_id=cluster.group)

        self._control_plane("cluster-stop", cluster, gone)
        return ActionResult({"cluster": cluster})

    def _control_plane(self, action: str, cluster: Any, then: Callable[[], None]) -> None:
        """What happens when a cluster's life is over; with a command, only once that has ended well."""
        life, world, region = cluster.life, clock.world(), self.region
        if not SETTINGS.hook_cluster or life.outcome:
            world.after(life, then)
            return
        life.gated = True

        def ended(problem: str) -> None:
            if problem:
                life.fail(problem)
            elif cluster.life is life:
                life.succeed()
                then()

        def due() -> None:
            payload = {
                "action": action,
                "id": cluster.arn,
                "cluster": cluster.name,
                "version": cluster.version,
                "region": region,
                "endpoint": SETTINGS.eks_endpoint,
                "bootstrapSelfManagedAddons": cluster.bootstrap_addons,
            }
            HOOKS.simple(SETTINGS.hook_cluster, payload, ended)

        world.agenda.at(life.due, due)

    def _update(self, cluster: Any, operation: str, kind: str, apply: Any = None, busy: bool = False, **params: Any) -> ActionResult:
        world, ident = clock.world(), str(uuid.uuid4())
        life = world.begin("eks", operation, f"{cluster.arn}/{ident}", "InProgress", "Successful", "Failed")
        row = {
            "id": ident,
            "status": "InProgress",
            "type": kind,
            "createdAt": world.clock.date(),
            "errors": [],
            "params": [{"type": key, "value": str(value)} for key, value in params.items()],
        }
        cluster.updates[ident] = (row, life)
        if busy:
            cluster.updating = life
        if apply is not None:
            world.after(life, apply)
        return ActionResult({"update": row})

    def update_cluster_version(self) -> ActionResult:
        cluster, wanted, versions = self._ready_cluster(), self._get_param("version"), offerings.versions()
        if wanted not in versions or cluster.version not in versions or versions.index(wanted) != versions.index(cluster.version) + 1:
            raise InvalidParameterException(message=f"Unsupported Kubernetes minor version update from {cluster.version} to {wanted}")
        self._not_busy(cluster)
        return self._update(cluster, "UpdateClusterVersion", "VersionUpdate", lambda: setattr(cluster, "version", wanted), True, Version=wanted)

    def _not_busy(self, cluster: Any) -> None:
        if cluster.status == "UPDATING":
            raise ResourceInUseException(
                clusterName=cluster.name, message=f"Cannot update cluster {cluster.name} because it currently has an update in progress"
            )

    def update_cluster_config(self) -> ActionResult:
        cluster, get = self._ready_cluster(), self._get_param
        self._not_busy(cluster)
        wanted = {
            name: get(key)
            for name, key in (
                ("compute_config", "computeConfig"),
                ("storage_config", "storageConfig"),
                ("resources_vpc_config", "resourcesVpcConfig"),
                ("kubernetes_network_config", "kubernetesNetworkConfig"),
                ("logging", "logging"),
                ("access_config", "accessConfig"),
            )
            if get(key)
        }

        def apply() -> None:
            for name, value in wanted.items():
                setattr(cluster, name, {**(getattr(cluster, name, None) or {}), **value})

        kind = (
            "AutoModeUpdate"
            if get("computeConfig")
            else "AccessConfigUpdate"
            if get("accessConfig")
            else "EndpointAccessUpdate"
            if get("resourcesVpcConfig")
            else "LoggingUpdate"
        )
        return self._update(cluster, "UpdateClusterConfig", kind, apply, True)

    def describe_update(self) -> ActionResult:
        row = self._cluster().updates.get(self._get_param("updateId"))
        if not row:
            raise ResourceNotFoundException(message=f"No update found for ID: {self._get_param('updateId')}")
        return ActionResult({"update": {**row[0], "status": row[1].state()}})

    def list_updates(self) -> ActionResult:
        return ActionResult({"updateIds": list(self._cluster().updates)})

    def describe_cluster_versions(self) -> ActionResult:
        rows = [
            {
                "clusterVersion": version,
                "versionStatus": "STANDARD_SUPPORT",
                "status": "standard-support",
                "defaultVersion": version == offerings.versions()[-2],
            }
            for version in reversed(offerings.versions())
        ]
        return ActionResult({"clusterVersions": rows})

    def list_insights(self) -> ActionResult:
        self._cluster()
        return ActionResult({"insights": []})
