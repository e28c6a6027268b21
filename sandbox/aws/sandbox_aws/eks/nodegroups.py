"""Managed node groups, with the commands that start and stop their nodes."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.eks.exceptions import InvalidParameterException, ResourceInUseException, ResourceNotFoundException

from .. import clock, ec2, iam
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


class NodegroupCalls(Base):
    """Names of the methods are the API's."""

    def create_nodegroup(self) -> ActionResult:
        cluster, get, world = self._cluster(), self._get_param, clock.world()
        template, wanted = get("launchTemplate"), get("subnets") or []
        data = template_data(self.region, template)
        if SETTINGS.strict:
            missing = [subnet for subnet in wanted if subnet not in ec2.subnets(self.region)]
            if missing:
                raise InvalidParameterException(
                    clusterName=cluster.name, nodegroupName=get("nodegroupName"), message=f"The subnet ID '{missing[0]}' does not exist"
                )
            problem = iam.role_problem(get("nodeRole"))
            if problem:
                raise InvalidParameterException(clusterName=cluster.name, nodegroupName=get("nodegroupName"), message=problem)
        if data.get("InstanceType") and get("instanceTypes"):
            raise InvalidParameterException(
                clusterName=cluster.name, message="You cannot specify instance types in both the launch template and the API request."
            )
        market = (data.get("InstanceMarketOptions") or {}).get("MarketType")
        if get("capacityType") == "CAPACITY_BLOCK" and template and data and market != "capacity-block":
            raise InvalidParameterException(
                clusterName=cluster.name,
                message="Capacity type CAPACITY_BLOCK needs a launch template with InstanceMarketOptions.MarketType capacity-block.",
            )
        super().create_nodegroup()
        group = cluster.nodegroups[get("nodegroupName")]
        group.version = get("version") or cluster.version
        group.release_version = get("releaseVersion") or f"{group.version}.0-20261120"
        group.node_repair_config, group.update_config = get("nodeRepairConfig"), get("updateConfig") or {"maxUnavailable": 1}
        group.created_at = world.clock.date()
        if data.get("InstanceType"):
            group.instance_types = None
        group.life = world.begin("eks", "CreateNodegroup", group.arn, "CREATING", "ACTIVE", "CREATE_FAILED")
        self._nodes("start", cluster, group, data)
        return ActionResult({"nodegroup": group})

    def _payload(self, action: str, cluster: Any, group: Any, data: dict[str, Any]) -> dict[str, Any]:
        known = ec2.subnets(self.region)
        zones = [known[subnet].availability_zone for subnet in group.subnets if subnet in known]
        return {
            "action": action,
            "kind": "nodegroup",
            "id": group.arn,
            "cluster": cluster.name,
            "group": group.nodegroup_name,
            "instanceType": data.get("InstanceType") or (group.instance_types or ["t3.medium"])[0],
            "count": group.scaling_config.get("desiredSize", 0),
            "zone": zones[0] if zones else None,
            "zones": zones,
            "subnets": group.subnets,
            "labels": group.labels,
            "taints": group.taints,
            "capacityType": group.capacity_type,
            "amiType": group.ami_type,
            "nodeRole": group.node_role,
            "version": group.version,
            "launchTemplate": data,
            "endpoint": cluster.endpoint,
            "region": self.region,
        }

    def _nodes(self, action: str, cluster: Any, group: Any, data: dict[str, Any]) -> None:
        """With a start command: the group is ready when its nodes say so."""
        life = group.life
        if not SETTINGS.hook_nodes_start or life.outcome == "stuck" or group.scaling_config.get("desiredSize", 0) == 0 and action == "start":
            return
        failing, payload = life.outcome == "failed", self._payload(action, cluster, group, data)
        life.gated = True

        def finish(good: bool, nodes: list[str], issue: dict[str, str]) -> None:
            if good:
                life.succeed()
            else:
                group.issue = issue
                life.fail(issue.get("message", ""))

        def due() -> None:
            if failing:
                life.fail(life.reason)
            elif cluster.nodegroups.get(group.nodegroup_name) is group and group.life is life:
                HOOKS.start(payload, finish)

        clock.world().agenda.at(life.due, due)

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
        stopped = {"done": not SETTINGS.hook_nodes_stop}

        def gone() -> None:
            if stopped["done"]:
                cluster.nodegroups.pop(name, None)
                if life.gated:
                    life.succeed()
            elif life.outcome == "":
                world.agenda.at(world.clock.now() + 1, gone)

        if SETTINGS.hook_nodes_stop:
            life.gated = True
            HOOKS.stop(self._payload("stop", cluster, group, template_data(self.region, group.launch_template)), lambda: stopped.update(done=True))
        world.after(life, gone)
        return ActionResult({"nodegroup": group})
