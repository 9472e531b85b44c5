"""Another workflow inside a durable function: a run of its own, driven where it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Generic

from stepwell.engine.durability.superstep_log import Parked, is_far
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.engine.handler.steps import Step
from stepwell.engine.opening.open_run import Position, ResumeRun, StartRun
from stepwell.errors import RunError
from stepwell.graph.step_options import StepOptions
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.request import Request
from stepwell.storage import clock
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.ids import child_run_id
from stepwell.workflows.result import OutputT
from stepwell.workflows.subworkflow import WorkflowExecutor
from stepwell.workflows.workflow import Workflow


def run_child(ctx: InternalContext, workflow: Workflow[OutputT], message: Any) -> Coroutine[Any, Any, list[OutputT]]:
    """Run a workflow, and return its outputs, which are stored as the result of a step.

    A repetition finds the run that it started before. Requests of that run are asked by this one, under the same ids.
    """
    if not isinstance(workflow, Workflow):
        raise TypeError(f"ctx.run runs a workflow, not {workflow!r}")
    outputs: list[OutputT] = []

    async def run(message: Any) -> list[OutputT]:
        return outputs

    # Named after the workflow, not after this function, which is the same for all.
    run.__qualname__ = workflow.name
    options = StepOptions(f"run {workflow.name}")
    # Now, not when it is awaited: like a step, it belongs to the branch that calls it.
    log_key, branch = ctx.steps.assign_key(options)
    step = Step(options, log_key, run, args=(message,), kwargs={}, branch=branch)

    async def drive() -> list[OutputT]:
        # Not inside the step: it may be left, to wait for an answer.
        if not ctx.steps.is_recorded(log_key):
            await ctx.steps.begin(step)
            run_id = child_run_id(ctx.run_id, ctx.scope.epoch, log_key)
            outputs.extend(await _ChildRun(ctx, workflow, run_id).drive_to_end(message))
        result: list[OutputT] = await ctx.steps.do(step)
        return result

    return drive()


class _ChildRun(Generic[OutputT]):
    def __init__(self, ctx: InternalContext, workflow: Workflow[OutputT], run_id: str) -> None:
        self._ctx, self._run_id = ctx, run_id
        self._calls = WorkflowExecutor(workflow)
        self._archive = self._calls._archive(ctx)

    async def drive_to_end(self, message: Any) -> list[OutputT]:
        """Drive the run until it is completed, and return its outputs. Raises Parked if it has to wait."""
        position: Position = StartRun(message, self._run_id, named=True)
        responses: Mapping[str, Any] = {}
        while True:
            rest: tuple[Checkpoint, list[OutputT]] = await self._ctx.await_or_park(self._drive(position, responses))
            at, outputs = rest
            if at.status is WorkflowRunState.IDLE:
                return outputs
            responses = await self._get_response(at) if at.requests else await self._wait_for_timer(at.wake)
            position = ResumeRun(self._run_id)

    async def _drive(self, position: Position, responses: Mapping[str, Any]) -> tuple[Checkpoint, list[OutputT]]:
        with self._ctx.steps.execute():
            # Commits of the child must not be stored before those that led to it.
            await finish(self._ctx.scope.archive.flush())
            drive = self._calls._drive(self._ctx, position, responses, self._archive, timers_until=clock.stamp())
            outputs = [e.data async for e in self._calls._events(self._ctx, drive) if e.type == "output" and not e.path]
        at = drive.at
        # A run that sleeps may have asked something, too.
        return at if at is not None and at.requests else self._calls._resting_checkpoint(self._ctx, drive), outputs

    async def _get_response(self, at: Checkpoint) -> Mapping[str, Any]:
        """Ask what the run asks, and return the first response, by the id of its request."""
        if not self._ctx.scope.archive.is_durable:
            raise RunError(
                f"run {at.run_id!r} of {self._calls.id!r}, called by run {self._ctx.run_id!r}, waits for a response, "
                f"and is not stored: pass checkpoint_storage",
                run_id=self._ctx.run_id,
            )
        waits = [self._ask(request) for request in at.requests.values()]
        if at.wake is not None and not is_far(at.wake):
            waits.append(self._wait_for_timer(at.wake))
        try:
            return await _first(waits)
        except Parked:
            # The child also wakes at a time of its own.
            if at.wake is not None:
                await self._ctx.await_or_park(_park(at.wake))
            raise

    async def _wait_for_timer(self, due: str | None) -> Mapping[str, Any]:
        assert due is not None
        await self._ctx.wait_until(due)
        return {}

    async def _ask(self, request: Request) -> Mapping[str, Any]:
        return {request.id: await self._ctx.ask_for_child(request)}


async def _first(asking: Iterable[Coroutine[Any, Any, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Return the result of the first that has one; the others are given up."""
    tasks = [asyncio.create_task(question) for question in asking]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _park(due: str) -> None:
    raise Parked(due)
