"""What the calls of the CloudFormation API have in common: stack, template, parameters, tokens."""

from __future__ import annotations

from typing import Any

from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.utils import get_stack_from_s3_url
from moto.core.responses import BaseResponse

from . import resources
from . import template as tpl
from .engine import Engine, Stack


class InsufficientCapabilities(CloudFormationError):
    code = "InsufficientCapabilitiesException"


InsufficientCapabilities.__module__ = "moto.cloudformation.exceptions"


class ChangeSetNotFound(CloudFormationError):
    code = "ChangeSetNotFound"


ChangeSetNotFound.__module__ = "moto.cloudformation.exceptions"


class Current:
    """The engine that the calls speak to."""

    engine: Engine


class Common(BaseResponse):
    """Names of the methods are the API's; stack sets and drift are not there and answer 501."""

    def __init__(self) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True

    # ---- what the calls have in common ----------------------------------------------------------------------------------------

    def _stack(self, name: str | None = None) -> Stack:
        name = name or self._get_param("StackName") or ""
        stack = Current.engine.find(name, self.region)
        if stack is None:
            raise ValidationError(message=f"Stack with id {name} does not exist")
        return stack

    def _body(self, previous: Stack | None = None) -> str:
        if self._get_bool_param("UsePreviousTemplate", False):
            if previous is None:
                raise ValidationError(message="Either Template URL or Template Body must be specified.")
            return previous.body
        if self._get_param("TemplateURL"):
            text = get_stack_from_s3_url(self._get_param("TemplateURL"), account_id=self.current_account, partition=self.partition)
            return text.decode() if isinstance(text, bytes) else str(text)
        if not self._get_param("TemplateBody"):
            raise ValidationError(message="Either Template URL or Template Body must be specified.")
        return str(self._get_param("TemplateBody"))

    def _read(self, body: str, capable: bool = True) -> dict[str, Any]:
        try:
            template = tpl.read(body)
            tpl.check(template, set(resources.KINDS))
        except tpl.TemplateError as problem:
            raise ValidationError(message=str(problem)) from None
        if capable:
            needed, given = tpl.capabilities(template), set(self._get_param("Capabilities") or [])
            if needed and not (set(needed) & given or "CAPABILITY_NAMED_IAM" in given):
                raise InsufficientCapabilities(f"Requires capabilities : [{', '.join(needed)}]")
        return template

    def _given(self, previous: Stack | None = None) -> dict[str, str]:
        rows: dict[str, str] = {}
        for row in self._get_param("Parameters") or []:
            if row.get("UsePreviousValue") in (True, "true"):
                if previous is None or row["ParameterKey"] not in previous.given:
                    continue
                rows[row["ParameterKey"]] = previous.given[row["ParameterKey"]]
            else:
                rows[row["ParameterKey"]] = str(row.get("ParameterValue", ""))
        return rows

    def _tags(self) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self._get_param("Tags") or []}

    def _options(self) -> dict[str, Any]:
        on_failure = self._get_param("OnFailure")
        if on_failure and self._get_param("DisableRollback") is not None:
            raise ValidationError(message="You cannot specify both DisableRollback and OnFailure")
        if self._get_bool_param("DisableRollback", False):
            on_failure = "DO_NOTHING"
        return {
            "on_failure": on_failure or "ROLLBACK",
            "timeout": self._get_param("TimeoutInMinutes"),
            "capabilities": self._get_param("Capabilities") or [],
            "role": self._get_param("RoleARN"),
            "notify": self._get_param("NotificationARNs") or [],
        }

    def _repeated(self, stack: Stack, operation: str) -> bool:
        """Whether this very request was made before (same ClientRequestToken)."""
        token = self._get_param("ClientRequestToken") or ""
        if token and stack.tokens.get(token) == operation:
            return True
        if token:
            stack.tokens[token] = operation
        stack.token = token
        return False
