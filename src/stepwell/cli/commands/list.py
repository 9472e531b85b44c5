"""`stepwell list`: which runs there are."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from stepwell import admin
from stepwell.cli.settings import common_options, json_option, tag_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_moment_option
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import STATUS, format_moment, status_word

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.storage.run_list import RunInfo


@click.command("list")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--status", type=click.Choice([*STATUS, *STATUS.values()], case_sensitive=False), metavar="WORD")
@tag_option("May be given several times.")
@click.option("--prefix", metavar="TEXT", help="Only runs whose id begins so.")
@click.option("--text", metavar="TEXT", help="Only runs with this in their id, their workflow, or their tags.")
@click.option(
    "--holds", metavar="TEXT", help="Only runs that hold this: in state, questions or outputs. Reads each run."
)
@click.option("--since", callback=parse_moment_option, metavar="TIME", help="Only runs that began then or later.")
@click.option("--until", callback=parse_moment_option, metavar="TIME", help="Only runs that began before.")
@click.option(
    "--changed-since", callback=parse_moment_option, metavar="TIME", help="Only runs with a commit of then or later."
)
@click.option(
    "--changed-until", callback=parse_moment_option, metavar="TIME", help="Only runs without a commit since then."
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="RUN", help="Only those that come after this one in the list: the next page.")
@json_option
@common_options
def command(
    workflow: str | None,
    status: str | None,
    tags: dict[str, str],
    limit: int,
    after: str | None,
    holds: str | None,
    json: bool,
    **other_filters: Any,
) -> None:
    """Which runs there are, those that began last first.

    --status takes running, waiting, done, failed or cancelled. A TIME is 2026-11-16, 2026-11-16T10:00 (UTC), or how
    long ago: 30d, 12h, 90min.
    """

    async def work(storage: BuiltInStorage) -> None:
        last = None if after is None else await admin.find_run(storage, after)
        wanted_status = None if status is None else STATUS.get(status.lower(), status.upper())
        filters = {
            "workflow_name": workflow,
            "status": wanted_status,
            "tags": tags or None,
            "after": last,
            **other_filters,
        }
        if holds is None:
            runs = await storage.list_runs(**filters, limit=limit + 1)
        else:
            runs = await _search(storage, holds, filters, limit + 1)
        page, more = runs[:limit], len(runs) > limit
        if json:
            print_document(runs=[_to_dict(run) for run in page], next=page[-1].run_id if more else None)
            return
        if page:
            print_table(
                ["run", "workflow", "status", "commits", "began", "changed", "tags"], [_make_row(run) for run in page]
            )
        else:
            criteria = (workflow, status, tags or None, after, holds, *other_filters.values())
            print_note(
                "no run is stored here" if all(criterion is None for criterion in criteria) else "no run matches"
            )
        if more:
            print_note(f"there are more: --after {quote(page[-1].run_id)}")

    run_on_store(work, waits_for_nothing_else=holds is None)


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
        "status": run.status.value,
        "number": run.number,
        "checkpoint_id": run.checkpoint_id,
        "iteration": run.iteration_count,
        "began_at": run.began_at,
        "changed_at": run.changed_at,
        "tags": dict(run.tags),
    }


def _make_row(run: RunInfo) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in sorted(run.tags.items()))
    cells = [run.run_id, run.workflow_name, status_word(run.status.value), str(run.number + 1)]
    return [*cells, format_moment(run.began_at), format_moment(run.changed_at), tags]
