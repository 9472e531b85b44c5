"""`stepwell submit`: store a run for workers."""

from __future__ import annotations

import click

from stepwell.cli.code_loader import get_workflow, load_code
from stepwell.cli.failures import USAGE, CommandFailed, refusals
from stepwell.cli.input_text import GIVE_INPUT, read_input
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import agents_option, by_option, common_options, input_option, json_option, tag_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines, reserve_stdout
from stepwell.error_ids import ErrorId
from stepwell.model.visible_text import visible
from stepwell.storage.ids import new_run_id


@click.command("submit")
@click.argument("workflow", metavar="MODULE:WORKFLOW|FILE")
@input_option
@click.option("--run-id", metavar="ID", help="The id of the run. The same input under the same id changes nothing.")
@click.option(
    "--priority",
    type=int,
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="Of the ready runs, those with the highest priority are driven first: -100 to 100.",
)
@tag_option("Tag the run; `list` finds runs by tag. Repeatable.")
@agents_option
@by_option
@json_option
@common_options
def command(
    workflow: str,
    argument: str | None,
    run_id: str | None,
    priority: int,
    tags: dict[str, str],
    agents: str | None,
    by: str | None,
    json: bool,
) -> None:
    """Store a run for workers to drive.

    Nothing is executed here: `stepwell worker` drives the run. WORKFLOW and the input are given as to
    `stepwell run`. Prints the id of the run when it is durable. A missing store is created. With
    --server, WORKFLOW is the name of a workflow that the server starts.
    """
    from stepwell.cli.input_option import make_message  # lazy: 25 ms

    text = None if argument is None else read_input(argument)
    if (server := find_server(by=by)) is not None:
        if agents is not None:
            hint = "name a workflow of the server, and leave --agents out"
            raise CommandFailed(ErrorId.WRONG_USAGE, "with --server, the code is that of the server", hint, USAGE)
        try:
            with refusals():
                answer = server.post(
                    "runs", workflow=workflow, input_text=text, run_id=run_id, tags=tags, priority=priority
                )
        except CommandFailed as error:
            if text is None and error.id == ErrorId.WRONG_INPUT:
                error.hint = GIVE_INPUT
            raise
        _print(answer["run_id"], json)
        return
    code = load_code(workflow, agents)

    async def work(storage: BuiltInStorage) -> str:
        runnable = await code.build()
        # Chosen here and not by the engine, because the first message may depend on it.
        name = run_id if run_id is not None else new_run_id()
        message = await make_message(runnable, storage, text, name)
        with refusals():
            return await get_workflow(runnable).submit(
                message, run_id=name, tags=tags or None, priority=priority, by=by, checkpoint_storage=storage
            )

    with reserve_stdout():
        submitted = run_on_store(work, make=True, patient=True)
    _print(submitted, json)


def _print(run_id: str, json: bool) -> None:
    if json:
        print_document(run_id=run_id)
    else:
        print_lines([visible(run_id)])
