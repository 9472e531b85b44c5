"""`stepwell prune`: old checkpoints and runs go, and the disk space is given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from stepwell import admin
from stepwell.cli.confirmation import confirm, needs_confirmation
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_span_option
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.cli.views.text import STATUS, pluralise, printable
from stepwell.errors import DurabilityError

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

SHOWN = 20  # runs of a list; JSON has them all
_HOW = "--dry-run says what would go, --yes takes it away"


@click.command("prune")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the last N checkpoints of each run.")
@click.option("--keep-for", callback=parse_span_option, metavar="SPAN", help="Keep what is younger, such as 30d.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(list(STATUS), case_sensitive=False),
    metavar="WORD",
    help="Only runs of this status. May be given several times.",
)
@click.option("--all", "whole", is_flag=True, help="Delete the named runs whole, whatever they are.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--no-compact", is_flag=True, help="Leave the disk space to the store, for what is written next.")
@json_option
@common_options
def command(
    runs: tuple[str, ...],
    keep_last: int | None,
    keep_for: timedelta | None,
    statuses: tuple[str, ...],
    whole: bool,
    dry_run: bool,
    no_compact: bool,
    json: bool,
) -> None:
    """Take away old checkpoints of all runs, or of each RUN, and runs of which nothing is kept, if they are over.

    Say what to keep with --keep-last or --keep-for, or both; a SPAN is 30d, 12h, 90min, 45s or 1h30min. Failed runs go
    whole only with --status failed. Runs that wait for answers are touched only if they are named.

    With --all, each RUN goes whole, also if it waits, failed or is damaged.
    """
    policy = _policy(runs, keep_last, keep_for, statuses, whole)
    asks_first = not dry_run and needs_confirmation("nobody is there to be asked, so nothing was taken away", _HOW)

    async def look(storage: BuiltInStorage) -> admin.PruneReport:
        return await _prune(storage, policy, runs, dry_run=True)

    async def act(storage: BuiltInStorage) -> tuple[admin.PruneReport, int]:
        report = await _prune(storage, policy, runs, dry_run=False)
        wanted = (report.runs or report.checkpoints) and not no_compact
        return report, await _compact(storage) if wanted else 0

    report, freed = (run_on_store(look), 0) if dry_run or asks_first else run_on_store(act)
    if asks_first and (report.runs or report.checkpoints):
        for line in _describe(report):
            print_note(line)
        confirm("Take that away for good?", "nothing was taken away")
        report, freed = run_on_store(act)
    if json:
        print_document(**_to_dict(report, dry_run), given_back=max(freed, 0))
        return
    print_lines(
        _describe(report) if report.runs or report.checkpoints else ["nothing to prune", *_explain_kept(report)]
    )
    if freed > 0:
        print_note(f"the store takes {freed:,} bytes less")


def _policy(
    runs: Sequence[str], last: int | None, age: timedelta | None, statuses: Sequence[str], whole: bool
) -> admin.Keep | None:
    """What is kept; None: nothing of the named runs."""
    if whole:
        if not runs or last is not None or age is not None or statuses:
            raise CommandFailed("--all deletes each RUN that is named, and is said alone", code=USAGE)
        return None
    if last is None and age is None:
        raise CommandFailed("say what to keep", "--keep-last 10, --keep-for 30d, or both; --all to delete a RUN", USAGE)
    chosen = {STATUS[word.lower()] for word in statuses} or set()
    keep = admin.Keep(last, age)
    by_status = {status: keep if status in chosen else None for status in STATUS.values()} if chosen else {}
    return admin.Keep(last, age, by_status)


async def _prune(
    storage: BuiltInStorage, policy: admin.Keep | None, runs: Sequence[str], *, dry_run: bool
) -> admin.PruneReport:
    run_ids = [(await admin.find_run(storage, run)).run_id for run in runs]
    if policy is None:
        return await admin.delete_runs(storage, run_ids, dry_run=dry_run)
    return await admin.prune(storage, policy, named=run_ids, only=run_ids or None, dry_run=dry_run)


async def _compact(storage: BuiltInStorage) -> int:
    try:
        return await storage.compact()
    except DurabilityError as error:
        problem = f"what was to go is gone, but its disk space could not be given back: {error}"
        raise CommandFailed(problem, "the store uses it for what is written next") from error


def _describe(report: admin.PruneReport) -> Iterator[str]:
    fewer = Counter(checkpoint.run_id for checkpoint in report.checkpoints)
    what = _join(pluralise(len(report.runs), "run") if report.runs else "", _describe_checkpoints(fewer))
    yield f"{'would go' if report.dry_run else 'gone'}: {what}, {report.bytes:,} bytes"
    gone = [f"{id}: the whole run" for id in report.runs]
    yield from _format_rows([*gone, *(f"{id}: {pluralise(number, 'checkpoint')}" for id, number in fewer.items())])
    yield from _explain_kept(report)


def _describe_checkpoints(fewer: Mapping[str, int]) -> str:
    if not fewer:
        return ""
    return f"{pluralise(sum(fewer.values()), 'checkpoint')} of {pluralise(len(fewer), 'run')}"


def _join(first: str, second: str) -> str:
    return f"{first} and {second}" if first and second else first or second


def _explain_kept(report: admin.PruneReport) -> Iterator[str]:
    """Why what stays does so, those that stay for the same reason together."""
    reasons: dict[str, list[str]] = {}
    for id, why in {**report.stays, **report.skipped}.items():
        reasons.setdefault(why, []).append(id)
    if not reasons:
        return
    yield f"does not go whole: {pluralise(sum(map(len, reasons.values())), 'run')}"
    for why, ids in reasons.items():
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        yield f"  {printable(why)}: {printable(', '.join(ids[:SHOWN]))}{more}"


def _format_rows(rows: Sequence[str]) -> Iterator[str]:
    yield from (f"  {printable(row)}" for row in rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"  ... and {pluralise(len(rows) - SHOWN, 'more run')}"


def _to_dict(report: admin.PruneReport, dry_run: bool) -> dict[str, Any]:
    numbers: dict[str, list[int]] = {}
    for checkpoint in report.checkpoints:
        numbers.setdefault(checkpoint.run_id, []).append(checkpoint.number)
    return {
        "dry_run": dry_run,
        "runs": list(report.runs),
        "checkpoints": numbers,
        "bytes": report.bytes,
        "stays": {**report.stays, **report.skipped},
    }
