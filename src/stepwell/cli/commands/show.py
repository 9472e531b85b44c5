"""`stepwell show`: show a run at a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("show")
@click.argument("run", metavar="RUN[@N]")
@click.argument("checkpoint", metavar="[CHECKPOINT]", required=False)
@click.option("--full", is_flag=True, help="Do not shorten large values, and count the calls in all commits.")
@json_option
@common_options
def command(run: str, checkpoint: str | None, full: bool, json: bool) -> None:
    """Show where a run is and what it holds.

    Shows the newest checkpoint of RUN, or checkpoint N. RUN@0 is the input, RUN@-1 the last stored
    checkpoint. CHECKPOINT, a number or an id, may also be a second argument. RUN is the id of a run
    or of a checkpoint; it may be shortened to 4 characters as long as it is unique.

    JSON always holds values in full. Without --full, calls are counted in the newest commits only,
    so that a long run is shown as fast as a short one.
    """

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.cli.views.checkpoint import find_inside, print_checkpoint  # lazy: 60 ms

        name = run if checkpoint is None else await find_inside(storage, run, checkpoint)
        await print_checkpoint(storage, name, full=full, json=json)

    run_on_store(work)
