"""Stacks are taken away in the other order; what is blocked is tried again for a while."""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import ClientError

from .. import clock
from . import resources
from . import template as tpl
from .base import Base, missing, why
from .stack import Resource, Stack

RETRY_EVERY = 15.0  # sandbox seconds between two tries of a deletion that something blocks
RETRY_FOR = 120.0  # and how long that goes on before the resource is DELETE_FAILED (assumed; AWS takes 5 to 20 minutes for some types)


class Removing(Base):
    """Stacks are taken away in the other order; what is blocked is tried again for a while."""

    def delete(self, stack: Stack, retain: set[str]) -> None:
        go = self._begin(stack, "DeleteStack", "DELETE_IN_PROGRESS")
        self.event(stack, "DELETE_IN_PROGRESS", "User Initiated")
        for row in stack.resources.values():
            if row.track and row.track.ready is None:
                row.track.fail("cancelled by the deletion")
        if go:
            self._later(
                stack, clock.world().latencies.get("cloudformation:Stack"), lambda: self._take_away(stack, "DELETE_COMPLETE", "DELETE_FAILED", retain)
            )

    def _take_away(self, stack: Stack, good: str, bad: str, retain: set[str]) -> None:
        """Delete everything that was made, each after all that need it; what a failed one needs stays untouched."""
        rows = {row.logical: row for row in stack.resources.values() if row.physical and row.status not in ("DELETE_COMPLETE", "DELETE_SKIPPED")}
        left, begun, failed, kept, over = dict(rows), set[str](), list[Resource](), set[str](), list[bool]()

        def step() -> None:
            moved = True
            while moved:
                moved = False
                for name, row in list(left.items()):
                    if name in begun:
                        continue
                    users = {other.logical for other in rows.values() if other is not row and name in tpl.depends(other.spec, {name})}
                    if users & (kept | {bad_one.logical for bad_one in failed}):
                        kept.add(name)
                        del left[name]
                        moved = True
                    elif not users & set(left):
                        begun.add(name)
                        if name in retain or (row.spec.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate") and good == "DELETE_COMPLETE"):
                            self.event(stack, "DELETE_SKIPPED", "", row)
                            del left[name]
                            moved = True
                        else:
                            self._remove(stack, row, closed(name), broken(name))
            if not left:
                finish()

        def closed(name: str) -> Callable[[], None]:
            def done() -> None:
                left.pop(name, None)
                step()

            return done

        def broken(name: str) -> Callable[[Resource], None]:
            def done(row: Resource) -> None:
                left.pop(name, None)
                failed.append(row)
                step()

            return done

        def finish() -> None:
            if over:
                return
            over.append(True)
            if failed:
                self._end(stack, bad, f"The following resource(s) failed to delete: [{', '.join(row.logical for row in failed)}]. ")
                return
            if good == "DELETE_COMPLETE":
                stack.deleted, stack.outputs = clock.world().clock.date(), []
            self._end(stack, good)

        step()

    def _remove(self, stack: Stack, row: Resource, then: Callable[[], None], failed: Callable[[Resource], None]) -> None:
        world, kind = clock.world(), resources.KINDS[row.type]
        self._track_resource(stack, row, "Delete")
        self.event(stack, "DELETE_IN_PROGRESS", "", row)
        until = world.clock.now() + RETRY_FOR

        def attempt() -> None:
            unborn = [life for life in row.lives if not life.finished() and life.outcome != "stuck"]
            if unborn:  # still being made: AWS waits for that too
                soonest = min(max(life.due - world.clock.now(), 0.0) for life in unborn)
                self._later(stack, soonest if soonest > 0 else max(1.0, 0.1 * world.clock.factor), attempt)
                return
            mark = len(world.lives)
            try:
                kind.delete(self.context(stack, row.logical), row.physical, row.attrs, row.props)
            except Exception as problem:
                code = problem.response["Error"]["Code"] if isinstance(problem, ClientError) else ""
                if missing(code):
                    gone([])
                elif world.clock.now() + RETRY_EVERY <= until and code in (
                    "DependencyViolation",
                    "DeleteConflict",
                    "InvalidIPAddress.InUse",
                    "ResourceInUseException",
                    "ThrottlingException",
                    "Throttling",
                    "RequestLimitExceeded",
                ):
                    self._later(stack, RETRY_EVERY, attempt)
                else:
                    self._fail(stack, row, "DELETE_FAILED", why(problem), failed)
                return
            gone(world.lives[mark:])

        def gone(lives: list[clock.Life]) -> None:
            waiting = [life for life in lives if not life.finished()]
            if waiting:
                soonest = min(max(life.due - world.clock.now(), 0.0) for life in waiting)
                self._later(stack, (soonest if soonest > 0 else max(1.0, 0.1 * world.clock.factor)) + 0.001, lambda: gone(lives))
                return
            broken = next((life for life in lives if life.outcome == "failed"), None)
            if broken:
                self._fail(stack, row, "DELETE_FAILED", broken.reason, failed)
                return
            self.event(stack, "DELETE_COMPLETE", "", row)
            if row.track:
                row.track.succeed()
            then()

        self._later(stack, 1.0, attempt)
