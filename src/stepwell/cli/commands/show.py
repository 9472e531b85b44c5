"""`stepwell show`: a run at a checkpoint, whole."""

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
@click.option("--full", is_flag=True, help="Cut no value, however large, and count all calls.")
@json_option
@common_options
def command(run: str, checkpoint: str | None, full: bool, json: bool) -> None:
    """Where RUN is and what it holds: its newest checkpoint, or number N of it.

    RUN is the id of a run or of a checkpoint, which may be shortened to 4 characters while it stays unique. RUN@0 is
    the input, RUN@-1 the last that is stored. CHECKPOINT, a number or an id, says the same apart. Values are always in
    full in JSON. Calls are counted in the newest commits, unless in --full: what it costs does not grow with the run.
    """

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.cli.views.checkpoint import find_inside, print_checkpoint  # lazy: 80 ms

        name = run if checkpoint is None else await find_inside(storage, run, checkpoint)
        await print_checkpoint(storage, name, full=full, json=json)

    run_on_store(work)
