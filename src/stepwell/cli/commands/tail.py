"""`stepwell tail`: print the latest events of a run, and follow it."""

from __future__ import annotations

import click

from stepwell import admin
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import FAILED, WAITING, exit_with
from stepwell.cli.server_client import find_server
from stepwell.cli.server_events import follow_on_server, print_latest
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_note


@click.command("tail")
@click.argument("run", shell_complete=complete_runs)
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many events to print first.",
)
@click.option("-f", "--follow", is_flag=True, help="Print new events until the run stops.")
@click.option("--wait", is_flag=True, help="With --follow: keep following while the run waits for a response.")
@json_option
@common_options
def command(run: str, count: int, follow: bool, wait: bool, json: bool) -> None:
    """Print the latest events of a run, and follow it.

    Reads the store and does not drive the run: another process does. With --json, prints JSON
    Lines.

    With --follow, exits when the run stops: with 0 if it is completed, 1 if it failed or was
    cancelled, 4 if it waits for a response. Without --follow, exits with 0.
    """
    if wait and not follow:
        raise click.UsageError("--wait needs --follow")

    async def work(storage: BuiltInStorage) -> tuple[str, str | None]:
        from stepwell.cli.run_tail import follow_run, show_latest  # lazy: 80 ms

        info = await admin.find_run(storage, run)
        if follow:
            return info.run_id, await follow_run(storage, info, count, wait=wait, json=json)
        await show_latest(storage, info, count, json=json)
        return info.run_id, None

    if (server := find_server()) is not None:
        run_id, number = print_latest(server, run, count, json=json)
        status = follow_on_server(server, run_id, number, wait=wait, json=json) if follow else None
    else:
        # A follower outlives restarts of the server; a single look should fail soon.
        run_id, status = run_on_store(work, patient=follow)
    if status not in (None, "completed"):
        print_note(f"run {run_id!r} is {status}")
        exit_with(FAILED if status in ("failed", "cancelled") else WAITING)
