"""`stepwell run`: begin a run, and drive it until it rests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.code_loader import get_workflow
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.settings import common_options, durability_option, follow_option, json_option, tag_option
from stepwell.storage.ids import new_run_id

if TYPE_CHECKING:
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.engine.durability import Durability
    from stepwell.engine.stream import RunStream
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.workflows.result import WorkflowRunResult
    from stepwell.workflows.workflow import Workflow


@click.command("run")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option("--input", "argument", metavar="TEXT|@FILE|@-", help="What it begins with: a text, a file, or stdin.")
@click.option("--run-id", metavar="ID", help="The id of the run. If it began with the same input, it goes on.")
@tag_option("Runs are found by their tags. May be given several times.")
@durability_option
@follow_option
@json_option
@common_options
def command(
    workflow: str,
    argument: str | None,
    run_id: str | None,
    tags: dict[str, str],
    durability: Durability,
    follow: bool,
    json: bool,
) -> None:
    """Begin a run of a workflow and drive it until it is done, fails, sleeps or waits for an answer.

    WORKFLOW is a workflow, a builder, or a function without arguments, async or not, that gives one. MODULE is looked
    for in the working directory, too. The input is JSON, or plain text if that is what the workflow begins with.
    Outputs go to stdout. The store is made if it is not there.

    Ends with 0 if the run is done, 1 if it failed, 4 if it waits.
    """
    from stepwell.cli.drive import drive  # lazy: 60 ms
    from stepwell.cli.input_option import make_message, read_input  # lazy: 60 ms

    text = None if argument is None else read_input(argument)

    async def begin(
        runnable: Workflow | AgentWorkflowInstance, storage: BuiltInStorage
    ) -> RunStream[WorkflowRunResult]:
        name = run_id if run_id is not None else new_run_id()
        message = await make_message(runnable, storage, text, name)
        options: dict[str, Any] = {"run_id": name, "tags": tags or None, "durability": durability}
        try:
            return get_workflow(runnable).run_streaming(message, checkpoint_storage=storage, **options)
        except ValueError as error:
            raise CommandFailed(str(error), code=USAGE) from None

    drive(workflow, begin, follow=follow, json=json, make=True)
