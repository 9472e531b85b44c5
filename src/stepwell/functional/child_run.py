"""Another workflow inside a durable function: a run of its own, driven where it is called."""

from __future__ import annotations

from typing import Any

from stepwell.engine.internal_context import InternalContext
from stepwell.engine.open_run import StartRun
from stepwell.errors import RunError
from stepwell.graph.step_options import StepOptions
from stepwell.storage.cancellation_shield import finish
from stepwell.workflows.result import OutputT
from stepwell.workflows.subworkflow import WorkflowExecutor
from stepwell.workflows.workflow import Workflow


async def run_child(ctx: InternalContext, workflow: Workflow[OutputT], message: Any) -> list[OutputT]:
    """Run a workflow as a step, and return its outputs. A repetition finds the run that it started before."""
    if not isinstance(workflow, Workflow):
        raise TypeError(f"ctx.run runs a workflow, not {workflow!r}")
    calls = WorkflowExecutor(workflow)

    async def drive(message: Any, *, idempotency_key: str = "") -> list[Any]:
        # Commits of the child must not be stored before those that led to it.
        await finish(ctx.scope.archive.flush())
        child = calls._drive(ctx, StartRun(message, idempotency_key, named=True), {}, calls._archive(ctx))
        outputs = [e.data async for e in calls._events(ctx, child) if e.type == "output" and not e.path]
        at = calls._resting_checkpoint(ctx, child)
        if at.requests:
            raise RunError(
                f"run {at.run_id!r} of {workflow.name!r}, called by run {ctx.run_id!r}, waits for a response; in a "
                f"durable function ask people with ctx.ask",
                run_id=ctx.run_id,
            )
        return outputs

    # Named after the workflow, not after this function, which is the same for all.
    drive.__qualname__ = workflow.name
    outputs: list[OutputT] = await ctx.step(StepOptions(f"run {workflow.name}"), drive, message)
    return outputs
