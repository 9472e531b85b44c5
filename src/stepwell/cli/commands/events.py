"""`stepwell events`: what a run has told, from its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.settings import as_json, everywhere
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import json_line, lines

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("events")
@click.argument("run")
@as_json
@everywhere
def command(run: str, json: bool) -> None:
    """What RUN has told: its durable events, oldest first, as far as its history is kept.

    With --json, one JSON document on each line. `stepwell tail` shows the last ones, and those that come.
    """

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.admin.lookup import find_run
        from stepwell.cli.views.events import history

        async for heard in history(storage, (await find_run(storage, run)).run_id):
            if json:
                json_line(**heard.told())
            else:
                lines([heard.line()])

    on_the_store(work)
