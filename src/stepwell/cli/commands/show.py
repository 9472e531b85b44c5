"""`stepwell show`: show a run at a checkpoint."""

from __future__ import annotations

import click

from stepwell.admin.values import to_lines
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import command_line
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines
from stepwell.cli.views.text import printable


@click.command("show")
@click.argument("run", metavar="RUN[@N]", shell_complete=complete_runs)
@click.argument("checkpoint", metavar="[CHECKPOINT]", required=False)
@click.option("--full", is_flag=True, help="Do not shorten large values, and read all commits.")
@json_option
@common_options
def command(run: str, checkpoint: str | None, full: bool, json: bool) -> None:
    """Show where a run is and what it holds.

    Says in one sentence what RUN is, why it waits or stopped, and which command moves it on. Then
    shows its input, its output, its error, its open requests, who answered, and its state.

    RUN@N is the checkpoint of commit N: RUN@0 holds the input, and RUN@-1 is the newest. RUN
    CHECKPOINT means the same, where CHECKPOINT is a number or an id. RUN is the id of a run or of a
    checkpoint; it may be shortened to 4 characters as long as it is unique.

    JSON always holds values in full. Without --full, only the last 500 commits are read, so that a
    long run is shown as fast as a short one.
    """

    if (server := find_server()) is not None:
        name, _, number = run.rpartition("@") if run.rpartition("@")[2].lstrip("-").isdigit() else (run, "", None)
        document = server.get("runs", name, at=checkpoint or number)
        if json:
            print_document(**document)
        else:
            print_lines([printable(document["sentence"]), "", *to_lines(document["state"], full=full)])
        return

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.cli.views.checkpoint import find_inside, print_checkpoint  # lazy: 60 ms

        name = run if checkpoint is None else await find_inside(storage, run, checkpoint)
        await print_checkpoint(storage, name, full=full, json=json, command_line=command_line)

    run_on_store(work)
