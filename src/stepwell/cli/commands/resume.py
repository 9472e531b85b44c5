"""`stepwell resume`: resume a run with its code."""

from __future__ import annotations

import click

import stepwell
from stepwell import admin
from stepwell.cli.code_loader import get_workflow
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import INCOMPATIBLE, USAGE, CommandFailed, command_line
from stepwell.cli.settings import (
    agents_option,
    by_option,
    common_options,
    durability_option,
    follow_option,
    json_option,
)
from stepwell.cli.type_names import BuiltInStorage, Checkpoint, Durability, Runnable, Stream, Workflow
from stepwell.error_ids import ErrorId
from stepwell.errors import GraphChanged
from stepwell.model.status_words import status_word


@click.command("resume")
@click.argument("run", metavar="RUN[@N]", shell_complete=complete_runs)
@click.argument("workflow", metavar="MODULE:WORKFLOW|FILE")
@click.option(
    "--recall-changed-steps",
    is_flag=True,
    help="Use the stored result of a step even if its arguments have changed.",
)
@by_option
@agents_option
@durability_option
@follow_option
@json_option
@common_options
def command(
    run: str,
    workflow: str,
    recall_changed_steps: bool,
    by: str | None,
    agents: str | None,
    durability: Durability,
    follow: bool,
    json: bool,
) -> None:
    """Resume a run.

    Drives RUN with the code in WORKFLOW until it is completed, fails, sleeps or waits for a
    response. What was committed is not executed again; its outputs are printed again. A failed or
    cancelled run is retried from its last commit. RUN@N must be the newest checkpoint: `stepwell
    fork` starts from an older one.

    Exits with 0 if the run is completed, 1 if it failed, 4 if it waits or sleeps, 5 if this code
    cannot continue it.
    """
    from stepwell.cli.drive import drive  # lazy: 40 ms

    async def open_run(runnable: Runnable, storage: BuiltInStorage) -> Stream:
        built = get_workflow(runnable)
        head = await _find_head(storage, built, run)
        # Before the run is opened, which would commit a migration and take the lease.
        await _check_code(runnable, head, storage, workflow)
        return built.run_streaming(
            run_id=head.run_id,
            checkpoint_storage=storage,
            durability=durability,
            on_changed_step="recall" if recall_changed_steps else "refuse",
            nested=True,
            replay=True,
            by=by,
        )

    drive(workflow, open_run, agents=agents, follow=follow, json=json)


async def _find_head(storage: BuiltInStorage, workflow: Workflow, name: str) -> Checkpoint:
    """Return the newest checkpoint of a run. Raises CommandFailed if `name` is an older one."""
    checkpoint = await admin.find_checkpoint(storage, name)
    head = await workflow._archive_on(storage).head(checkpoint.run_id)
    if head is None:
        raise admin.NotFound(f"run {checkpoint.run_id!r} was deleted in the meantime")
    # A name without @N means the head, whichever it is now: another process may have moved it on
    # since the lookup.
    if checkpoint.number != head.number and not checkpoint.run_id.startswith(name):
        problem = f"{name} is not the newest checkpoint of run {head.run_id!r}, which is {head.run_id}@{head.number}"
        raise CommandFailed(
            ErrorId.NOT_THE_HEAD, problem, command_line("fork", f"{head.run_id}@{checkpoint.number}"), USAGE
        )
    if head.header.caller is not None:
        problem = f"run {head.run_id!r} is the run of a sub-workflow; resume its caller {head.header.caller!r}"
        raise CommandFailed(ErrorId.NOT_THE_HEAD, problem, command_line("show", head.header.caller), USAGE)
    return head


async def _check_code(runnable: Runnable, head: Checkpoint, storage: BuiltInStorage, name: str) -> None:
    """Raise CommandFailed if this code cannot continue the run."""
    from stepwell.admin.deploy_check import find_incompatibilities  # lazy: 120 ms

    # A completed run executes nothing more: any code of its workflow can print its outputs.
    if status_word(head.status) == "completed" and head.header.workflow == get_workflow(runnable).name:
        return
    why = await find_incompatibilities(storage._store, head.run_id, get_workflow(runnable))
    # A workflow of agents by name has its definition stored with the run, and that must match as
    # well.
    if not why and not isinstance(runnable, stepwell.Workflow):
        try:
            runnable.check(head)
        except GraphChanged as changed:
            why = changed.differences
    if why:
        problem = f"{name} cannot continue run {head.run_id!r}: {'; '.join(why)}"
        raise CommandFailed(ErrorId.GraphChanged, problem, command_line("check", name), INCOMPATIBLE)
