"""Change sets of the CloudFormation API."""

from __future__ import annotations

import uuid
from typing import Any

from moto.cloudformation.exceptions import AlreadyExistsException, CloudFormationError, ValidationError
from moto.core.responses import ActionResult, EmptyResult

from .. import clock
from . import template as tpl
from .engine import UPDATABLE, Stack
from .requests import ChangeSetNotFound, Common, Current


class ChangeSets(Common):
    """Names of the methods are the API's."""

    def create_change_set(self) -> ActionResult:
        name, kind = self._get_param("ChangeSetName"), self._get_param("ChangeSetType") or "UPDATE"
        known = Current.engine.find(self._get_param("StackName"), self.region)
        if kind == "CREATE":
            if known is not None and known.status != "REVIEW_IN_PROGRESS":
                raise AlreadyExistsException(f"Stack [{known.name}] already exists")
            body = self._body()
            template = self._read(body)
            stack = known or self._new(self._get_param("StackName"), body, template)
            if not stack.events:
                Current.engine.event(stack, "REVIEW_IN_PROGRESS", "User Initiated")
        else:
            stack = self._stack()
            body = self._body(stack)
            template = self._read(body)
        if name in stack.change_sets:
            raise AlreadyExistsException(f"ChangeSet {name} already exists")
        given, tags = self._given(None if kind == "CREATE" else stack), self._tags()
        try:
            changes = Current.engine.changes(stack, template, given)
        except tpl.TemplateError as problem:
            raise ValidationError(message=str(problem)) from None
        empty = not changes and kind != "CREATE" and (template.get("Outputs") or {}) == (stack.template.get("Outputs") or {})
        ident = f"arn:aws:cloudformation:{self.region}:{self.current_account}:changeSet/{name}/{uuid.uuid4()}"
        stack.change_sets[name] = {
            "ChangeSetName": name,
            "ChangeSetId": ident,
            "StackId": stack.id,
            "StackName": stack.name,
            "Description": self._get_param("Description"),
            "CreationTime": clock.world().clock.date(),
            "ExecutionStatus": "UNAVAILABLE" if empty else "AVAILABLE",
            "Status": "FAILED" if empty else "CREATE_COMPLETE",
            "Capabilities": self._get_param("Capabilities") or [],
            "StatusReason": "The submitted information didn't contain changes. Submit different information to create a change set."
            if empty
            else None,
            "Changes": [{"Type": "Resource", "ResourceChange": change} for change in changes],
            "_run": (kind, body, template, given, tags, self._options()),
        }
        return ActionResult({"Id": ident, "StackId": stack.id})

    def _change_set(self) -> tuple[Stack, dict[str, Any]]:
        wanted = self._get_param("ChangeSetName")
        for stack in Current.engine.stacks:
            if self._get_param("StackName") in (None, stack.name, stack.id):
                for name, row in stack.change_sets.items():
                    if wanted in (name, row["ChangeSetId"]):
                        return stack, row
        raise ChangeSetNotFound(f"ChangeSet [{wanted}] does not exist")

    def describe_change_set(self) -> ActionResult:
        return ActionResult({key: value for key, value in self._change_set()[1].items() if not key.startswith("_") and value is not None})

    def list_change_sets(self) -> ActionResult:
        keys = ("ChangeSetName", "ChangeSetId", "StackId", "StackName", "ExecutionStatus", "Status", "StatusReason", "CreationTime")
        return ActionResult(
            {"Summaries": [{key: row[key] for key in keys if row.get(key) is not None} for row in self._stack().change_sets.values()]}
        )

    def delete_change_set(self) -> EmptyResult:
        try:
            stack, row = self._change_set()
        except ChangeSetNotFound:
            return EmptyResult()
        del stack.change_sets[row["ChangeSetName"]]
        return EmptyResult()

    def execute_change_set(self) -> EmptyResult:
        stack, row = self._change_set()
        if row["ExecutionStatus"] != "AVAILABLE":
            error = CloudFormationError(f"ChangeSet [{row['ChangeSetId']}] cannot be executed in its current status of [{row['Status']}]")
            error.code = "InvalidChangeSetStatus"
            raise error
        kind, body, template, given, tags, options = row["_run"]
        self._repeated(stack, "execute")
        stack.change_sets.clear()
        if kind == "CREATE":
            stack.body, stack.template, stack.given, stack.tags, stack.options = body, template, given, tags, options
            stack.values = tpl.parameters(template, given)
            Current.engine.create(stack)
        else:
            if stack.status not in UPDATABLE:
                raise ValidationError(message=f"Stack:{stack.id} is in {stack.status} state and can not be updated.")
            Current.engine.update(stack, body, template, given, tags or stack.tags, options)
        return EmptyResult()
