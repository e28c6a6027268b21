"""Holds every answer against botocore's own model of the operation, before botocore's lenient parser sees it.

botocore drops members that it does not know and never asks for required ones, so a client in another language can fail on an
answer that looks fine from Python. Looked at: unknown members, missing required members, types, enum values.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as xml
from typing import Any

from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

# What AWS really answers although its published model does not say so: EC2 writes the states of endpoints in small letters
# (its own examples do), and new processor features arrive before the models.
BEYOND_THE_MODEL = {"pending", "available", "deleting", "deleted", "metal-compatibility"}
NUMBERS = {"integer", "long", "float", "double"}


def complaints(operation: OperationModel, status: int, body: bytes) -> list[str]:
    """What is wrong with an answer; empty when nothing is. Errors have no output shape and are left alone."""
    shape = operation.output_shape
    if status >= 400 or shape is None:
        return []
    protocol = operation.service_model.protocol
    if protocol in ("json", "rest-json"):
        payload = shape.serialization.get("payload")
        if payload and shape.members[payload].type_name == "blob":
            return []
        return list(_json(shape, json.loads(body or b"{}"), operation.name))
    if protocol in ("ec2", "query"):
        try:
            root = xml.fromstring(body)
        except xml.ParseError:
            return []  # cut off by a fault: botocore says so itself
        root = xml.fromstring(re.sub(rb' xmlns="[^"]+"', b"", body, count=1))
        wrapper = shape.serialization.get("resultWrapper")
        return list(_xml(shape, root.find(wrapper) if wrapper else root, operation.name, top=True))
    return []


# ---- JSON ---------------------------------------------------------------------------------------------------------------------


def _json(shape: Shape, value: Any, where: str) -> Any:
    if value is None:
        return
    if isinstance(shape, StructureShape):
        yield from _json_structure(shape, value, where)
    elif isinstance(shape, ListShape):
        if not isinstance(value, list):
            yield f"{where}: not a list: {value!r}"
            return
        for index, item in enumerate(value):
            yield from _json(shape.member, item, f"{where}[{index}]")
    elif isinstance(shape, MapShape):
        if not isinstance(value, dict):
            yield f"{where}: not a map: {value!r}"
            return
        for key, item in value.items():
            yield from _json(shape.value, item, f"{where}.{key}")
    elif not _scalar_fits(shape, value):
        yield f"{where}: {value!r} is no {shape.type_name}"
    elif shape.type_name == "string" and getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{where}: {value!r} is not one of {shape.enum}"


def _json_structure(shape: StructureShape, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        yield f"{where}: not a structure: {value!r}"
        return
    names = {member.serialization.get("name", name): name for name, member in shape.members.items()}
    for key in value:
        if key not in names:
            yield f"{where}: unknown member {key}"
    for wire_name, name in names.items():
        if shape.members[name].serialization.get("location"):  # a header or the status: not in the body
            continue
        if name in shape.required_members and value.get(wire_name) is None:
            yield f"{where}: required member {name} is missing"
        yield from _json(shape.members[name], value.get(wire_name), f"{where}.{name}")


def _scalar_fits(shape: Shape, value: Any) -> bool:
    kind = shape.type_name
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in NUMBERS:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and (kind in ("float", "double") or value == int(value))
    if kind == "timestamp":
        return (
            isinstance(value, (int, float)) if shape.serialization.get("timestampFormat") in (None, "unixTimestamp") else isinstance(value, str)
        ) and not isinstance(value, bool)
    return isinstance(value, str)


# ---- XML ----------------------------------------------------------------------------------------------------------------------


def _xml(shape: Shape, node: xml.Element | None, where: str, top: bool = False) -> Any:
    if node is None:
        return
    if isinstance(shape, StructureShape):
        yield from _xml_structure(shape, node, where, top)
    elif isinstance(shape, ListShape):
        name = shape.member.serialization.get("name", "member")
        for index, item in enumerate(node):
            if item.tag != name:
                yield f"{where}: list holds <{item.tag}>, not <{name}>"
            yield from _xml(shape.member, item, f"{where}[{index}]")
    elif isinstance(shape, MapShape):
        for entry in node:
            yield from _xml(shape.value, entry.find(shape.value.serialization.get("name", "value")), where)
    else:
        yield from _xml_scalar(shape, node.text or "", where)


def _xml_structure(shape: StructureShape, node: xml.Element, where: str, top: bool) -> Any:
    names = {member.serialization.get("name", name): name for name, member in shape.members.items()}
    for child in node:
        if child.tag not in names and not (top and child.tag.lower() in ("requestid", "responsemetadata", "return")):
            yield f"{where}: unknown member {child.tag}"
    for wire_name, name in names.items():
        child, member = node.find(wire_name), shape.members[name]
        if name in shape.required_members and child is None:
            yield f"{where}: required member {name} is missing"
        if isinstance(member, ListShape) and member.serialization.get("flattened"):
            for item in node.findall(wire_name):
                yield from _xml(member.member, item, f"{where}.{name}")
        else:
            yield from _xml(member, child, f"{where}.{name}")


def _xml_scalar(shape: Shape, text: str, where: str) -> Any:
    kind = shape.type_name
    good = True
    if kind == "boolean":
        good = text in ("true", "false")
    elif kind in NUMBERS:
        good = bool(re.fullmatch(r"-?\d+", text) if kind in ("integer", "long") else re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text))
    elif kind == "timestamp":
        good = bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", text))
    elif kind == "string" and getattr(shape, "enum", None):
        good = text in shape.enum or text in BEYOND_THE_MODEL
    if not good:
        yield f"{where}: {text!r} is no {kind}" + (f" of {shape.enum}" if getattr(shape, "enum", None) else "")


def watch(client: Any) -> Any:
    """The same client, which from now on fails on an answer that its model does not allow."""

    def look(operation_model: OperationModel, response_dict: dict[str, Any], **_: Any) -> None:
        found = complaints(operation_model, response_dict["status_code"], response_dict["body"])
        assert not found, f"{operation_model.service_model.service_name}:\n  " + "\n  ".join(found[:40])

    client.meta.events.register("before-parse", look)
    return client
