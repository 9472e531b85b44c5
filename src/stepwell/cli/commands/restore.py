"""`stepwell restore`: move a run back to one of its checkpoints."""

from __future__ import annotations

import click

from stepwell import admin
from stepwell.cli import server_runs
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import refusals
from stepwell.cli.next_driver import find_next_driver
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import by_option, common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.model.event import CheckpointInfo
from stepwell.model.visible_text import visible


@click.command("restore")
@click.argument("checkpoint", metavar="RUN@N", shell_complete=complete_runs)
@by_option
@json_option
@common_options
def command(checkpoint: str, by: str | None, json: bool) -> None:
    """Move a run back to one of its checkpoints.

    From there it is executed afresh. What was done since stays as history, and what was sent to the
    run and is not applied yet is discarded. The run is only moved: `stepwell resume` or a worker
    drives it. To keep the run as it is, `stepwell fork` starts another one from the checkpoint.
    """

    async def work(storage: BuiltInStorage) -> tuple[CheckpointInfo, str]:
        with refusals():
            place = await admin.restore(storage, checkpoint, by=by)
        return place, await find_next_driver(storage, place.run_id)

    if (server := find_server(by=by)) is None:
        place, driver = run_on_store(work)
    else:
        with refusals():
            moved = server_runs.restore(server, server_runs.find_checkpoint(server, checkpoint))
        place, driver = moved.place, moved.driver
    if json:
        print_document(run_id=place.run_id, number=place.number, checkpoint_id=place.checkpoint_id)
    else:
        print_lines([visible(f"{place.run_id}@{place.number}")])
        print_note(driver)
