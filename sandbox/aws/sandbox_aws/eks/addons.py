"""Add-ons: versions, states, and the command that looks at their pods."""

from __future__ import annotations

import uuid
from typing import Any

from moto.core.responses import ActionResult
from moto.eks.exceptions import InvalidParameterException, ResourceInUseException, ResourceNotFoundException

from .. import clock, offerings
from ..config import SETTINGS
from ..hooks import HOOKS
from .base import Base


class AddonCalls(Base):
    """Names of the methods are the API's."""

    def describe_addon_versions(self) -> ActionResult:
        name, version = self._get_param("addonName"), self._get_param("kubernetesVersion")
        rows = [
            {
                "addonName": addon,
                "type": "networking",
                "owner": "aws",
                "publisher": "eks",
                "addonVersions": [
                    {
                        "addonVersion": one,
                        "architecture": ["amd64", "arm64"],
                        "requiresConfiguration": False,
                        "compatibilities": [
                            {"clusterVersion": version or offerings.versions()[-1], "platformVersions": ["*"], "defaultVersion": one == known[0]}
                        ],
                    }
                    for one in known
                ],
            }
            for addon, known in offerings.addons().items()
            if name in (None, addon)
        ]
        if name and not rows:
            raise InvalidParameterException(addonName=name, message=f"Addon {name} specified is not supported")
        return ActionResult({"addons": rows})

    def _of(self, store: str, key: str, what: str) -> Any:
        cluster = self._cluster()
        if key not in getattr(cluster, store):
            raise ResourceNotFoundException(clusterName=cluster.name, message=f"No {what} found for name: {key}")
        return getattr(cluster, store)[key]

    def _shown(self, cluster: Any, addon: dict[str, Any]) -> dict[str, Any]:
        """An add-on as the API shows it; with an add-on command, what that says once the latency is over."""
        life, status, issues = addon["_life"], addon["_life"].state(), []
        if status == "CREATE_FAILED":
            issues = [{"code": "InternalFailure", "message": life.reason, "resourceIds": []}]
        elif life.operation == "CreateAddon" and life.gated and life.outcome == "" and clock.world().clock.now() >= life.due:
            answer = HOOKS.addon(
                {
                    "cluster": cluster.name,
                    "addon": addon["addonName"],
                    "version": addon["addonVersion"],
                    "configuration": addon.get("configurationValues"),
                    "endpoint": cluster.endpoint,
                }
            )
            status, issues = answer["status"], [{"resourceIds": [], **issue} for issue in answer.get("issues", [])]
            if status == "ACTIVE" and life.ready is None:
                life.succeed()
        return {**{key: value for key, value in addon.items() if not key.startswith("_")}, "status": status, "health": {"issues": issues}}

    def _watch(self, cluster: Any, addon: dict[str, Any]) -> None:
        """With an add-on command: ready when the command says ACTIVE, which is asked until it is."""
        life, world = addon["_life"], clock.world()
        if not SETTINGS.hook_addon or life.outcome:
            return
        life.gated = True

        def look() -> None:
            if cluster.addons.get(addon["addonName"]) is addon and addon["_life"] is life and life.ready is None:
                self._shown(cluster, addon)
                world.agenda.at(world.clock.now() + max(1.0, 0.2 * world.clock.factor), look)

        world.agenda.at(life.due, look)

    def create_addon(self) -> ActionResult:
        cluster, get, world = self._ready_cluster(), self._get_param, clock.world()
        name, known = get("addonName"), offerings.addons()
        if name in cluster.addons and self._same_call(cluster.addons[name]):
            return ActionResult({"addon": self._shown(cluster, cluster.addons[name])})
        if name not in known:
            raise InvalidParameterException(clusterName=cluster.name, addonName=name, message=f"Addon {name} specified is not supported")
        if get("addonVersion") and get("addonVersion") not in known[name]:
            raise InvalidParameterException(
                clusterName=cluster.name, addonName=name, message=f"Addon version specified is not supported in {cluster.version}"
            )
        if name in cluster.addons:
            raise ResourceInUseException(clusterName=cluster.name, addonName=name, message="Addon already exists.")
        made = [
            self._associate(cluster, "kube-system", row["serviceAccount"], row["roleArn"])["associationArn"]
            for row in get("podIdentityAssociations") or []
        ]
        arn = f"{cluster.arn.replace(':cluster/', ':addon/')}/{name}/{uuid.uuid4()}"
        cluster.addons[name] = {
            "addonName": name,
            "clusterName": cluster.name,
            "addonVersion": get("addonVersion") or known[name][0],
            "addonArn": arn,
            "configurationValues": get("configurationValues"),
            "serviceAccountRoleArn": get("serviceAccountRoleArn"),
            "podIdentityAssociations": made,
            "tags": get("tags") or {},
            "createdAt": world.clock.date(),
            "modifiedAt": world.clock.date(),
            "_asked": self._asked(),
            "_life": world.begin("eks", "CreateAddon", arn, "CREATING", "ACTIVE", "CREATE_FAILED"),
        }
        self._watch(cluster, cluster.addons[name])
        return ActionResult({"addon": self._shown(cluster, cluster.addons[name])})

    def describe_addon(self) -> ActionResult:
        return ActionResult({"addon": self._shown(self._cluster(), self._of("addons", self._get_param("addonName"), "addon"))})

    def list_addons(self) -> ActionResult:
        return ActionResult({"addons": list(self._cluster().addons)})

    def update_addon(self) -> ActionResult:
        addon = self._of("addons", self._get_param("addonName"), "addon")
        wanted = {key: self._get_param(key) for key in ("configurationValues", "addonVersion", "serviceAccountRoleArn") if self._get_param(key)}
        return self._update(self._cluster(), "UpdateAddon", "AddonUpdate", lambda: addon.update(wanted))

    def delete_addon(self) -> ActionResult:
        cluster, addon = self._cluster(), self._of("addons", self._get_param("addonName"), "addon")
        if addon["_life"].state() == "DELETING":
            return ActionResult({"addon": self._shown(cluster, addon)})
        world = clock.world()
        addon["_life"] = life = world.begin("eks", "DeleteAddon", addon["addonArn"], "DELETING", "DELETED", "DELETE_FAILED")

        def gone() -> None:
            cluster.addons.pop(addon["addonName"], None)
            for arn in addon["podIdentityAssociations"]:  # what came with the add-on goes with it
                cluster.identities.pop(arn.split("/")[-1], None)

        def ended(problem: str) -> None:
            if problem:
                life.fail(problem)
            else:
                life.succeed()
                gone()

        if SETTINGS.hook_addon and not life.outcome:
            life.gated = True
            payload = {"action": "addon-delete", "cluster": cluster.name, "addon": addon["addonName"], "endpoint": cluster.endpoint}
            world.agenda.at(life.due, lambda: HOOKS.simple(SETTINGS.hook_addon, payload, ended))
        else:
            world.after(life, gone)
        return ActionResult({"addon": self._shown(cluster, addon)})
