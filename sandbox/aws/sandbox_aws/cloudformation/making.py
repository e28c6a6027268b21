"""Stacks are made in dependency order, and rolled back when something fails."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from .. import clock
from . import resources
from . import template as tpl
from .base import Base, why
from .stack import Resource, Stack


class Making(Base):
    """Stacks are made in dependency order, and rolled back when something fails."""

    def create(self, stack: Stack) -> None:
        stack.resources = {}
        stack.created = clock.world().clock.date()
        go = self._begin(stack, "CreateStack", "CREATE_IN_PROGRESS")
        self.event(stack, "CREATE_IN_PROGRESS", "User Initiated")
        wanted = self.wanted(stack)
        for name in tpl.order(stack.template, wanted):
            spec = stack.template["Resources"][name]
            stack.resources[name] = Resource(name, spec["Type"], spec=spec)
        if go:
            self._later(stack, clock.world().latencies.get("cloudformation:Stack"), lambda: self._advance_create(stack))
        if stack.options.get("timeout"):
            self._later(stack, float(stack.options["timeout"]) * 60, lambda: self._timed_out(stack))

    def _timed_out(self, stack: Stack) -> None:
        if stack.status == "CREATE_IN_PROGRESS":
            self._create_failed(stack, [], f"The stack was not created within {stack.options['timeout']} minutes. ")

    def _advance_create(self, stack: Stack) -> None:
        if stack.options.get("injected"):
            self._create_failed(stack, [], stack.options["injected"])
            return
        names = set(stack.resources)
        for row in list(stack.resources.values()):
            if row.status == "" and all(stack.resources[need].status == "CREATE_COMPLETE" for need in tpl.depends(row.spec, names)):
                self._make(stack, row, "CREATE", lambda: self._advance_create(stack), lambda bad: self._create_failed(stack, [bad], ""))
                if stack.status != "CREATE_IN_PROGRESS":
                    return
        if all(row.status == "CREATE_COMPLETE" for row in stack.resources.values()):
            try:
                self._outputs(stack)
            except (tpl.TemplateError, KeyError) as problem:
                self._create_failed(stack, [], str(problem))
                return
            self._end(stack, "CREATE_COMPLETE")

    def _outputs(self, stack: Stack) -> None:
        scope, rows = self.scope(stack), []
        for key, spec in (stack.template.get("Outputs") or {}).items():
            if "Condition" in spec and not scope.condition(spec["Condition"]):
                continue
            row = {"OutputKey": key, "OutputValue": str(scope.resolve(spec["Value"]))}
            if spec.get("Description"):
                row["Description"] = spec["Description"]
            if spec.get("Export"):
                row["ExportName"] = scope.resolve(spec["Export"]["Name"])
            rows.append(row)
        stack.outputs = rows

    def _make(self, stack: Stack, row: Resource, verb: str, then: Callable[[], None], failed: Callable[[Resource], None]) -> None:
        """Call the create of one resource, wait for its own latency and for whatever it began, then go on."""
        kind, world = resources.KINDS[row.type], clock.world()
        self._track_resource(stack, row, "create")
        try:
            row.props = self.scope(stack).resolve(row.spec.get("Properties") or {})
            missing = [key for key in kind.required if row.props.get(key) is None]
            self.event(stack, f"{verb}_IN_PROGRESS", "", row)
            if missing:
                raise tpl.TemplateError(
                    f"Properties validation failed for resource {row.logical} with message: #: required key [{missing[0]}] not found"
                )
            mark = len(world.lives)
            row.physical, row.attrs = kind.create(self.context(stack, row.logical), row.props)
            row.lives = world.lives[mark:]
        except Exception as problem:  # whatever the service or the template said becomes the resource's reason
            self._fail(stack, row, f"{verb}_FAILED", why(problem), failed)
            return
        self.event(stack, f"{verb}_IN_PROGRESS", "Resource creation Initiated", row)
        self._await(stack, row, world.latencies.get(f"cloudformation:{row.type}"), f"{verb}_COMPLETE", f"{verb}_FAILED", then, failed)

    def _fail(self, stack: Stack, row: Resource, status: str, reason: str, failed: Callable[[Resource], None]) -> None:
        self.event(stack, status, reason, row)
        if row.track:
            row.track.fail(reason)
        failed(row)

    def _await(
        self, stack: Stack, row: Resource, seconds: float, status: str, bad: str, then: Callable[[], None], failed: Callable[[Resource], None]
    ) -> None:
        def look() -> None:
            world = clock.world()
            waiting = [life for life in row.lives if not life.finished()]
            if waiting:
                soonest = min(max(life.due - world.clock.now(), 0.0) for life in waiting)
                self._later(stack, soonest if soonest > 0 else max(1.0, 0.1 * world.clock.factor), look)
                return
            broken = next((life for life in row.lives if life.outcome == "failed"), None)
            if broken:
                self._fail(
                    stack,
                    row,
                    bad,
                    f'Resource handler returned message: "{broken.reason}" (RequestToken: {uuid.uuid4()}, HandlerErrorCode: NotStabilized)',
                    failed,
                )
                return
            kind = resources.KINDS[row.type]
            if kind.finish:
                try:
                    row.attrs = kind.finish(self.context(stack, row.logical), row.physical, row.attrs, row.props)
                except Exception as problem:
                    self._fail(stack, row, bad, why(problem), failed)
                    return
            self.event(stack, status, "", row)
            if row.track:
                row.track.succeed()
            then()

        self._later(stack, seconds, look)

    def _create_failed(self, stack: Stack, bad: list[Resource], reason: str) -> None:
        names = [row.logical for row in bad]
        for row in stack.resources.values():
            if row.status == "CREATE_IN_PROGRESS":
                self.event(stack, "CREATE_FAILED", "Resource creation cancelled", row)
                if row.track:
                    row.track.fail("Resource creation cancelled")
                names.append(row.logical)
        why = reason or f"The following resource(s) failed to create: [{', '.join(names)}]. "
        action = stack.options.get("on_failure", "ROLLBACK")
        if action == "DO_NOTHING":
            stack.generation += 1
            self._end(stack, "CREATE_FAILED", why)
            return
        stack.generation += 1
        if action == "DELETE":
            self.event(stack, "DELETE_IN_PROGRESS", why + "Delete requested by user.")
            self._take_away(stack, "DELETE_COMPLETE", "DELETE_FAILED", set())
        else:
            self.event(stack, "ROLLBACK_IN_PROGRESS", why + "Rollback requested by user.")
            self._take_away(stack, "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", set())
