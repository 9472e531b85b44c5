"""`stepwell show`: show a run at a checkpoint."""

from __future__ import annotations

import click

from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage


@click.command("show")
@click.argument("run", metavar="RUN[@N]")
@click.argument("checkpoint", metavar="[CHECKPOINT]", required=False)
@click.option("--full", is_flag=True, help="Do not shorten large values, and count handler calls in all commits.")
@json_option
@common_options
def command(run: str, checkpoint: str | None, full: bool, json: bool) -> None:
    """Show where a run is and what it holds.

    Shows the newest checkpoint of RUN. RUN@N is the checkpoint of commit N: RUN@0 holds the input,
    and RUN@-1 is the newest. RUN CHECKPOINT means the same, where CHECKPOINT is a number or an id.
    RUN is the id of a run or of a checkpoint; it may be shortened to 4 characters as long as it is
    unique.

    JSON always holds values in full. Without --full, handler calls are counted in the last 500
    commits only, so that a long run is shown as fast as a short one.
    """

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.cli.views.checkpoint import find_inside, print_checkpoint  # lazy: 60 ms

        name = run if checkpoint is None else await find_inside(storage, run, checkpoint)
        await print_checkpoint(storage, name, full=full, json=json)

    run_on_store(work)
