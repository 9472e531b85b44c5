"""`stepwell show`: show a run at a checkpoint."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click

from stepwell.cli import server_runs
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import command_line
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import note_shortened_values, print_document, print_lines
from stepwell.cli.views.text import format_moment, wrap_line
from stepwell.model.visible_text import visible
from stepwell.storage import clock


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
        place = server_runs.find_checkpoint(server, checkpoint or run, run=None if checkpoint is None else run)
        if json:
            document = server.get("runs", place.run_id, at=place.number)
            print_document(**{name: value for name, value in document.items() if not _is_for_pages(name, value)})
        else:
            lines = server.get("runs", place.run_id, "lines", at=place.number, full=full)
            _print(*(_read_times(part) for part in lines.values()), full=full)
        return

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.admin.lookup import find_inside  # lazy: 60 ms, with those that follow
        from stepwell.admin.overview.lines import format_overview  # lazy: the same
        from stepwell.admin.overview.run_document import overview_to_dict  # lazy: the same
        from stepwell.admin.overview.run_overview import load_overview  # lazy: the same

        name = run if checkpoint is None else await find_inside(storage, run, checkpoint)
        overview = await load_overview(storage, name, every_commit=full)
        if json:
            print_document(**overview_to_dict(overview, now=clock.now(), moment=format_moment))
        else:
            lines = format_overview(overview, full=full, moment=format_moment)
            command = None if lines.command is None else asdict(lines.command)
            _print(lines.sentence, command, lines.explanation, lines.sections, full=full)

    run_on_store(work)


def _is_for_pages(name: str, value: Any) -> bool:
    """Return whether a part of the document of a run is one that only a page has, or that this run lacks."""
    return name in ("newest", "commits", "timeline", "graph") or (name in ("values", "timers") and value is None)


def _read_times(part: Any) -> Any:
    """Return what a server says with its times as they are shown here."""
    if isinstance(part, str):
        return re.sub("⟦([^⟦⟧]+)⟧", lambda match: format_moment(match[1]), part)
    return [_read_times(inner) for inner in part] if isinstance(part, list) else part


def _print(
    sentence: str,
    command: Mapping[str, Any] | None,
    explanation: Iterable[str],
    sections: Iterable[list[str]],
    *,
    full: bool,
) -> None:
    from stepwell.admin.values import CUT  # lazy: for the same reason

    following = "nothing to do"
    if command is not None:
        following = command_line(command["name"], *command["arguments"], options=command["options"])
    # A command is there to be copied, so it alone is not wrapped.
    print_lines([*wrap_line(sentence, sys.stdout), f"next: {visible(following)}", *explanation])
    is_cut = False
    for section in sections:
        print_lines(wrapped for line in ("", *section) for wrapped in wrap_line(line, sys.stdout))
        is_cut = is_cut or any(map(CUT.search, section))
    if is_cut and not full:
        note_shortened_values()
