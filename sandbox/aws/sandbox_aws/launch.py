"""What EC2 and Auto Scaling say to a node group's instances: zones, adapters, quotas, addresses, and whether they reach the control plane.

A node group that cannot start its instances is CREATE_FAILED with an issue; these are the issues, in the words of the services
as far as they are known (public reports), else in words of our own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from . import ec2, quotas

Issue = dict[str, str]
QUOTAS = {"p": "L-417A185B", "g": "L-DB2E81BA", "gr": "L-DB2E81BA", "vt": "L-DB2E81BA"}
STANDARD = "L-1216C47A"  # every other family that is used here


@dataclass
class Wanted:
    """What a node group asks Auto Scaling for."""

    region: str
    instance_type: str
    count: int
    subnets: list[str]
    template: dict[str, Any]
    cluster_group: str = ""
    capacity_type: str = "ON_DEMAND"

    @property
    def adapters(self) -> list[dict[str, Any]]:
        return list(self.template.get("NetworkInterfaces") or [])

    @property
    def groups(self) -> list[str]:
        """The security groups of the instances: EKS adds its own only where the template names none."""
        named = [group for adapter in self.adapters for group in adapter.get("Groups") or adapter.get("SecurityGroupIds") or []]
        named += list(self.template.get("SecurityGroupIds") or [])
        return sorted(set(named)) or ([self.cluster_group] if self.cluster_group else [])

    def addresses(self) -> int:
        """Addresses that each instance takes in its subnet; an `efa-only` adapter takes none."""
        return sum(1 for adapter in self.adapters if adapter.get("InterfaceType") != "efa-only") or 1


def failed(text: str) -> Issue:
    return {"code": "AsgInstanceLaunchFailures", "message": f"Could not launch On-Demand Instances. {text} Launching EC2 instance failed."}


def zones_of(region: str, instance_type: str) -> set[str]:
    rows = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return {row["Location"] for row in rows if row["InstanceType"] == instance_type}


def usable_subnets(wanted: Wanted) -> list[str]:
    """Those subnets in whose zone the type is offered; Auto Scaling passes over the others."""
    known, zones = ec2.subnets(wanted.region), zones_of(wanted.region, wanted.instance_type)
    return [subnet for subnet in wanted.subnets if subnet in known and known[subnet].availability_zone in zones]


def issue(wanted: Wanted) -> Issue | None:
    """Why the instances do not start, or None."""
    if wanted.instance_type not in INSTANCE_TYPES:
        return failed(f"InvalidParameterValue - Invalid value '{wanted.instance_type}' for InstanceType.")
    return _zone(wanted) or _adapters(wanted) or _quota(wanted) or _room(wanted)


def _zone(wanted: Wanted) -> Issue | None:
    if usable_subnets(wanted):
        return None
    known = ec2.subnets(wanted.region)
    asked = known[wanted.subnets[0]].availability_zone if wanted.subnets and wanted.subnets[0] in known else "?"
    return failed(
        f"Unsupported - Your requested instance type ({wanted.instance_type}) is not supported in your requested Availability Zone ({asked}). "
        "Please retry your request by not specifying an Availability Zone or choosing "
        f"{', '.join(sorted(zones_of(wanted.region, wanted.instance_type))) or 'another region'}."
    )


def _adapters(wanted: Wanted) -> Issue | None:
    """The network interfaces of the launch template against what the type has."""
    adapters, network = wanted.adapters, INSTANCE_TYPES[wanted.instance_type]["NetworkInfo"]
    if not adapters:
        return None
    cards, most = int(network.get("MaximumNetworkCards", 1)), int((network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0))
    places = [(int(adapter.get("NetworkCardIndex") or 0), int(adapter.get("DeviceIndex") or 0)) for adapter in adapters]
    kinds = [adapter.get("InterfaceType") or "interface" for adapter in adapters]
    if (0, 0) not in places:
        return failed("InvalidParameterCombination - A primary network interface with device index 0 on network card 0 is required.")
    if kinds[places.index((0, 0))] == "efa-only":
        return failed("InvalidParameterCombination - The primary network interface cannot be of type efa-only.")
    if len(set(places)) < len(places):
        return failed("InvalidParameterValue - Each network interface requires its own device index and network card.")
    beyond = [card for card, _ in places if card >= cards]
    if beyond:
        return failed(f"InvalidParameterValue - Network card index {beyond[0]} exceeds the limit for {wanted.instance_type}.")
    fast = sum(kind in ("efa", "efa-only") for kind in kinds)
    if fast and not most:
        return failed(f"InvalidParameterCombination - EFA interfaces are not supported on {wanted.instance_type}.")
    if fast > most:
        return failed(f"AttachmentLimitExceeded - Interface count {fast} exceeds the limit for {wanted.instance_type}.")
    if len(adapters) > 1 and any(str(adapter.get("AssociatePublicIpAddress")).lower() == "true" for adapter in adapters):
        return failed(
            "InvalidParameterCombination - The associatePublicIPAddress parameter cannot be specified when launching with "
            "multiple network interfaces."
        )
    return None


def _quota(wanted: Wanted) -> Issue | None:
    if wanted.capacity_type == "CAPACITY_BLOCK":  # a block does not count against the on-demand quota
        return None
    code = _quota_code(wanted.instance_type)
    limit = quotas.value(code)
    if limit is None:
        return None
    counted = [*_running(wanted.region), *[wanted.instance_type] * wanted.count]
    used = sum(_vcpus(kind) for kind in counted if _quota_code(kind) == code)
    if used <= float(limit):
        return None
    return failed(
        f"VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of {int(limit)} allows for the "
        "instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request "
        "an adjustment to this limit."
    )


def _running(region: str) -> list[str]:
    instances = (instance for reservation in ec2.backend(region).reservations.values() for instance in reservation.instances)
    return [instance.instance_type for instance in instances if instance.state in ("pending", "running")]


def _vcpus(instance_type: str) -> int:
    return int(INSTANCE_TYPES.get(instance_type, {}).get("VCpuInfo", {}).get("DefaultVCpus", 0))


def _quota_code(instance_type: str) -> str:
    """The on-demand quota that a type counts against, by the letters before its generation."""
    letters = re.match(r"[a-z]+", instance_type)
    return QUOTAS.get(letters.group(0) if letters else "", STANDARD)


def _room(wanted: Wanted) -> Issue | None:
    known = ec2.subnets(wanted.region)
    free = sum(known[subnet].available_ip_address_count // wanted.addresses() for subnet in usable_subnets(wanted))
    if free >= wanted.count:
        return None
    return {
        "code": "InsufficientFreeAddresses",
        "message": "Amazon EKS was unable to launch instances: one or more of the subnets associated with your node group do not have "
        "enough available IP addresses for new nodes.",
    }


# ---- joining ------------------------------------------------------------------------------------------------------------------


def apart(wanted: Wanted, subnet: str) -> str:
    """Why an instance in this subnet cannot join now, or an empty text. On AWS it keeps trying, so a way out that comes later is enough."""
    if wanted.cluster_group and not _reaches(wanted, wanted.cluster_group):
        return "the instances' security groups do not reach the cluster security group"
    return "" if _way_out(wanted, subnet) else f"the subnet {subnet} has no route to a NAT gateway and no VPC endpoints"


def _reaches(wanted: Wanted, cluster_group: str) -> bool:
    owner = ec2.backend(wanted.region)
    group = owner.get_security_group_from_id(cluster_group)
    if group is None or cluster_group in wanted.groups:
        return True
    return any(ec2.allows(rule, 443, wanted.groups, []) for rule in group.ingress_rules)


def _way_out(wanted: Wanted, subnet: str) -> bool:
    owner, place = ec2.backend(wanted.region), ec2.subnets(wanted.region).get(subnet)
    if place is None:
        return False
    for route in ec2.table_of(wanted.region, subnet).routes:
        if route.destination_cidr_block == "0.0.0.0/0" and route.nat_gateway is not None:
            return bool(route.nat_gateway.state == "available")
        if route.destination_cidr_block == "0.0.0.0/0" and route.gateway is not None:
            asked = any(str(adapter.get("AssociatePublicIpAddress")).lower() == "true" for adapter in wanted.adapters)
            return len(wanted.adapters) <= 1 and (asked or str(place.map_public_ip_on_launch).lower() == "true")
    services = {point.service_name.rsplit(".", 1)[-1] for point in owner.vpc_end_points.values() if point.vpc_id == place.vpc_id}
    return {"ec2", "sts", "s3"} <= services
