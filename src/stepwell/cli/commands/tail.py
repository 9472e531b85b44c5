"""`stepwell tail`: the last that a run has told, and what it tells from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell import admin
from stepwell.cli.failures import FAILED, WAITING, exit_with
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.output import print_note
from stepwell.cli.views.text import status_word

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("tail")
@click.argument("run")
@click.option("-n", "--lines", "count", type=click.IntRange(min=0), default=10, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Then tell what happens, until the run rests.")
@click.option("--wait", is_flag=True, help="With --follow: stay also while it waits for an answer.")
@json_option
@common_options
def command(run: str, count: int, follow: bool, wait: bool, json: bool) -> None:
    """The last events of RUN, and with --follow those that come, while any process drives it.

    It only looks: nothing is moved on by it. With --json, one JSON document on each line.

    With --follow it ends when the run rests, with 0 if it is done, 1 if it failed or was cancelled, and 4 if it waits
    for an answer. Without, it ends with 0.
    """
    if wait and not follow:
        raise click.UsageError("--wait goes with --follow")

    async def work(storage: BuiltInStorage) -> tuple[str, str] | None:
        from stepwell.cli.run_tail import follow_run, show_latest  # lazy: 80 ms

        info = await admin.find_run(storage, run)
        if follow:
            return info.run_id, await follow_run(storage, info, count, wait=wait, json=json)
        await show_latest(storage, info, count, json=json)
        return None

    rests = run_on_store(work, patient=follow)
    if rests is not None:
        _exit(*rests)


def _exit(run_id: str, status: str) -> None:
    if status == "IDLE":
        return
    print_note(f"run {run_id!r} is {status_word(status)}")
    exit_with(FAILED if status in ("FAILED", "CANCELLED") else WAITING)
