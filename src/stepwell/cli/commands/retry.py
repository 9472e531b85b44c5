"""`stepwell retry`: make runs ready again that failed or were cancelled."""

from __future__ import annotations

from datetime import datetime

import click

from stepwell import admin
from stepwell.admin.phrases import pluralise
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import USAGE, CommandFailed, refusals
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import by_option, common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_moment_option
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.error_ids import ErrorId
from stepwell.model.visible_text import visible


@click.command("retry")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--status",
    type=click.Choice(["failed", "cancelled"], case_sensitive=False),
    metavar="STATUS",
    help="All runs with this status: failed or cancelled.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--since", callback=parse_moment_option, metavar="TIME", help="Only runs that stopped at TIME or later.")
@click.option("--dry-run", is_flag=True, help="Only show which runs would be retried.")
@by_option
@json_option
@common_options
def command(
    runs: tuple[str, ...],
    status: str | None,
    workflow: str | None,
    since: datetime | None,
    dry_run: bool,
    by: str | None,
    json: bool,
) -> None:
    """Retry runs that have stopped.

    Each RUN, or all runs of a status, are ready again: a worker drives them from where they
    stopped. What was committed is not executed again. Nothing is driven here; `stepwell resume`
    resumes one run and drives it.

    A TIME is 2026-11-16, 2026-11-16T10:00, or a duration ago: 30d, 12h, 90min.
    """
    if bool(runs) == (status is not None):
        raise CommandFailed(
            ErrorId.WRONG_USAGE, "name the runs to be retried, or pass --status", "--status failed --dry-run", USAGE
        )

    standing = (status or "failed").lower()
    if (server := find_server(by=by)) is not None:
        moment = None if since is None else since.isoformat()
        with refusals():
            answer = server.post(
                "retry",
                runs=list(runs),
                status=standing,
                workflow=workflow,
                since=moment,
                dry_run=dry_run,
            )
        _print(admin.RetryReport(tuple(answer["runs"]), answer["skipped"], answer["dry_run"]), json)
        return

    async def work(storage: BuiltInStorage) -> admin.RetryReport:
        with refusals():
            return await admin.retry(
                storage,
                runs,
                status=standing,
                workflow_name=workflow,
                since=since,
                by=by,
                dry_run=dry_run,
            )

    _print(run_on_store(work), json)


def _print(report: admin.RetryReport, json: bool) -> None:
    dry_run = report.dry_run
    if json:
        print_document(dry_run=dry_run, runs=list(report.runs), skipped=dict(report.skipped))
        return
    print_lines(map(visible, report.runs))
    for run_id, why in report.skipped.items():
        print_note(f"not retried: {run_id}: {why}")
    print_note(f"{'would retry' if dry_run else 'ready again'}: {pluralise(len(report.runs), 'run')}")
