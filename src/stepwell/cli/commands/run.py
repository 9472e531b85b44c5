"""`stepwell run`: start a run, and drive it until it stops."""

from __future__ import annotations

import click

from stepwell.cli.code_loader import get_workflow
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.input_text import read_input
from stepwell.cli.settings import (
    agents_option,
    common_options,
    durability_option,
    follow_option,
    input_option,
    json_option,
    tag_option,
)
from stepwell.cli.type_names import BuiltInStorage, Durability, Runnable, Stream
from stepwell.error_ids import ErrorId
from stepwell.storage.ids import new_run_id


@click.command("run")
@click.argument("workflow", metavar="MODULE:WORKFLOW|FILE")
@input_option
@click.option("--run-id", metavar="ID", help="The id of the run. A run with this id and the same input is resumed.")
@tag_option("Tag the run; `list` finds runs by tag. Repeatable.")
@agents_option
@durability_option
@follow_option
@json_option
@common_options
def command(
    workflow: str,
    argument: str | None,
    run_id: str | None,
    tags: dict[str, str],
    agents: str | None,
    durability: Durability,
    follow: bool,
    json: bool,
) -> None:
    """Start a run and drive it until it stops.

    A run stops when it is completed, fails, sleeps or waits for a response. WORKFLOW is a workflow,
    a builder, or a function without arguments, async or not, that returns one. MODULE is also
    searched in the working directory. FILE is a JSON or YAML definition of named agents; --agents
    says where its agents are. The input is JSON, or plain text if its start
    executor accepts str. Outputs go to stdout. A missing store is created.

    Exits with 0 if the run is completed, 1 if it failed, 4 if it waits or sleeps.
    """
    from stepwell.cli.drive import drive  # lazy: 40 ms
    from stepwell.cli.input_option import make_message  # lazy: 25 ms

    text = None if argument is None else read_input(argument)

    async def open_run(runnable: Runnable, storage: BuiltInStorage) -> Stream:
        # Chosen here and not by the engine, because the first message may depend on it.
        name = run_id if run_id is not None else new_run_id()
        message = await make_message(runnable, storage, text, name)
        try:
            return get_workflow(runnable).run_streaming(
                message,
                run_id=name,
                checkpoint_storage=storage,
                tags=tags or None,
                durability=durability,
                nested=True,
                replay=True,
            )
        except ValueError as error:  # an id or a tag that cannot be stored
            raise CommandFailed(ErrorId.WRONG_USAGE, str(error), code=USAGE) from None

    drive(workflow, open_run, agents=agents, follow=follow, json=json, make=True)
