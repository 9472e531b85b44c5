"""`stepwell list`: which runs there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.settings import as_json, everywhere, tagged
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.time_parser import a_moment
from stepwell.cli.views.output import document, note, table
from stepwell.cli.views.text import STATUS, moment, status_word

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.storage.run_list import RunInfo


@click.command("list")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--status", type=click.Choice([*STATUS, *STATUS.values()], case_sensitive=False), metavar="WORD")
@tagged("May be given several times.")
@click.option("--prefix", metavar="TEXT", help="Only runs whose id begins so.")
@click.option("--text", metavar="TEXT", help="Only runs with this in their id, their workflow, or their tags.")
@click.option(
    "--holds", metavar="TEXT", help="Only runs that hold this: in state, questions or outputs. Reads each run."
)
@click.option("--since", callback=a_moment, metavar="TIME", help="Only runs that began then or later.")
@click.option("--until", callback=a_moment, metavar="TIME", help="Only runs that began before.")
@click.option("--changed-since", callback=a_moment, metavar="TIME", help="Only runs with a commit of then or later.")
@click.option("--changed-until", callback=a_moment, metavar="TIME", help="Only runs without a commit since then.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="RUN", help="Only those that come after this one in the list: the next page.")
@as_json
@everywhere
def command(
    workflow: str | None,
    status: str | None,
    tags: dict[str, str],
    limit: int,
    after: str | None,
    holds: str | None,
    json: bool,
    **asked: Any,
) -> None:
    """Which runs there are, those that began last first.

    --status takes running, waiting, done, failed or cancelled. A TIME is 2026-11-16, 2026-11-16T10:00 (UTC), or how
    long ago: 30d, 12h, 90min.
    """

    async def work(storage: BuiltInStorage) -> None:
        last = None if after is None else await _found(storage, after)
        wanted = None if status is None else STATUS.get(status.lower(), status.upper())
        known = {"workflow_name": workflow, "status": wanted, "tags": tags or None, "after": last, **asked}
        if holds is None:
            found = await storage.list_runs(**known, limit=limit + 1)
        else:
            found = await _holding(storage, holds, known, limit + 1)
        page, more = found[:limit], len(found) > limit
        if json:
            document(runs=[_told(run) for run in page], next=page[-1].run_id if more else None)
            return
        if page:
            table(["run", "workflow", "status", "commits", "began", "changed", "tags"], [_row(run) for run in page])
        else:
            given = (workflow, status, tags or None, after, holds, *asked.values())
            note("no run is stored here" if all(one is None for one in given) else "no run matches")
        if more:
            from shlex import quote

            note(f"there are more: --after {quote(page[-1].run_id)}")

    on_the_store(work, waits_for_nothing_else=holds is None)


async def _found(storage: BuiltInStorage, name: str) -> RunInfo:
    from stepwell.admin.lookup import find_run

    return await find_run(storage, name)


async def _holding(storage: BuiltInStorage, text: str, known: dict[str, Any], limit: int) -> list[RunInfo]:
    from stepwell.admin.run_search import search

    found: list[RunInfo] = []
    async for one in search(storage, text, **known):
        found.append(one.run)
        if len(found) == limit:
            break
    return found


def _told(run: RunInfo) -> dict[str, Any]:
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


def _row(run: RunInfo) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in sorted(run.tags.items()))
    known = [run.run_id, run.workflow_name, status_word(run.status.value), str(run.number + 1)]
    return [*known, moment(run.began_at), moment(run.changed_at), tags]
