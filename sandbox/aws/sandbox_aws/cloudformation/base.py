"""What every operation on a stack needs: looking things up, events, and the agenda."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from .. import clock, ec2
from ..config import SETTINGS
from . import resources
from . import template as tpl
from .stack import Resource, Stack


class Base:
    """All stacks of the account, and what drives them."""

    def __init__(self, clients: Any) -> None:
        self.clients = clients
        self.stacks: list[Stack] = []

    # ---- looking things up ----------------------------------------------------------------------------------------------

    def find(self, name: str, region: str) -> Stack | None:
        """By id any stack, by name only one that is not deleted."""
        for stack in reversed(self.stacks):
            if stack.id == name or (stack.name == name and stack.region == region and stack.status != "DELETE_COMPLETE"):
                return stack
        return None

    def exports(self, region: str) -> dict[str, str]:
        return {
            row["ExportName"]: row["OutputValue"]
            for stack in self.stacks
            if stack.region == region and stack.status != "DELETE_COMPLETE"
            for row in stack.outputs
            if row.get("ExportName")
        }

    def scope(self, stack: Stack, template: dict[str, Any] | None = None, values: dict[str, Any] | None = None) -> tpl.Scope:
        pseudo = {
            "AWS::Region": stack.region,
            "AWS::AccountId": SETTINGS.account,
            "AWS::Partition": "aws",
            "AWS::StackName": stack.name,
            "AWS::StackId": stack.id,
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::NotificationARNs": [],
        }

        def physical(name: str) -> str:
            if name not in stack.resources or not stack.resources[name].physical:
                raise tpl.TemplateError(f"Template error: resource {name} is not available")
            return stack.resources[name].physical

        def attribute(name: str, key: str) -> Any:
            row = stack.resources[name]
            if key not in row.attrs:
                raise tpl.TemplateError(f"Template error: resource {name} does not support attribute type {key} in Fn::GetAtt")
            return row.attrs[key]

        def zones(region: str) -> list[str]:
            return sorted(zone.name for zone in ec2.backend(region).describe_availability_zones())

        return tpl.Scope(
            template or stack.template,
            {**pseudo, **(stack.values if values is None else values)},
            physical,
            attribute,
            zones,
            lambda: self.exports(stack.region),
        )

    def wanted(self, stack: Stack, template: dict[str, Any] | None = None, values: dict[str, Any] | None = None) -> set[str]:
        """The resources whose condition holds."""
        source, scope = template or stack.template, self.scope(stack, template, values)
        return {name for name, spec in source["Resources"].items() if "Condition" not in spec or scope.condition(spec["Condition"])}

    def context(self, stack: Stack, logical: str) -> resources.Context:
        return resources.Context(
            stack.region, SETTINGS.account, stack.name, stack.id, logical, stack.tags, lambda service: self.clients.get(service, stack.region)
        )

    # ---- events -----------------------------------------------------------------------------------------------------------

    def event(self, stack: Stack, status: str, reason: str = "", resource: Resource | None = None) -> None:
        now = clock.world().clock.date()
        row = {
            "StackId": stack.id,
            "StackName": stack.name,
            "EventId": f"{resource.logical}-{status}-{uuid.uuid4().hex[:17]}" if resource else str(uuid.uuid4()),
            "Timestamp": now,
            "LogicalResourceId": resource.logical if resource else stack.name,
            "PhysicalResourceId": resource.physical if resource else stack.id,
            "ResourceType": resource.type if resource else "AWS::CloudFormation::Stack",
            "ResourceStatus": status,
        }
        if reason:
            row["ResourceStatusReason"] = reason
        if stack.token:
            row["ClientRequestToken"] = stack.token
        if resource:
            resource.status, resource.reason, resource.changed = status, reason, now
            if resource.props and status.endswith("COMPLETE"):
                row["ResourceProperties"] = json.dumps(resource.props, default=str)
        else:
            stack.status, stack.reason = status, reason
        stack.events.append(row)

    def _later(self, stack: Stack, seconds: float, action: Callable[[], None]) -> None:
        generation = stack.generation

        def entry() -> None:
            if stack.generation == generation:
                self._as(stack, action)

        clock.world().agenda.at(clock.world().clock.now() + seconds, entry)

    def _as(self, stack: Stack, action: Callable[[], None]) -> None:
        """Do something with the credentials of the stack's owner."""
        clock.world().effects.stack_key = stack.access_key
        try:
            action()
        finally:
            clock.world().effects.stack_key = ""

    def _begin(self, stack: Stack, operation: str, doing: str) -> bool:
        """Start an operation's clock; False if a fault rule wants it to hang."""
        stack.generation += 1
        stack.track = clock.world().begin("cloudformation", operation, f"stack:{stack.name}", doing, "COMPLETE", "FAILED", seconds=0)
        stuck, failing = stack.track.outcome == "stuck", stack.track.outcome == "failed"
        stack.track.gated, stack.track.outcome = True, ""
        stack.options["injected"] = stack.track.reason if failing else ""
        return not stuck

    def _track_resource(self, stack: Stack, row: Resource, operation: str) -> None:
        row.track = clock.world().begin(
            "cloudformation",
            f"{operation} {row.type}",
            f"{stack.name}/{row.logical}",
            "IN_PROGRESS",
            "COMPLETE",
            "FAILED",
            seconds=0,
            parent=f"stack:{stack.name}",
        )
        row.track.gated = True

    def _end(self, stack: Stack, status: str, reason: str = "") -> None:
        self.event(stack, status, reason)
        if stack.track:
            stack.track.succeed() if "FAILED" not in status and "ROLLBACK" not in status else stack.track.fail(reason or status)


def missing(code: str) -> bool:
    return "NotFound" in code or code in (
        "NoSuchEntity",
        "NoSuchBucket",
        "ResourceNotFound",
        "NatGatewayNotFound",
        "RepositoryNotFoundException",
        "ParameterNotFound",
    )


def why(problem: Exception) -> str:
    """The reason as CloudFormation words it."""
    if isinstance(problem, ClientError):
        error, meta = problem.response["Error"], problem.response["ResponseMetadata"]
        code = {"DependencyViolation": "InvalidRequest", "AlreadyExists": "AlreadyExists", "EntityAlreadyExists": "AlreadyExists"}.get(
            error["Code"], "GeneralServiceException"
        )
        if any(word in error["Code"] for word in ("AccessDenied", "Unauthorized")):
            code = "AccessDenied"
        elif any(word in error["Code"] for word in ("LimitExceeded", "QuotaExceeded")):
            code = "ServiceLimitExceeded"
        elif any(word in error["Code"] for word in ("Throttl", "RequestLimitExceeded")):
            code = "Throttling"
        elif "InvalidParameter" in error["Code"] or "Validation" in error["Code"]:
            code = "InvalidRequest"
        return (
            f'Resource handler returned message: "{error.get("Message", "")} (Service: {problem.operation_name}, '
            f"Error Code: {error['Code']}, Status Code: {meta.get('HTTPStatusCode')}, "
            f'Request ID: {meta.get("RequestId", "")})" (RequestToken: {uuid.uuid4()}, HandlerErrorCode: {code})'
        )
    if isinstance(problem, (ParamValidationError, KeyError, tpl.TemplateError)):
        return f"Properties validation failed: {problem}" if not isinstance(problem, tpl.TemplateError) else str(problem)
    return f"{type(problem).__name__}: {problem}"
