"""`stepwell prune`: delete old checkpoints and runs, and free their disk space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, cast

import click

from stepwell import admin
from stepwell.admin.phrases import pluralise
from stepwell.cli import server_runs
from stepwell.cli.completion import complete_runs
from stepwell.cli.confirmation import confirm, needs_confirmation
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_span_option
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.error_ids import ErrorId
from stepwell.errors import DurabilityError
from stepwell.model.status_words import STANDINGS, Standing
from stepwell.model.visible_text import visible

SHOWN = 20  # runs per list; JSON holds all of them
_HOW = "--dry-run shows what would be deleted, --yes deletes it"


@click.command("prune")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the last N checkpoints of each run.")
@click.option("--keep-for", callback=parse_span_option, metavar="SPAN", help="Keep checkpoints younger than SPAN.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STANDINGS, case_sensitive=False),
    metavar="STATUS",
    help=f"Only runs with this status: {', '.join(STANDINGS[:-1])} or {STANDINGS[-1]}. Repeatable.",
)
@click.option("--all", "entirely", is_flag=True, help="Delete each RUN entirely, even if it is waiting or damaged.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--no-compact", is_flag=True, help="Do not shrink the store; freed space is reused later.")
@json_option
@common_options
def command(
    runs: tuple[str, ...],
    keep_last: int | None,
    keep_for: timedelta | None,
    statuses: tuple[str, ...],
    entirely: bool,
    dry_run: bool,
    no_compact: bool,
    json: bool,
) -> None:
    """Delete old checkpoints and runs.

    Looks at all runs, or at each RUN. --keep-last, --keep-for or both say what to keep; a SPAN is
    30d, 12h, 90min, 45s or 1h30min. A completed or cancelled run of which nothing is kept is
    deleted entirely; a failed one only with --status failed. A run that waits for a response is
    pruned only if it is named.

    With --all, each RUN is deleted entirely, even if it is waiting, failed or damaged.
    """
    standings = [cast(Standing, word.lower()) for word in statuses]
    _check(runs, keep_last, keep_for, standings, entirely)
    asks_first = not dry_run and needs_confirmation("nothing was deleted, because nobody can confirm it", _HOW)

    def prune(*, dry_run: bool) -> tuple[admin.PruneReport, int]:
        if (server := find_server()) is not None:
            return server_runs.prune(
                server,
                runs=runs,
                last=keep_last,
                age=keep_for,
                standings=standings,
                entirely=entirely,
                compact=not no_compact,
                dry_run=dry_run,
            )
        from stepwell.admin.retention.selection import make_policy  # lazy: 60 ms, not needed with --server

        policy = None if entirely else make_policy(keep_last, keep_for, standings)
        return run_on_store(
            lambda storage: _prune(
                storage, policy, runs=runs, standings=standings, compact=not no_compact, dry_run=dry_run
            )
        )

    # With a dry run first, a person confirms exactly what the second visit to the store deletes,
    # apart from what other processes committed in between. They are asked outside the event loop.
    report, freed = prune(dry_run=dry_run or asks_first)
    if asks_first and (report.runs or report.checkpoints):
        for line in _describe(report):
            print_note(line)
        confirm("Delete this permanently?", "nothing was deleted")
        report, freed = prune(dry_run=False)
    if json:
        print_document(**_to_dict(report, dry_run), given_back=max(freed, 0))
        return
    print_lines(
        _describe(report) if report.runs or report.checkpoints else ["nothing to prune", *_explain_kept(report)]
    )
    if freed > 0:
        print_note(f"the store is {freed:,} bytes smaller")


def _check(
    runs: Sequence[str], last: int | None, age: timedelta | None, statuses: Sequence[str], entirely: bool
) -> None:
    """Raise CommandFailed unless the options say what to keep, or that runs are deleted entirely."""
    if entirely and (not runs or last is not None or age is not None or statuses):
        raise CommandFailed(
            ErrorId.WRONG_USAGE,
            "--all needs at least one RUN, and no other option that selects runs or checkpoints",
            code=USAGE,
        )
    if not entirely and last is None and age is None:
        raise CommandFailed(
            ErrorId.WRONG_USAGE,
            "pass --keep-last or --keep-for",
            "--keep-last 10, --keep-for 30d, or both; --all deletes a RUN",
            USAGE,
        )


async def _prune(
    storage: BuiltInStorage,
    policy: admin.Keep | None,
    *,
    runs: Sequence[str],
    standings: Sequence[Standing],
    compact: bool,
    dry_run: bool,
) -> tuple[admin.PruneReport, int]:
    """Prune or delete runs; return what was removed, and by how many bytes the store shrank."""
    from stepwell.admin.retention.selection import prune_selected  # lazy: 60 ms, not needed with --server

    report = await prune_selected(storage, policy, runs=runs, standings=standings, dry_run=dry_run)
    # Compacting rewrites a whole SQLite file: not for nothing.
    wanted = compact and not dry_run and (report.runs or report.checkpoints)
    return report, await _compact(storage) if wanted else 0


async def _compact(storage: BuiltInStorage) -> int:
    # The deletion is committed: a failure from here on must not look as if nothing was deleted.
    try:
        return await storage.compact()
    except DurabilityError as error:
        raise server_runs.not_compacted_error(str(error)) from error


def _describe(report: admin.PruneReport) -> Iterator[str]:
    # Runs that are deleted entirely first, then those that only lose checkpoints.
    fewer = Counter(checkpoint.run_id for checkpoint in report.checkpoints)
    what = [pluralise(len(report.runs), "run")] if report.runs else []
    what += [f"{pluralise(fewer.total(), 'checkpoint')} of {pluralise(len(fewer), 'run')}"] if fewer else []
    yield f"{'would delete' if report.dry_run else 'deleted'}: {' and '.join(what)}, {report.bytes:,} bytes"
    rows = [f"{id}: the entire run" for id in report.runs]
    rows += [f"{id}: {pluralise(number, 'checkpoint')}" for id, number in fewer.items()]
    yield from (f"  {visible(row)}" for row in rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"  ... and {pluralise(len(rows) - SHOWN, 'more run')}"
    yield from _explain_kept(report)


def _explain_kept(report: admin.PruneReport) -> Iterator[str]:
    """Yield why runs are kept, those with the same reason together."""
    # By reason, because thousands of runs usually share one.
    reasons: dict[str, list[str]] = {}
    for id, why in {**report.stays, **report.skipped}.items():
        reasons.setdefault(why, []).append(id)
    if not reasons:
        return
    yield f"not deleted entirely: {pluralise(sum(map(len, reasons.values())), 'run')}"
    for why, ids in reasons.items():
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        yield f"  {visible(why)}: {visible(', '.join(ids[:SHOWN]))}{more}"


def _to_dict(report: admin.PruneReport, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "runs": list(report.runs),
        "checkpoints": report.numbers(),
        "bytes": report.bytes,
        "stays": {**report.stays, **report.skipped},
    }
