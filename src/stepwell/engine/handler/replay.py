"""Compares what a durable function does with what is recorded of its earlier calls.

A durable function is called again from its beginning, and must reach the steps that it made before: a step that was
renamed or moved would be executed a second time, and its stored result would be ignored. Within one branch steps
follow each other, so a new one is an error while the branch has recorded steps that it has not reached; and when the
function returns, it must have reached all of them. A call that is recorded in another branch, which nobody reaches, has
moved there or here: it is not executed a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from stepwell.engine.handler.branches import Branch
from stepwell.engine.handler.steps import Step, StepContext
from stepwell.errors import StepChanged
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.log_keys import LogEntry, attempt_key, read_step_key
from stepwell.storage import clock

# Seconds after which branches that only recall what is recorded have reached it.
_QUIET = 0.05

PATCH = "patched: "
"""Starts the name of the step that stores which way a function takes at `ctx.patched`."""


class Replay:
    """The recorded steps of a durable function that this call has not reached yet."""

    def __init__(self, delivery: str, entries: Mapping[str, LogEntry], handler: Branch) -> None:
        self._handler = handler
        # By branch; the calls by key.
        self._unreached: dict[str, dict[str, str]] = {}
        self._failed: dict[str, WorkflowErrorDetails] = {}
        for key, entry in entries.items():
            place = read_step_key(key) if key.startswith(f"{delivery}/") and not entry.due else None
            # A step that its caller identifies may be made anywhere, and one inside another is not made again.
            if place is not None and place.branch is not None and not place.is_in_step:
                self._unreached.setdefault(place.branch, {})[key] = entry.call or place.name
        if self._unreached:
            handler.created = []

    @property
    def is_over(self) -> bool:
        """Whether the function has reached all that it did before."""
        return not self._unreached

    @property
    def is_caught_up(self) -> bool:
        """Whether that is so, and no failure is to be recorded."""
        return not self._unreached and not self._failed

    def reach(self, key: str, branch: str) -> None:
        """Note that a step is called."""
        steps = self._unreached.get(branch)
        if steps is not None:
            steps.pop(key, None)
            if not steps:
                del self._unreached[branch]

    def check_order(self, step: Step, context: StepContext) -> None:
        """Raise StepChanged for a new step of a branch that made another one here before."""
        recorded = self._unreached.get(step.branch.id)
        # A step that failed before may have been passed: the function caught its error.
        if not recorded or context.recall_changed or context.log.find_failures(step.key):
            return
        old = read_step_key(next(iter(recorded)))
        assert old is not None
        stored, asked = next(iter(recorded.values())), step.call or step.name
        raise _changed(
            f"step {step.name!r} of {context.executor!r} in run {context.run_id!r} is called as {asked} where the "
            f"stored result is that of step {old.name!r}, called as {stored}.",
            context,
            stored=stored,
            asked=asked,
        )

    async def check_branch(self, step: Step, context: StepContext) -> None:
        """Raise StepChanged for a new step that was made before in a branch which this call does not start."""
        is_exempt = context.recall_changed or step.options.key is not None or context.log.find_failures(step.key)
        if is_exempt or not self._is_recorded_elsewhere(step):
            return
        # The branch that has made it may be about to come to it.
        await asyncio.sleep(_QUIET)
        if self._is_recorded_elsewhere(step):
            raise _changed(
                f"step {step.name!r} of {context.executor!r} in run {context.run_id!r}, called as {step.call}, has a "
                f"stored result, but of another branch: the function or task that made the call was renamed, or the "
                f"call has moved into one or out of it.",
                context,
                stored=step.call or "",
                asked=step.call or "",
            )

    def _is_recorded_elsewhere(self, step: Step) -> bool:
        """Return whether this call is recorded in a branch that is not there, or in the function's own."""
        started = {branch.id for branch in self._handler.created or () if not branch.is_in_step}
        return any(
            call == step.call and (place := read_step_key(key)) is not None and place.name == step.name
            for branch, steps in self._unreached.items()
            if branch not in started and branch != step.branch.id
            for key, call in steps.items()
        )

    def check_complete(self, context: StepContext) -> None:
        """Raise StepChanged if the function returns without having reached a recorded step."""
        if self.is_over or context.recall_changed:
            return
        recorded = {key: call for branch in self._unreached.values() for key, call in branch.items()}
        places = [read_step_key(key) for key in recorded]
        names = ", ".join(dict.fromkeys(repr(place.name) for place in places if place is not None))
        raise _changed(
            f"{context.executor!r} in run {context.run_id!r} has returned without calling {names}, which has a stored "
            f"result. If an error of another step decides whether it is called, store the error too: "
            f"@step(remember=...).",
            context,
            stored=", ".join(recorded.values()),
            asked="",
        )

    def check_question(self, stored: str, asked: str, context: StepContext) -> None:
        """Raise StepChanged if the question that was asked here before, and may be answered, is another one."""
        if stored == asked or context.recall_changed:
            return
        raise _changed(
            f"{context.executor!r} in run {context.run_id!r} asks {asked} where it has asked {stored} before "
            f"(# marks a digest): the answer to that is not one to this.",
            context,
            stored=stored,
            asked=asked,
        )

    def note_failure(self, step: Step, context: StepContext, error: BaseException) -> None:
        """Note a step that failed or was cancelled; it is not recorded unless the function continues."""
        text = "cancelled" if isinstance(error, asyncio.CancelledError) else str(error)
        self._failed[step.key] = WorkflowErrorDetails(type(error).__name__, text, executor_id=context.executor)

    async def record_failures(self, context: StepContext) -> None:
        """Log the failures noted so far: the function continues, and a repetition may call those steps again."""
        while self._failed:
            key, details = self._failed.popitem()
            failures = context.log.find_failures(key)
            # Logged already if the step has a retry policy.
            if not failures or not failures[-1].final:
                entry = LogEntry(clock.stamp(), details, final=True)
                await context.log.add(attempt_key(key, len(failures) + 1), entry)


def _changed(problem: str, context: StepContext, *, stored: str, asked: str) -> StepChanged:
    return StepChanged(
        f"{problem} Let runs that are under way take the old path: `if not await ctx.patched(...)`; or continue "
        f"without that result: run(run_id={context.run_id!r}, on_changed_step='recall')",
        run_id=context.run_id,
        executor_id=context.executor,
        stored=stored,
        asked=asked,
    )
