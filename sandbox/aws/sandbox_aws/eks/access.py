"""Access entries, access policies and pod identity associations."""

from __future__ import annotations

import uuid
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.eks.exceptions import InvalidParameterException, InvalidRequestException, ResourceInUseException

from .. import iam
from ..config import SETTINGS
from .base import Base

KINDS = {"STANDARD", "EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX", "HYPERPOD_LINUX"}


class AccessCalls(Base):
    """Names of the methods are the API's."""

    def _entry(self, cluster: Any, arn: str, groups: list[str], kind: str, tags: dict[str, str], username: str | None = None) -> dict[str, Any]:
        cluster.entries[arn] = {
            "clusterName": cluster.name,
            "principalArn": arn,
            "kubernetesGroups": groups,
            "type": kind,
            "tags": tags,
            "username": username
            or (arn.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/") + "/{{SessionName}}" if ":role/" in arn else arn),
            "accessEntryArn": f"{cluster.arn.replace(':cluster/', ':access-entry/')}/{arn.split(':')[-1]}/{uuid.uuid4()}",
            "createdAt": utcnow(),
            "modifiedAt": utcnow(),
            "policies": [],
        }
        return cluster.entries[arn]

    def create_access_entry(self) -> ActionResult:
        cluster, get = self._ready_cluster(), self._get_param
        arn, kind = get("principalArn"), get("type") or "STANDARD"
        if cluster.access_config["authenticationMode"] == "CONFIG_MAP":
            raise InvalidRequestException(
                clusterName=cluster.name,
                message="The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.",
            )
        if kind not in KINDS:
            raise InvalidParameterException(message=f"The specified type is invalid: {kind}")
        if any(group.startswith("system:") for group in get("kubernetesGroups") or []):
            raise InvalidParameterException(message="The kubernetes group name is invalid, it cannot start with system:")
        if arn in cluster.entries and self._same_call(cluster.entries[arn]):
            return ActionResult({"accessEntry": _public(cluster.entries[arn])})
        if arn in cluster.entries:
            raise ResourceInUseException(clusterName=cluster.name, message="The specified access entry resource is already in use on this cluster.")
        entry = self._entry(
            cluster, arn, get("kubernetesGroups") or (["system:nodes"] if kind == "EC2" else []), kind, get("tags") or {}, get("username")
        )
        entry["_asked"] = self._asked()
        return ActionResult({"accessEntry": _public(entry)})

    def describe_access_entry(self) -> ActionResult:
        return ActionResult({"accessEntry": _public(self._of("entries", self._get_param("principalArn"), "access entry"))})

    def update_access_entry(self) -> ActionResult:
        entry, get = self._of("entries", self._get_param("principalArn"), "access entry"), self._get_param
        entry.update({key: get(name) for key, name in (("kubernetesGroups", "kubernetesGroups"), ("username", "username")) if get(name) is not None})
        return ActionResult({"accessEntry": _public(entry)})

    def list_access_entries(self) -> ActionResult:
        return ActionResult({"accessEntries": list(self._cluster().entries)})

    def delete_access_entry(self) -> EmptyResult:
        self._of("entries", self._get_param("principalArn"), "access entry")
        self._cluster().entries.pop(self._get_param("principalArn"))
        return EmptyResult()

    def associate_access_policy(self) -> ActionResult:
        entry, policy = self._of("entries", self._get_param("principalArn"), "access entry"), self._get_param("policyArn")
        if ":cluster-access-policy/" not in policy:
            raise InvalidParameterException(message=f"The policyArn parameter format is not valid: {policy}")
        row = {"policyArn": policy, "accessScope": self._get_param("accessScope"), "associatedAt": utcnow(), "modifiedAt": utcnow()}
        entry["policies"] = [old for old in entry["policies"] if old["policyArn"] != policy] + [row]
        return ActionResult({"clusterName": entry["clusterName"], "principalArn": entry["principalArn"], "associatedAccessPolicy": row})

    def disassociate_access_policy(self) -> EmptyResult:
        entry = self._of("entries", self._get_param("principalArn"), "access entry")
        entry["policies"] = [old for old in entry["policies"] if old["policyArn"] != self._get_param("policyArn")]
        return EmptyResult()

    def list_associated_access_policies(self) -> ActionResult:
        entry = self._of("entries", self._get_param("principalArn"), "access entry")
        return ActionResult(
            {"clusterName": entry["clusterName"], "principalArn": entry["principalArn"], "associatedAccessPolicies": entry["policies"]}
        )

    def _associate(self, cluster: Any, namespace: str, account: str, role: str, tags: dict[str, str] | None = None) -> dict[str, Any]:
        for row in cluster.identities.values():
            if (row["namespace"], row["serviceAccount"]) == (namespace, account):
                raise ResourceInUseException(clusterName=cluster.name, message="Association already exists: " + row["associationId"])
        ident = "a-" + uuid.uuid4().hex[:17]
        cluster.identities[ident] = {
            "clusterName": cluster.name,
            "namespace": namespace,
            "serviceAccount": account,
            "roleArn": role,
            "associationId": ident,
            "associationArn": f"{cluster.arn.replace(':cluster/', ':podidentityassociation/')}/{ident}",
            "tags": tags or {},
            "createdAt": utcnow(),
            "modifiedAt": utcnow(),
        }
        return cluster.identities[ident]

    def create_pod_identity_association(self) -> ActionResult:
        cluster, get = self._ready_cluster(), self._get_param
        for known in cluster.identities.values():
            if self._same_call(known):
                return ActionResult({"association": _public(known)})
        problem = iam.role_problem(get("roleArn")) if SETTINGS.strict else None
        if problem:
            raise InvalidParameterException(clusterName=cluster.name, message=problem)
        row = self._associate(cluster, get("namespace"), get("serviceAccount"), get("roleArn"), get("tags"))
        row["_asked"] = self._asked()
        return ActionResult({"association": _public(row)})

    def describe_pod_identity_association(self) -> ActionResult:
        return ActionResult({"association": _public(self._of("identities", self._get_param("associationId"), "association"))})

    def list_pod_identity_associations(self) -> ActionResult:
        namespace, account = self._get_param("namespace"), self._get_param("serviceAccount")
        return ActionResult(
            {
                "associations": [
                    {key: row[key] for key in ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")}
                    for row in self._cluster().identities.values()
                    if namespace in (None, row["namespace"]) and account in (None, row["serviceAccount"])
                ]
            }
        )

    def delete_pod_identity_association(self) -> ActionResult:
        row = self._of("identities", self._get_param("associationId"), "association")
        del self._cluster().identities[row["associationId"]]
        return ActionResult({"association": _public(row)})


def _public(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "policies" and not key.startswith("_")}
