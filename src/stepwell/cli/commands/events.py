"""`stepwell events`: what a run has told, from its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..output import json_line, lines
from ..running import on_the_store
from ..settings import as_json, everywhere

if TYPE_CHECKING:
    from ...durable.storage import BuiltInStorage


@click.command("events")
@click.argument("run")
@as_json
@everywhere
def command(run: str, json: bool) -> None:
    """What RUN has told: its durable events, oldest first, as far as its history is kept.

    With --json, one JSON document on each line. `stepwell tail` shows the last ones, and those that come.
    """

    async def work(storage: BuiltInStorage) -> None:
        from ...operating.naming import find_run
        from ..telling import history

        async for heard in history(storage, (await find_run(storage, run)).run_id):
            if json:
                json_line(**heard.told())
            else:
                lines([heard.line()])

    on_the_store(work)
