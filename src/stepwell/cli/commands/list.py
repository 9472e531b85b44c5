"""`stepwell list`: list runs."""

from __future__ import annotations

import sys
from datetime import datetime
from shlex import quote
from typing import Any

import click

from stepwell import admin
from stepwell.admin.phrases import format_age
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option, tag_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_moment_option
from stepwell.cli.type_names import BuiltInStorage, RunInfo
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import format_brief_moment, format_moment
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
@click.option("--parent", metavar="RUN", help="Only runs that were forked from this run.")
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
    parent: str | None,
    limit: int,
    after: str | None,
    contains: str | None,
    json: bool,
    **other_filters: Any,
) -> None:
    """List runs, newest first.

    A TIME is 2026-11-16, 2026-11-16T10:00, or a duration ago: 30d, 12h, 90min.
    """

    criteria = (workflow, status, tags or None, parent, after, contains, *other_filters.values())
    if (server := find_server()) is not None:
        pairs = [f"{name}={value}" for name, value in tags.items()]
        times = {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in other_filters.items()
        }
        query = {"workflow": workflow, "status": status and status.lower(), "tag": pairs or None, "after": after}
        query |= {"parent": parent, "contains": contains, **times}
        answer = server.get("runs", **query, limit=limit)
        # A search for a text looks through so many runs at a time.
        while answer["next"] is not None and (missing := limit - len(answer["runs"])) > 0:
            more = server.get("runs", **{**query, "after": answer["next"]}, limit=missing)
            answer = {"runs": answer["runs"] + more["runs"], "next": more["next"]}
        _print(answer["runs"], answer["next"], json, is_filtered=any(value is not None for value in criteria))
        return

    async def work(storage: BuiltInStorage) -> None:
        last = None if after is None else await admin.find_run(storage, after)
        filters = {
            "workflow_name": workflow,
            "standing": status and status.lower(),
            "tags": tags or None,
            "parent": None if parent is None else await _complete(storage, parent),
            "after": last,
            **other_filters,
        }
        # One run more than is shown, to know whether there is another page.
        if contains is None:
            runs = await storage.list_runs(**filters, limit=limit + 1)
        else:
            runs = await _search(storage, contains, filters, limit + 1)
        page, more = runs[:limit], len(runs) > limit
        following = page[-1].run_id if more else None
        is_filtered = any(value is not None for value in criteria)
        _print([run.to_dict() for run in page], following, json, is_filtered=is_filtered)

    # A list reads rows only, so SQLite can answer it without an event loop. A search awaits more.
    run_on_store(work, waits_for_nothing_else=contains is None)


def _print(runs: list[dict[str, Any]], following: str | None, json: bool, *, is_filtered: bool) -> None:
    if json:
        print_document(runs=runs, next=following)
        return
    if runs:
        columns, now = ["run", "workflow", "status", "commits", "started", "changed", "tags"], clock.now()
        # A person at a terminal wants one line per run; a program that reads a pipe wants everything.
        rows = [_make_row(run, now, brief=sys.stdout.isatty()) for run in runs]
        print_table(columns, rows, optional=("commits", "started", "tags", "workflow"))
    else:
        print_note("no run matches" if is_filtered else "the store has no runs")
    if following is not None:
        print_note(f"more runs: --after {quote(following)}")


async def _complete(storage: BuiltInStorage, parent: str) -> str:
    from stepwell.admin.lookup import complete_run_id  # lazy: most lists do not need it

    return await complete_run_id(storage, parent)


async def _search(storage: BuiltInStorage, text: str, filters: dict[str, Any], limit: int) -> list[RunInfo]:
    runs: list[RunInfo] = []
    async for match in admin.search(storage, text, **filters):
        runs.append(match.run)
        if len(runs) == limit:
            break
    return runs


def _make_row(run: dict[str, Any], now: datetime, *, brief: bool) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in sorted(run["tags"].items()))
    until = ""
    if run["status"] == "sleeping" and run["until"]:
        until = f" until {format_brief_moment(run['until'], now) if brief else format_moment(run['until'])}"
    return [
        run["run_id"],
        run["workflow"],
        f"{run['status']}{until}",
        str(run["number"] + 1),
        format_moment(run["began_at"]),
        format_age(run["changed_at"], now),
        tags,
    ]
