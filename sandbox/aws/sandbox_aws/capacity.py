"""Capacity reservations and blocks, and placement groups: what moto's EC2 lacks."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2.responses import EC2Response

from . import clock, offerings
from .ec2 import Refused, state


def _tags(self: Any) -> list[dict[str, str]]:
    return [tag for spec in self._get_param("TagSpecifications") or [] for tag in spec.get("Tags", [])]


def create_capacity_reservation(self: Any) -> ActionResult:
    get, ident = self._get_param, "cr-" + uuid.uuid4().hex[:17]
    count = int(get("InstanceCount") or 1)
    row = {
        "CapacityReservationId": ident,
        "InstanceType": get("InstanceType"),
        "InstancePlatform": get("InstancePlatform"),
        "AvailabilityZone": get("AvailabilityZone"),
        "TotalInstanceCount": count,
        "AvailableInstanceCount": count,
        "State": "active",
        "ReservationType": "default",
        "OwnerId": self.current_account,
        "CreateDate": utcnow(),
        "Tags": _tags(self),
        "InstanceMatchCriteria": get("InstanceMatchCriteria") or "open",
        "EndDateType": get("EndDateType") or "unlimited",
        "CapacityReservationArn": f"arn:aws:ec2:{self.region}:{self.current_account}:capacity-reservation/{ident}",
    }
    state(self)["reservations"][ident] = row
    return ActionResult({"CapacityReservation": row})


def describe_capacity_reservations(self: Any) -> ActionResult:
    ids, rows = self._get_param("CapacityReservationIds") or [], state(self)["reservations"]
    for ident in ids:
        if ident not in rows:
            raise Refused("InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{ident}' does not exist")
    found = [row for ident, row in rows.items() if not ids or ident in ids]
    names = {"instance-type": "InstanceType", "state": "State", "availability-zone": "AvailabilityZone", "reservation-type": "ReservationType"}
    for one in self._get_param("Filters") or []:
        if one["Name"] in names:
            found = [row for row in found if _settled(row).get(names[one["Name"]]) in one["Values"]]
        elif one["Name"].startswith("tag:"):
            found = [row for row in found if any(tag["Key"] == one["Name"][4:] and tag["Value"] in one["Values"] for tag in row.get("Tags", []))]
    return ActionResult({"CapacityReservations": [_settled(row) for row in found]})


def _settled(row: dict[str, Any]) -> dict[str, Any]:
    """A block is payment-pending, then scheduled, active from its start and expired after its end."""
    life = row.get("_life")
    if life is None:
        return row
    shown = {key: value for key, value in row.items() if not key.startswith("_")}
    now = utcnow()
    if not life.finished():
        shown["State"] = "payment-pending"
    elif row["State"] != "cancelled":
        begins, ends = row["StartDate"], row["EndDate"]
        shown["State"] = "scheduled" if now < begins else "active" if now < ends else "expired"
    return shown


def cancel_capacity_reservation(self: Any) -> ActionResult:
    ident = self._get_param("CapacityReservationId")
    row = state(self)["reservations"].get(ident)
    if row is None:
        raise Refused("InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{ident}' does not exist")
    if row["ReservationType"] == "capacity-block":
        raise Refused("InvalidParameterValue", "You can't cancel a Capacity Block.")
    row["State"] = "cancelled"
    return ActionResult({"Return": True})


def describe_capacity_block_offerings(self: Any) -> ActionResult:
    get = self._get_param
    hours, count = int(get("CapacityDurationHours")), int(get("InstanceCount") or 1)
    begin = utcnow().replace(tzinfo=None) + datetime.timedelta(minutes=int(get("StartInMinutes") or 0))
    offer = {
        "CapacityBlockOfferingId": "cb-" + uuid.uuid4().hex[:17],
        "InstanceType": get("InstanceType"),
        "InstanceCount": count,
        "AvailabilityZone": self.region + "a",
        "CapacityBlockDurationHours": hours,
        "StartDate": begin,
        "EndDate": begin + datetime.timedelta(hours=hours),
        "UpfrontFee": f"{offerings.block_fee(get('InstanceType')) * hours * count:.2f}",
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }
    state(self)["offers"][offer["CapacityBlockOfferingId"]] = offer
    return ActionResult({"CapacityBlockOfferings": [offer]})


def purchase_capacity_block(self: Any) -> ActionResult:
    offer = state(self)["offers"].get(self._get_param("CapacityBlockOfferingId"))
    if not offer:
        raise Refused("InvalidParameterValue", "The Capacity Block offering does not exist or has expired.")
    ident = "cr-" + uuid.uuid4().hex[:17]
    life = clock.world().begin("ec2", "PurchaseCapacityBlock", ident, "payment-pending", "scheduled")
    row = {
        "CapacityReservationId": ident,
        "InstanceType": offer["InstanceType"],
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": offer["AvailabilityZone"],
        "TotalInstanceCount": offer["InstanceCount"],
        "AvailableInstanceCount": offer["InstanceCount"],
        "State": "payment-pending",
        "ReservationType": "capacity-block",
        "StartDate": offer["StartDate"],
        "EndDate": offer["EndDate"],
        "OwnerId": self.current_account,
        "InstanceMatchCriteria": "targeted",
        "EndDateType": "limited",
        "CreateDate": utcnow(),
        "Tags": _tags(self),
        "_life": life,
    }
    state(self)["reservations"][ident] = row
    return ActionResult({"CapacityReservation": _settled(row)})


# ---- placement groups -------------------------------------------------------------------------------------------------------


def create_placement_group(self: Any) -> ActionResult:
    name = self._get_param("GroupName")
    if name in state(self)["groups"]:
        raise Refused("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
    row = {
        "GroupName": name,
        "Strategy": self._get_param("Strategy"),
        "State": "available",
        "GroupId": "pg-" + uuid.uuid4().hex[:17],
        "Tags": _tags(self),
    }
    state(self)["groups"][name] = row
    return ActionResult({"PlacementGroup": row})


def describe_placement_groups(self: Any) -> ActionResult:
    names = self._get_param("GroupNames")
    for name in names or []:
        if name not in state(self)["groups"]:
            raise Refused("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return ActionResult({"PlacementGroups": [row for name, row in state(self)["groups"].items() if not names or name in names]})


def delete_placement_group(self: Any) -> EmptyResult:
    name = self._get_param("GroupName")
    if state(self)["groups"].pop(name, None) is None:
        raise Refused("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return EmptyResult()


def install() -> None:
    for function in (
        create_capacity_reservation,
        describe_capacity_reservations,
        cancel_capacity_reservation,
        describe_capacity_block_offerings,
        purchase_capacity_block,
        create_placement_group,
        describe_placement_groups,
        delete_placement_group,
    ):
        setattr(EC2Response, function.__name__, function)
