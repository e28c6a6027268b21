"""The instances of a node group, as EC2 shows them: they count against quotas, take addresses, and carry tags until they are gone."""

from __future__ import annotations

from typing import Any

from . import ec2
from .launch import Wanted, usable_subnets


def tags_of(wanted: Wanted, cluster: str, group: str) -> dict[str, str]:
    """What the launch template says, and what EKS adds."""
    specs = wanted.template.get("TagSpecifications") or []
    own = {tag["Key"]: tag["Value"] for spec in specs if spec.get("ResourceType") == "instance" for tag in spec.get("Tags") or spec.get("Tag") or []}
    return {**own, "eks:cluster-name": cluster, "eks:nodegroup-name": group, f"kubernetes.io/cluster/{cluster}": "owned"}


def start(wanted: Wanted, tags: dict[str, str]) -> tuple[list[str], list[str]]:
    """(instances, further network interfaces)."""
    owner, usable, made, interfaces = ec2.backend(wanted.region), usable_subnets(wanted), [], []
    for number in range(wanted.count):
        subnet = usable[number % len(usable)]
        reservation: Any = owner.run_instances(
            "ami-0eksnode",
            1,
            None,
            [],
            instance_type=wanted.instance_type,
            is_instance_type_default=False,
            region_name=wanted.region,
            subnet_id=subnet,
            security_group_ids=wanted.groups,
            nics=[],
            tags={"instance": tags},
        )
        made += [instance.id for instance in reservation.instances]
        interfaces += [ec2.instance_eni(wanted.region, subnet, wanted.groups) for _ in range(wanted.addresses() - 1)]
    return made, interfaces


def shown(region: str, instances: list[str]) -> list[dict[str, str]]:
    """What a node has to know of the instance that it is."""
    found = ec2.backend(region).get_multi_instances_by_id(instances) if instances else []
    return [{"id": one.id, "zone": one.placement.zone, "address": one.private_ip} for one in found]


def stop(region: str, instances: list[str], interfaces: list[str]) -> None:
    owner = ec2.backend(region)
    for instance in owner.get_multi_instances_by_id(instances) if instances else []:
        interfaces = [*interfaces, *(card.id for card in instance.nics.values())]  # all are deleted on termination
        owner.terminate_instances([instance.id])
    for interface in interfaces:
        ec2.drop_eni(region, interface)
