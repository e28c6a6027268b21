"""Stacks are changed resource by resource, cleaned up, or put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import clock
from . import resources
from . import template as tpl
from .base import Base, why
from .stack import Resource, Stack


class Changing(Base):
    """Stacks are changed resource by resource, cleaned up, or put back."""

    def changes(self, stack: Stack, template: dict[str, Any], given: dict[str, str]) -> list[dict[str, Any]]:
        """What an update would do, from templates and parameters: for change sets and for "nothing to do"."""
        values = tpl.parameters(template, given)
        wanted, rows = self.wanted(stack, template, values), []
        changed_values = {key for key in set(values) | set(stack.values) if values.get(key) != stack.values.get(key)}
        for name in wanted - set(stack.resources):
            rows.append({"Action": "Add", "LogicalResourceId": name, "ResourceType": template["Resources"][name]["Type"]})
        for name, row in stack.resources.items():
            if row.status in ("DELETE_COMPLETE",):
                continue
            if name not in wanted:
                rows.append({"Action": "Remove", "LogicalResourceId": name, "ResourceType": row.type, "PhysicalResourceId": row.physical})
                continue
            spec, kind = template["Resources"][name], resources.KINDS[row.type]
            old, new = row.spec.get("Properties") or {}, spec.get("Properties") or {}
            keys = {key for key in set(old) | set(new) if old.get(key) != new.get(key) or set(tpl.references({"x": new.get(key)})) & changed_values}
            if spec["Type"] != row.type or keys:
                replace = "False" if keys <= kind.mutable and spec["Type"] == row.type else "True"
                rows.append(
                    {
                        "Action": "Modify",
                        "LogicalResourceId": name,
                        "ResourceType": row.type,
                        "PhysicalResourceId": row.physical,
                        "Replacement": replace,
                        "Scope": ["Properties"],
                        "Details": [
                            {
                                "Target": {
                                    "Attribute": "Properties",
                                    "Name": key,
                                    "RequiresRecreation": "Never" if key in kind.mutable else "Always",
                                },
                                "Evaluation": "Static",
                                "ChangeSource": "DirectModification",
                            }
                            for key in sorted(keys)
                        ],
                    }
                )
        return rows

    def nothing_new(self, stack: Stack, template: dict[str, Any], given: dict[str, str], tags: dict[str, str]) -> bool:
        same_outputs = (template.get("Outputs") or {}) == (stack.template.get("Outputs") or {})
        return not self.changes(stack, template, given) and same_outputs and tags == stack.tags

    def update(self, stack: Stack, body: str, template: dict[str, Any], given: dict[str, str], tags: dict[str, str], options: dict[str, Any]) -> None:
        go = self._begin(stack, "UpdateStack", "UPDATE_IN_PROGRESS")
        options["injected"] = stack.options.get("injected", "")
        previous = (stack.body, stack.template, stack.given, stack.values, stack.tags)
        stack.body, stack.template, stack.given, stack.tags, stack.options = body, template, given, tags, options
        stack.values = tpl.parameters(template, given)
        stack.updated = clock.world().clock.date()
        self.event(stack, "UPDATE_IN_PROGRESS", "User Initiated")
        wanted, pending, failed_rows = self.wanted(stack), {}, []  # type: ignore[var-annotated]
        old = dict(stack.resources)
        stack.garbage = [row for name, row in old.items() if name not in wanted and row.physical]
        for row in stack.garbage:
            del stack.resources[row.logical]
        for name in tpl.order(template, wanted):
            spec = template["Resources"][name]
            row = stack.resources.get(name)
            if row is None or row.status in ("DELETE_COMPLETE", "CREATE_FAILED") or not row.physical:
                row = stack.resources[name] = Resource(name, spec["Type"], spec=spec, was_new=True)
            else:
                row.was_new, row.before = False, (row.physical, dict(row.attrs), dict(row.props), row.spec)
                row.spec = spec
            pending[name] = row
        state: dict[str, Any] = {"waiting": dict(pending), "running": set(), "over": False}

        def advance() -> None:
            if state["over"]:
                return
            if options.get("injected"):
                self._update_failed(stack, previous, old, options["injected"])
                state["over"] = True
                return
            moved = True
            while moved and not state["over"]:
                moved = False
                for name, row in list(state["waiting"].items()):
                    needs = tpl.depends(row.spec, set(pending))
                    if name in state["running"] or needs & set(state["waiting"]):
                        continue
                    moved = True
                    self._change(stack, row, state, advance, bad)
                    if state["over"]:
                        return
            if not state["waiting"]:
                state["over"] = True
                try:
                    self._outputs(stack)
                except (tpl.TemplateError, KeyError) as problem:
                    self._update_failed(stack, previous, old, str(problem))
                    return
                self.event(stack, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
                self._later(stack, clock.world().latencies.get("cloudformation:Cleanup"), lambda: self._clean(stack, "UPDATE_COMPLETE"))

        def bad(row: Resource) -> None:
            if not state["over"]:
                state["over"] = True
                failed_rows.append(row)
                self._update_failed(
                    stack, previous, old, f"The following resource(s) failed to {'create' if row.was_new else 'update'}: [{row.logical}]. "
                )

        if go:
            self._later(stack, clock.world().latencies.get("cloudformation:Stack"), advance)

    def _change(self, stack: Stack, row: Resource, state: dict[str, Any], advance: Callable[[], None], bad: Callable[[Resource], None]) -> None:
        """One resource of an update: nothing, in place, or a new one instead."""

        def then() -> None:
            state["waiting"].pop(row.logical, None)
            state["running"].discard(row.logical)
            advance()

        state["running"].add(row.logical)
        if row.was_new:
            self._make(stack, row, "CREATE", then, bad)
            return
        kind, world = resources.KINDS[row.spec["Type"]], clock.world()
        try:
            props = self.scope(stack).resolve(row.spec.get("Properties") or {})
        except (tpl.TemplateError, KeyError) as problem:
            self._fail(stack, row, "UPDATE_FAILED", str(problem), bad)
            return
        keys = {key for key in set(props) | set(row.props) if props.get(key) != row.props.get(key)}
        if not keys and row.spec["Type"] == row.type:
            state["waiting"].pop(row.logical, None)
            state["running"].discard(row.logical)
            return
        if kind.update and keys <= kind.mutable and row.spec["Type"] == row.type:
            self._track_resource(stack, row, "update")
            self.event(stack, "UPDATE_IN_PROGRESS", "", row)
            mark = len(world.lives)
            try:
                row.attrs = kind.update(self.context(stack, row.logical), row.physical, row.attrs, row.props, props) or row.attrs
            except Exception as problem:
                self._fail(stack, row, "UPDATE_FAILED", why(problem), bad)
                return
            row.props, row.lives = props, world.lives[mark:]
            self._await(stack, row, world.latencies.get(f"cloudformation:{row.type}"), "UPDATE_COMPLETE", "UPDATE_FAILED", then, bad)
            return
        if kind.name_key and row.props.get(kind.name_key) and row.props.get(kind.name_key) == props.get(kind.name_key):
            self.event(stack, "UPDATE_IN_PROGRESS", "", row)
            self._fail(
                stack,
                row,
                "UPDATE_FAILED",
                "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
                f"Rename {stack.name}/{row.props[kind.name_key]} and update the stack again.",
                bad,
            )
            return
        old = Resource(
            row.logical, row.type, row.status, row.reason, row.physical, row.attrs, row.props, row.lives, row.before[3] if row.before else row.spec
        )
        stack.garbage.append(old)
        self.event(stack, "UPDATE_IN_PROGRESS", "Requested update requires the creation of a new physical resource; hence creating one.", row)
        row.type = row.spec["Type"]
        self._make(stack, row, "UPDATE", then, bad)

    def _clean(self, stack: Stack, good: str) -> None:
        """Delete what was replaced or removed, in reverse order of need; a failure here leaves it behind."""
        open_rows = list(reversed(stack.garbage))

        def step() -> None:
            if not open_rows:
                stack.garbage = []
                self._end(stack, good)
                return
            row = open_rows.pop(0)
            blocked = [other for other in open_rows if row.logical in tpl.depends(other.spec, {row.logical})]
            if blocked:
                open_rows.append(row)
                step()
            elif row.spec.get("DeletionPolicy") == "Retain" or row.spec.get("UpdateReplacePolicy") == "Retain":
                self.event(stack, "DELETE_SKIPPED", "", row)
                step()
            else:
                self._remove(stack, row, step, lambda bad: step())

        step()

    def _update_failed(self, stack: Stack, previous: Any, old: dict[str, Resource], why: str) -> None:
        for row in stack.resources.values():
            if row.status in ("UPDATE_IN_PROGRESS", "CREATE_IN_PROGRESS"):
                self.event(stack, "UPDATE_FAILED" if not row.was_new else "CREATE_FAILED", "Resource update cancelled", row)
        stack.generation += 1
        if stack.options.get("on_failure") == "DO_NOTHING":
            self._end(stack, "UPDATE_FAILED", why)
            return
        self.event(stack, "UPDATE_ROLLBACK_IN_PROGRESS", why)
        stack.body, stack.template, stack.given, stack.values, stack.tags = previous
        back = [
            row
            for row in stack.resources.values()
            if not row.was_new and row.before and (row.props != row.before[2] or row.physical != row.before[0])
        ]
        new = [row for row in stack.resources.values() if row.was_new and row.physical]
        replaced = {row.logical: row for row in stack.garbage if row.logical in stack.resources}
        removed = [row for row in stack.garbage if row.logical not in stack.resources]
        for row in back:
            assert row.before is not None
            physical, attrs, props, spec = row.before
            if row.logical in replaced:
                new.append(Resource(row.logical, row.type, row.status, "", row.physical, row.attrs, row.props, row.lives, row.spec))
            else:
                try:
                    kind = resources.KINDS[row.type]
                    if kind.update:
                        kind.update(self.context(stack, row.logical), physical, attrs, row.props, props)
                except Exception as problem:
                    self.event(stack, "UPDATE_FAILED", why(problem), row)
                    self._end(stack, "UPDATE_ROLLBACK_FAILED", f"The following resource(s) failed to update: [{row.logical}]. ")
                    return
            row.physical, row.attrs, row.props, row.spec = physical, attrs, props, spec
            self.event(stack, "UPDATE_COMPLETE", "", row)
        for row in stack.resources.values():
            if not row.was_new and row.before:
                row.spec = row.before[3]
                if row.status in ("UPDATE_FAILED",):
                    self.event(stack, "UPDATE_COMPLETE", "", row)
        for row in removed:
            stack.resources[row.logical] = row
        stack.resources = {name: row for name, row in stack.resources.items() if not row.was_new}
        stack.garbage = list(new)
        self.event(stack, "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS")
        self._later(stack, clock.world().latencies.get("cloudformation:Cleanup"), lambda: self._clean(stack, "UPDATE_ROLLBACK_COMPLETE"))
