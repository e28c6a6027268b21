"""Managed node groups, with the commands that start and stop their nodes."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.eks.exceptions import InvalidParameterException, ResourceInUseException, ResourceNotFoundException

from .. import clock, ec2, iam, instances, launch
from ..config import SETTINGS
from ..hooks import HOOKS
from .base import Base


def template_data(region: str, template: dict[str, str] | None) -> dict[str, Any]:
    """The launch template's data in the version that a node group asks for."""
    if not template:
        return {}
    for found in ec2.backend(region).launch_templates.values():
        if found.id == template.get("id") or found.name == template.get("name"):
            version = str(template.get("version", "$Default"))
            number = {"$Default": found.default_version_number, "$Latest": found.latest_version_number}.get(version) or int(version)
            return dict(found.get_version(int(number)).data)
    return {}


def _type_of(group: Any, data: dict[str, Any]) -> str:
    return data.get("InstanceType") or (group.instance_types or ["t3.medium"])[0]


def wanted_of(region: str, cluster: Any, group: Any) -> launch.Wanted:
    """What a node group asks Auto Scaling for."""
    data = template_data(region, group.launch_template)
    count = group.scaling_config.get("desiredSize", 0)
    return launch.Wanted(region, _type_of(group, data), count, group.subnets, data, cluster.group or "", group.capacity_type)


