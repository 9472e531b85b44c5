"""`stepwell events`: print the events of a run from its history."""

from __future__ import annotations

import sys

import click

from stepwell import admin
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.server_client import find_server
from stepwell.cli.server_events import print_history
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import note_shortened_values, print_json_line, print_lines
from stepwell.cli.views.text import wrap_line
from stepwell.error_ids import ErrorId


@click.command("events")
@click.argument("run", shell_complete=complete_runs)
@click.option("--full", is_flag=True, help="Do not shorten large values.")
@json_option
@common_options
def command(run: str, full: bool, json: bool) -> None:
    """Print the events of a run from its history.

    Prints the durable events of RUN, oldest first, as far back as its commits are stored. With
    --json, prints JSON Lines. `stepwell tail` prints the latest events and follows the run.
    """

    if (server := find_server()) is not None:
        if full:
            hint = "with --server, --json holds all values in full"
            raise CommandFailed(ErrorId.WRONG_USAGE, "--full needs a store", hint, USAGE)
        print_history(server, run, json=json)
        return

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.admin.run_events import only_of_nodes  # lazy: for the same reason
        from stepwell.admin.run_history import leads_named_agents, read_history  # lazy: 80 ms
        from stepwell.admin.values import CUT  # lazy: for the same reason
        from stepwell.cli.views.events import format_event  # lazy: for the same reason

        run_id = (await admin.find_run(storage, run)).run_id
        is_led = not json and await leads_named_agents(storage, run_id)
        is_cut = False
        async for event in read_history(storage, run_id):
            if json:
                print_json_line(**event.to_dict())
            elif (shown := only_of_nodes(event) if is_led else event) is not None:
                lines = list(format_event(shown, full=full))
                is_cut = is_cut or any(map(CUT.search, lines))
                print_lines(wrapped for line in lines for wrapped in wrap_line(line, sys.stdout))
        if is_cut and not full:
            note_shortened_values()

    run_on_store(work)
