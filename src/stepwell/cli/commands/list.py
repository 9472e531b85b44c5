"""`stepwell list`: list runs."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from stepwell import admin
from stepwell.cli.settings import common_options, json_option, tag_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_moment_option
from stepwell.cli.type_names import BuiltInStorage, RunInfo
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import format_moment
from stepwell.model.status_words import STATUSES_BY_WORD, status_word


@click.command("list")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option(
    "--status",
    type=click.Choice(list(STATUSES_BY_WORD), case_sensitive=False),
    metavar="STATUS",
    help="Only runs with this status: running (which includes sleeping), waiting, completed, failed or cancelled.",
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
        filters = {"workflow_name": workflow, "tags": tags or None, "after": last, **other_filters}
        # One run more than is shown, to know whether there is another page.
        runs = await _find_runs(storage, status, contains, filters, limit=limit + 1)
        page, more = runs[:limit], len(runs) > limit
        if json:
            print_document(runs=[_to_dict(run) for run in page], next=page[-1].run_id if more else None)
            return
        if page:
            print_table(
                ["run", "workflow", "status", "commits", "started", "changed", "tags"], [_make_row(run) for run in page]
            )
        else:
            criteria = (workflow, status, tags or None, after, contains, *other_filters.values())
            print_note("the store has no runs" if all(value is None for value in criteria) else "no run matches")
        if more:
            print_note(f"more runs: --after {quote(page[-1].run_id)}")

    # A list reads rows only, so SQLite can answer it without an event loop. A search awaits more.
    run_on_store(work, waits_for_nothing_else=contains is None)


async def _find_runs(
    storage: BuiltInStorage, status: str | None, contains: str | None, filters: dict[str, Any], *, limit: int
) -> list[RunInfo]:
    """Return at most `limit` runs, newest first."""
    runs: list[RunInfo] = []
    # `running` stands for several stored statuses, and a store filters by one: ask for each, and
    # merge.
    for stored in (None,) if status is None else STATUSES_BY_WORD[status.lower()]:
        if contains is None:
            runs += await storage.list_runs(**filters, status=stored, limit=limit)
        else:
            runs += await _search(storage, contains, {**filters, "status": stored}, limit)
    runs.sort(key=lambda run: (run.began_at, run.run_id), reverse=True)
    return runs[:limit]


async def _search(storage: BuiltInStorage, text: str, filters: dict[str, Any], limit: int) -> list[RunInfo]:
    runs: list[RunInfo] = []
    async for match in admin.search(storage, text, **filters):
        runs.append(match.run)
        if len(runs) == limit:
            break
    return runs


def _to_dict(run: RunInfo) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "workflow": run.workflow_name,
        "status": status_word(run.status),
        "number": run.number,
        "checkpoint_id": run.checkpoint_id,
        "iteration": run.iteration_count,
        "began_at": run.began_at,
        "changed_at": run.changed_at,
        "tags": dict(run.tags),
    }


def _make_row(run: RunInfo) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in sorted(run.tags.items()))
    return [
        run.run_id,
        run.workflow_name,
        status_word(run.status),
        str(run.number + 1),
        format_moment(run.began_at),
        format_moment(run.changed_at),
        tags,
    ]
