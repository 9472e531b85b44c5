"""`stepwell list`: list runs."""

from __future__ import annotations

from datetime import datetime
from shlex import quote
from typing import Any

import click

from stepwell import admin
from stepwell.cli.settings import common_options, json_option, tag_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_moment_option
from stepwell.cli.type_names import BuiltInStorage, RunInfo
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import format_age, format_moment
from stepwell.model.status_words import STANDINGS
from stepwell.storage import clock


@click.command("list")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option(
    "--status",
    type=click.Choice(STANDINGS, case_sensitive=False),
    metavar="STATUS",
    help=f"Only runs with this status: {', '.join(STANDINGS[:-1])} or {STANDINGS[-1]}.",
)
@tag_option("Only runs with this tag. Repeatable.")
@click.option("--prefix", metavar="TEXT", help="Only runs whose id starts with TEXT.")
@click.option("--text", metavar="TEXT", help="Only runs with TEXT in their id, their workflow name, or their tags.")
@click.option(
    "--contains", metavar="TEXT", help="Only runs with TEXT in their state, requests or outputs. Reads every run."
)
@click.option("--since", callback=parse_moment_option, metavar="TIME", help="Only runs started at TIME or later.")
@click.option("--until", callback=parse_moment_option, metavar="TIME", help="Only runs started before TIME.")
@click.option(
    "--changed-since", callback=parse_moment_option, metavar="TIME", help="Only runs with a commit at TIME or later."
)
@click.option(
    "--changed-until", callback=parse_moment_option, metavar="TIME", help="Only runs without a commit since TIME."
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Maximum number of runs.")
@click.option("--after", metavar="RUN", help="Start after this run: the next page.")
@json_option
@common_options
def command(
    workflow: str | None,
    status: str | None,
    tags: dict[str, str],
    limit: int,
    after: str | None,
    contains: str | None,
    json: bool,
    **other_filters: Any,
) -> None:
    """List runs, newest first.

    A TIME is 2026-11-16, 2026-11-16T10:00, or a duration ago: 30d, 12h, 90min.
    """

    async def work(storage: BuiltInStorage) -> None:
        last = None if after is None else await admin.find_run(storage, after)
        filters = {
            "workflow_name": workflow,
            "standing": status and status.lower(),
            "tags": tags or None,
            "after": last,
            **other_filters,
        }
        # One run more than is shown, to know whether there is another page.
        if contains is None:
            runs = await storage.list_runs(**filters, limit=limit + 1)
        else:
            runs = await _search(storage, contains, filters, limit + 1)
        page, more = runs[:limit], len(runs) > limit
        if json:
            print_document(runs=[run.to_dict() for run in page], next=page[-1].run_id if more else None)
            return
        if page:
            columns, now = ["run", "workflow", "status", "commits", "started", "changed", "tags"], clock.now()
            print_table(columns, [_make_row(run, now) for run in page])
        else:
            criteria = (workflow, status, tags or None, after, contains, *other_filters.values())
            print_note("the store has no runs" if all(value is None for value in criteria) else "no run matches")
        if more:
            print_note(f"more runs: --after {quote(page[-1].run_id)}")

    # A list reads rows only, so SQLite can answer it without an event loop. A search awaits more.
    run_on_store(work, waits_for_nothing_else=contains is None)


async def _search(storage: BuiltInStorage, text: str, filters: dict[str, Any], limit: int) -> list[RunInfo]:
    runs: list[RunInfo] = []
    async for match in admin.search(storage, text, **filters):
        runs.append(match.run)
        if len(runs) == limit:
            break
    return runs


def _make_row(run: RunInfo, now: datetime) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in sorted(run.tags.items()))
    until = f" until {format_moment(run.until)}" if run.standing == "sleeping" and run.until else ""
    return [
        run.run_id,
        run.workflow_name,
        f"{run.standing}{until}",
        str(run.number + 1),
        format_moment(run.began_at),
        format_age(run.changed_at, now),
        tags,
    ]
