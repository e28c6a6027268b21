"""The Resource Groups Tagging API over everything that the sandbox keeps itself; moto lists the rest.

As on AWS: IAM roles are not in it, nor EKS access entries; a NAT gateway stays listed after its deletion (seen in a public run log:
"afterwards the tagging API still listed the NAT gateway"), so whoever wants proof has to ask the service itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.core.resource_tagging import TaggedResource
from moto.ecr.models import ecr_backends
from moto.eks.models import eks_backends
from moto.resourcegroupstaggingapi import models

from . import ec2
from .config import SETTINGS


def _pairs(rows: list[dict[str, str]] | None) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in rows or []}


def _ec2(region: str) -> Iterator[TaggedResource]:
    owner = ec2.backend(region)
    state = owner.__dict__.get("sandbox", {"reservations": {}, "groups": {}})
    head = f"arn:aws:ec2:{region}:{SETTINGS.account}:"
    for kind, idents in (
        ("elastic-ip", [eip.allocation_id for eip in owner.addresses if eip.allocation_id]),
        ("launch-template", list(owner.launch_templates)),
        ("vpc-endpoint", list(owner.vpc_end_points)),
    ):
        for ident in idents:
            yield TaggedResource(f"{head}{kind}/{ident}", dict(owner.tags.get(ident, {})), f"ec2:{kind}")
    for ident, row in state["reservations"].items():
        yield TaggedResource(f"{head}capacity-reservation/{ident}", _pairs(row.get("Tags")), "ec2:capacity-reservation")
    for name, row in state["groups"].items():
        yield TaggedResource(f"{head}placement-group/{name}", _pairs(row.get("Tags")), "ec2:placement-group")


def _eks(region: str) -> Iterator[TaggedResource]:
    for cluster in eks_backends[SETTINGS.account][region].clusters.values():
        yield TaggedResource(cluster.arn, dict(cluster.tags or {}), "eks:cluster")
        for group in cluster.nodegroups.values():
            yield TaggedResource(group.arn, dict(group.tags or {}), "eks:nodegroup")
        for addon in cluster.__dict__.get("addons", {}).values():
            yield TaggedResource(addon["addonArn"], dict(addon.get("tags") or {}), "eks:addon")
        for row in cluster.__dict__.get("identities", {}).values():
            yield TaggedResource(row["associationArn"], dict(row.get("tags") or {}), "eks:podidentityassociation")


def _ecr(region: str) -> Iterator[TaggedResource]:
    owner = ecr_backends[SETTINGS.account][region]
    for repository in owner.repositories.values():
        yield TaggedResource(repository.arn, _pairs(owner.tagger.list_tags_for_resource(repository.arn)["tags"]), "ecr:repository")


def _stacks(region: str) -> Iterator[TaggedResource]:
    from .cloudformation.requests import Current

    for stack in Current.engine.stacks:
        if stack.region == region and stack.status != "DELETE_COMPLETE":
            yield TaggedResource(stack.id, dict(stack.tags), "cloudformation:stack")


def install() -> None:
    owner: Any = models.ResourceGroupsTaggingAPIBackend
    original = owner._get_resources_generator

    def resources(self: Any, tag_filters: Any = None, resource_type_filters: Any = None, resource_arn_list: Any = None) -> Iterator[TaggedResource]:
        matches = models.make_tag_matcher(tag_filters)
        ours = [row for source in (_stacks, _ec2, _eks, _ecr) for row in source(self.region_name)]
        rest = list(original(self, tag_filters, resource_type_filters, resource_arn_list))
        for row in ours:
            named = not resource_arn_list or row.arn in resource_arn_list
            if row.tags and named and matches(row.tags) and models.match_resource_type(row.resource_type, resource_type_filters):
                yield row
        known = {row.arn for row in ours}
        yield from (row for row in rest if row.arn not in known)

    owner._get_resources_generator = resources