class NodegroupCalls(Base):
    """Names of the methods are the API's."""

    def create_nodegroup(self) -> ActionResult:
        cluster, get, world = self._cluster(), self._get_param, clock.world()
        known = cluster.nodegroups.get(get("nodegroupName"))
        if known is not None and self._same_call(known):
            return ActionResult({"nodegroup": known})
        data = self._template(cluster)
        self._check_nodegroup(cluster, data)
        super().create_nodegroup()
        group = cluster.nodegroups[get("nodegroupName")]
        group.asked, group.machines = self._asked(), ([], [])
        group.version = get("version") or cluster.version
        group.release_version = get("releaseVersion") or f"{group.version}.0-20261120"
        group.node_repair_config, group.update_config = get("nodeRepairConfig"), get("updateConfig") or {"maxUnavailable": 1}
        group.created_at = world.clock.date()
        if get("launchTemplate"):
            group.disk_size = None  # the template says so
            group.remote_access, group.resources = None, {"autoScalingGroups": group.resources["autoScalingGroups"]}
        if data.get("InstanceType"):
            group.instance_types = None
        if cluster.access_config["authenticationMode"] != "CONFIG_MAP" and group.node_role not in cluster.entries:
            # EKS lets the nodes of a managed group in by itself
            self._entry(cluster, group.node_role, ["system:nodes"], "EC2_LINUX", {}, "system:node:{{EC2PrivateDNSName}}")
        group.life = world.begin("eks", "CreateNodegroup", group.arn, "CREATING", "ACTIVE", "CREATE_FAILED")
        self._start(cluster, group, data)
        return ActionResult({"nodegroup": group})

    def _template(self, cluster: Any) -> dict[str, Any]:
        template = self._get_param("launchTemplate")
        known = [(one.id, one.name) for one in ec2.backend(self.region).launch_templates.values()]
        if template and not any(template.get("id") == ident or template.get("name") == name for ident, name in known):
            raise InvalidParameterException(
                clusterName=cluster.name, message=f"Launch template {template.get('id') or template.get('name')} does not exist."
            )
        return template_data(self.region, template)

    def _check_nodegroup(self, cluster: Any, data: dict[str, Any]) -> None:
        """What EKS refuses at once."""
        get = self._get_param

        def refuse(message: str) -> None:
            raise InvalidParameterException(clusterName=cluster.name, nodegroupName=get("nodegroupName"), message=message)

        if SETTINGS.strict:
            missing = [subnet for subnet in get("subnets") or [] if subnet not in ec2.subnets(self.region)]
            if missing:
                refuse(f"The subnet ID '{missing[0]}' does not exist")
            problem = iam.role_problem(get("nodeRole"))
            if problem:
                refuse(problem)
        if data.get("InstanceType") and get("instanceTypes"):
            refuse("You cannot specify instance types in both the launch template and the API request.")
        if data.get("IamInstanceProfile"):
            refuse("Launch template must not specify an IAM instance profile: the node role is given in the API request.")
        if any(adapter.get("SubnetId") for adapter in data.get("NetworkInterfaces") or []):
            refuse("Launch template must not specify a subnet in its network interfaces: subnets are given in the API request.")
        if data.get("ImageId") and (get("amiType") or "CUSTOM") != "CUSTOM":
            refuse("You cannot specify an AMI type other than CUSTOM when the launch template specifies an image.")
        market = (data.get("InstanceMarketOptions") or {}).get("MarketType")
        if get("capacityType") == "CAPACITY_BLOCK" and get("launchTemplate") and data and market != "capacity-block":
            refuse("Capacity type CAPACITY_BLOCK needs a launch template with InstanceMarketOptions.MarketType capacity-block.")
        scaling = get("scalingConfig") or {}
        if scaling and not scaling.get("minSize", 0) <= scaling.get("desiredSize", 1) <= scaling.get("maxSize", 1):
            refuse("desired capacity must lie between the minimum and the maximum size")

    def _payload(self, action: str, cluster: Any, group: Any, data: dict[str, Any]) -> dict[str, Any]:
        wanted, known = wanted_of(self.region, cluster, group), ec2.subnets(self.region)
        usable = launch.usable_subnets(wanted)
        zones = [known[subnet].availability_zone for subnet in usable]
        return {
            "action": action,
            "kind": "nodegroup",
            "id": group.arn,
            "cluster": cluster.name,
            "group": group.nodegroup_name,
            "instanceType": wanted.instance_type,
            "count": wanted.count,
            "zone": zones[0] if zones else None,
            "zones": zones,
            "subnets": usable,
            "securityGroups": wanted.groups,
            "labels": group.labels,
            "taints": group.taints,
            "capacityType": group.capacity_type,
            "amiType": group.ami_type,
            "nodeRole": group.node_role,
            "version": group.version,
            "launchTemplate": data,
            "endpoint": cluster.endpoint,
            "region": self.region,
            "instances": instances.shown(self.region, getattr(group, "machines", ([], []))[0]),
        }

    def _start(self, cluster: Any, group: Any, data: dict[str, Any]) -> None:
        """Instances are asked for at once; the group is ready when they have joined, or fails with an issue."""
        life, world, count = group.life, clock.world(), group.scaling_config.get("desiredSize", 0)
        if life.outcome == "stuck" or count == 0:
            return
        life.gated = True
        wanted, give_up = wanted_of(self.region, cluster, group), life.due + world.latencies.get("eks:NodegroupJoinTimeout")

        def finish(good: bool, nodes: list[str], issue: dict[str, str]) -> None:
            if good:
                life.succeed()
            else:
                group.issue = issue
                life.fail(issue.get("message", ""))

        def due() -> None:
            if cluster.nodegroups.get(group.nodegroup_name) is not group or group.life is not life:
                return
            issue = launch.issue(wanted) if SETTINGS.strict else None
            apart = launch.apart(wanted, launch.usable_subnets(wanted)[0]) if SETTINGS.strict and not issue else ""
            if life.outcome == "failed":
                life.fail(life.reason)
            elif issue:
                finish(False, [], issue)
            elif apart and world.clock.now() >= give_up:
                finish(False, [], {"code": "NodeCreationFailure", "message": f"Instances failed to join the kubernetes cluster ({apart})"})
            elif apart:
                world.agenda.at(world.clock.now() + 5, due)  # an instance goes on trying
            else:
                group.machines = instances.start(wanted, instances.tags_of(wanted, cluster.name, group.nodegroup_name))
                if SETTINGS.hook_nodes_start:
                    HOOKS.start(self._payload("start", cluster, group, data), finish)
                else:
                    life.succeed()

        world.agenda.at(life.due, due)

    def update_nodegroup_config(self) -> ActionResult:
        cluster = self._cluster()
        group = cluster.nodegroups.get(self._get_param("nodegroupName"))
        if group is not None and group.status in ("CREATING", "DELETING"):
            raise ResourceInUseException(
                clusterName=cluster.name, nodegroupName=group.nodegroup_name, message=f"Nodegroup is in {group.status} state"
            )
        super().update_nodegroup_config()
        assert group is not None
        answer = self._update(cluster, "UpdateNodegroupConfig", "ConfigUpdate")
        row, life = cluster.updates[answer.result["update"]["id"]]  # type: ignore[index]
        group.updating = life
        if SETTINGS.hook_nodes_start and self._get_param("scalingConfig") and life.outcome == "":
            life.gated = True

            def finish(good: bool, nodes: list[str], issue: dict[str, str]) -> None:
                if good:
                    life.succeed()
                else:
                    row["errors"] = [{"errorCode": issue.get("code", "Unknown"), "errorMessage": issue.get("message", ""), "resourceIds": []}]
                    life.fail(issue.get("message", ""))

            payload = self._payload("scale", cluster, group, template_data(self.region, group.launch_template))
            clock.world().agenda.at(life.due, lambda: HOOKS.start({**payload, "update": row["id"]}, finish))
        return answer

    def update_nodegroup_version(self) -> ActionResult:
        cluster = self._cluster()
        group = cluster.nodegroups.get(self._get_param("nodegroupName"))
        if group is None:
            raise ResourceNotFoundException(clusterName=cluster.name, message=f"No node group found for name: {self._get_param('nodegroupName')}.")
        wanted = self._get_param("version") or cluster.version
        template = self._get_param("launchTemplate")

        def apply() -> None:
            group.version = wanted
            if template:
                group.launch_template = {**(group.launch_template or {}), **template}

        return self._update(cluster, "UpdateNodegroupVersion", "VersionUpdate", apply, Version=wanted)

    def delete_nodegroup(self) -> ActionResult:
        cluster, world = self._cluster(), clock.world()
        name = self._get_param("nodegroupName")
        group = cluster.nodegroups.get(name)
        if group is None:
            raise ResourceNotFoundException(clusterName=cluster.name, nodegroupName=name, message=f"No node group found for name: {name}.")
        if group.status == "DELETING":
            return ActionResult({"nodegroup": group})
        group.life = life = world.begin("eks", "DeleteNodegroup", group.arn, "DELETING", "DELETED", "DELETE_FAILED")
        stopped, region = {"done": not SETTINGS.hook_nodes_stop}, self.region

        def gone() -> None:
            if stopped["done"]:
                cluster.nodegroups.pop(name, None)
                instances.stop(region, *group.machines)
                if life.gated:
                    life.succeed()
            elif life.outcome == "":
                world.agenda.at(world.clock.now() + 1, gone)

        if SETTINGS.hook_nodes_stop:
            life.gated = True
            HOOKS.stop(self._payload("stop", cluster, group, template_data(self.region, group.launch_template)), lambda: stopped.update(done=True))
        world.after(life, gone)
        return ActionResult({"nodegroup": group})
