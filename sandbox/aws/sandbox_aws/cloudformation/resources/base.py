"""How each resource type is made, changed and taken away, by calls of the sandbox's own API.

A type that is not here does not exist: templates that use it are refused.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Props = dict[str, Any]


@dataclass
class Context:
    """Where a resource lives."""

    region: str
    account: str
    stack_name: str
    stack_id: str
    logical: str
    stack_tags: dict[str, str]
    client: Callable[[str], Any]

    def name(self, props: Props, key: str, limit: int = 64, lower: bool = False) -> str:
        """The name given, or stack-logical-RANDOM as CloudFormation makes it."""
        if props.get(key):
            return str(props[key])
        tail = "-" + "".join(random.choices(string.ascii_uppercase + string.digits, k=12))
        name = f"{self.stack_name}-{self.logical}"[: limit - len(tail)] + tail
        return name.lower() if lower else name

    def tags(self, props: Props) -> list[dict[str, str]]:
        own = props.get("Tags") or []
        rows = {tag["Key"]: str(tag["Value"]) for tag in own} if isinstance(own, list) else dict(own)
        return [{"Key": key, "Value": value} for key, value in {**self.stack_tags, **rows}.items()]

    def system_tags(self) -> list[dict[str, str]]:
        return [
            {"Key": "aws:cloudformation:stack-name", "Value": self.stack_name},
            {"Key": "aws:cloudformation:stack-id", "Value": self.stack_id},
            {"Key": "aws:cloudformation:logical-id", "Value": self.logical},
        ]

    def ec2_tags(self, kind: str, props: Props) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": self.tags(props) + self.system_tags()}]


@dataclass
class Kind:
    """One resource type. `create` gives (physical id, attributes); `update` gives new attributes; a change outside `mutable` replaces."""

    create: Callable[[Context, Props], tuple[str, dict[str, Any]]]
    delete: Callable[[Context, str, dict[str, Any], Props], None]
    update: Callable[[Context, str, dict[str, Any], Props, Props], dict[str, Any] | None] | None = None
    mutable: frozenset[str] = frozenset()
    finish: Callable[[Context, str, dict[str, Any], Props], dict[str, Any]] | None = None  # attributes known only when it is ready
    required: tuple[str, ...] = ()
    name_key: str = ""  # the property that names it: such a one cannot be replaced under the same name


KINDS: dict[str, Kind] = {}


def given(props: Props, *keys: str) -> Props:
    return {key: props[key] for key in keys if props.get(key) is not None}


def camel(value: Any, keep: tuple[str, ...] = ("Labels", "Tags")) -> Any:
    """CloudFormation's names as EKS's API writes them: first letter small; the keys of maps in `keep` stay."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: inner if key in keep else camel(inner, keep) for key, inner in value.items()}
    return [camel(item, keep) for item in value] if isinstance(value, list) else value


def truth(value: Any) -> bool:
    return str(value).lower() == "true"


def retag(ctx: Context, physical: str, old: Props, new: Props) -> None:
    gone = {tag["Key"] for tag in old.get("Tags") or []} - {tag["Key"] for tag in new.get("Tags") or []}
    if gone:
        ctx.client("ec2").delete_tags(Resources=[physical], Tags=[{"Key": key} for key in gone])
    if ctx.tags(new):
        ctx.client("ec2").create_tags(Resources=[physical], Tags=ctx.tags(new))
