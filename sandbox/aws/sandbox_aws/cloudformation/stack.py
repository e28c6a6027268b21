"""A stack and its resources, as they are now."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .. import clock
from ..config import SETTINGS
from . import template as tpl

DONE = {
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "ROLLBACK_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE",
    "CREATE_FAILED",
    "UPDATE_FAILED",
    "DELETE_FAILED",
    "ROLLBACK_FAILED",
    "DELETE_COMPLETE",
    "REVIEW_IN_PROGRESS",
    "UPDATE_ROLLBACK_FAILED",
}
UPDATABLE = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "CREATE_FAILED", "UPDATE_FAILED"}


@dataclass
class Resource:
    """One resource of a stack, as last seen."""

    logical: str
    type: str
    status: str = ""
    reason: str = ""
    physical: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    props: dict[str, Any] = field(default_factory=dict)
    lives: list[clock.Life] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    changed: datetime | None = None
    track: clock.Life | None = None
    before: tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]] | None = None  # physical, attrs, props, spec before the running update
    was_new: bool = False


class Stack:
    """One stack and the operation that runs on it."""

    def __init__(
        self, name: str, region: str, body: str, template: dict[str, Any], given: dict[str, str], tags: dict[str, str], options: dict[str, Any]
    ) -> None:
        self.name, self.region = name, region
        self.id = f"arn:aws:cloudformation:{region}:{SETTINGS.account}:stack/{name}/{uuid.uuid4()}"
        self.body, self.template, self.given, self.tags, self.options = body, template, given, tags, options
        self.values = tpl.parameters(template, given)
        self.status, self.reason = "REVIEW_IN_PROGRESS", ""
        self.resources: dict[str, Resource] = {}
        self.events: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.created = clock.world().clock.date()
        self.updated: datetime | None = None
        self.deleted: datetime | None = None
        self.tokens: dict[str, str] = {}
        self.token = ""
        self.protected = False
        self.generation = 0  # a newer operation makes the entries of the older one void
        self.track: clock.Life | None = None
        self.garbage: list[Resource] = []  # replaced or removed, to be deleted in the clean-up
        self.policy: str | None = None
        self.change_sets: dict[str, dict[str, Any]] = {}
        self.access_key = ""

    @property
    def idle(self) -> bool:
        return self.status in DONE
