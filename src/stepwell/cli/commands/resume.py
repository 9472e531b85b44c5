"""`stepwell resume`: go on with a run that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import stepwell
from stepwell import admin
from stepwell.cli.code_loader import get_workflow
from stepwell.cli.failures import NOT_THIS_CODE, USAGE, CommandFailed
from stepwell.cli.hints import command_line
from stepwell.cli.settings import common_options, durability_option, follow_option, json_option
from stepwell.errors import GraphChanged

if TYPE_CHECKING:
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.engine.durability import Durability
    from stepwell.engine.stream import RunStream
    from stepwell.model.superstep import Checkpoint
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.workflows.result import WorkflowRunResult
    from stepwell.workflows.workflow import Workflow


@click.command("resume")
@click.argument("run", metavar="RUN[@N]")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option(
    "--recall-changed-steps",
    is_flag=True,
    help="Use the stored result of a step even if it is asked for with other arguments now.",
)
@durability_option
@follow_option
@json_option
@common_options
def command(
    run: str, workflow: str, recall_changed_steps: bool, durability: Durability, follow: bool, json: bool
) -> None:
    """Go on with RUN by the code in WORKFLOW until it is done, fails, sleeps or waits for an answer.

    What was committed is not done again; its outputs are told again. A run that failed or was cancelled is tried
    again from there. RUN@N must be where the run is now: `stepwell fork` goes on from an older checkpoint.

    Ends with 0 if the run is done, 1 if it failed, 4 if it waits, 5 if this code cannot go on with it.
    """
    from stepwell.cli.drive import drive  # lazy: 60 ms

    async def begin(
        runnable: Workflow | AgentWorkflowInstance, storage: BuiltInStorage
    ) -> RunStream[WorkflowRunResult]:
        built = get_workflow(runnable)
        head = await _find_head(storage, built, run)
        await _check_code(runnable, head, storage, workflow)
        changed = "recall" if recall_changed_steps else "refuse"
        return built.run_streaming(
            run_id=head.run_id, checkpoint_storage=storage, durability=durability, on_changed_step=changed
        )

    drive(workflow, begin, follow=follow, json=json)


async def _find_head(storage: BuiltInStorage, workflow: Workflow, name: str) -> Checkpoint:
    """Where the run is. Raises CommandFailed if that is not what was named."""
    checkpoint = await admin.find_checkpoint(storage, name)
    head = await workflow.archive_on(storage).head(checkpoint.run_id)
    if head is None:
        raise admin.NotFound(f"run {checkpoint.run_id!r} has gone meanwhile")
    if checkpoint.number != head.number and not checkpoint.run_id.startswith(name):  # a run may move on while we look
        problem = f"{name} is not where run {head.run_id!r} is: that is {head.run_id}@{head.number}"
        raise CommandFailed(problem, command_line("fork", f"{head.run_id}@{checkpoint.number}"), USAGE)
    if head.header.caller is not None:
        problem = f"run {head.run_id!r} works for run {head.header.caller!r}, which moves it on"
        raise CommandFailed(problem, command_line("resume", head.header.caller, "MODULE:WORKFLOW"), USAGE)
    return head


async def _check_code(
    runnable: Workflow | AgentWorkflowInstance, head: Checkpoint, storage: BuiltInStorage, name: str
) -> None:
    """Raises CommandFailed if this code cannot go on with the run. One that is done is only told again."""
    from stepwell.admin.deploy_check import find_incompatibilities  # lazy: 100 ms

    if head.status.value == "IDLE":
        return
    why = await find_incompatibilities(storage.store, head.run_id, get_workflow(runnable))
    if not why and not isinstance(runnable, stepwell.Workflow):
        try:
            runnable.check(head)
        except GraphChanged as changed:
            why = changed.differences
    if why:
        problem = f"{name} cannot go on with run {head.run_id!r}: {'; '.join(why)}"
        raise CommandFailed(problem, command_line("check", name), NOT_THIS_CODE)
