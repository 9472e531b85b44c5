"""`stepwell check`: which runs some code would strand, before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.code_loader import code_of
from stepwell.cli.failures import NOT_THIS_CODE, ended
from stepwell.cli.settings import as_json, everywhere
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import document, note, table
from stepwell.cli.views.text import counted, status_word

if TYPE_CHECKING:
    from stepwell.admin.deploy_check import Checked, CheckedRun
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("check")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option("--stored-as", metavar="NAME", help="The name the runs are stored under, if it is another.")
@click.option("--all", "every", is_flag=True, help="Runs that are done or were cancelled, too.")
@as_json
@everywhere
def command(workflow: str, stored_as: str | None, every: bool, json: bool) -> None:
    """Which runs of a workflow this code could go on with, and why not with the others.

    Looks at the runs in the store that are under way, wait, sleep or failed. WORKFLOW is a workflow, a builder, or a
    function without arguments that gives one. MODULE is looked for in the working directory, too. Importing it runs its
    code; apart from that nothing is run, and nothing is changed.

    Ends with 0 if every run could go on, 5 if one could not.
    """
    code = code_of(workflow)

    async def work(storage: BuiltInStorage) -> Checked:
        from stepwell.admin.deploy_check import check

        return await check(storage, await code.workflow(), stored_as=stored_as, every=every)

    checked = on_the_store(work)
    if json:
        document(workflow=checked.workflow, version=checked.version, runs=[_told(run) for run in checked.runs])
    elif checked.runs:
        table(("run", "status", "verdict", "why"), [_row(run) for run in checked.runs])
    note(_summary(checked))
    if checked.stranded:
        note("hint: declare a migration, or let the code before finish these runs")
        ended(NOT_THIS_CODE)


def _told(run: CheckedRun) -> dict[str, Any]:
    known = {"run_id": run.run_id, "status": run.status.value, "number": run.number}
    return {**known, "verdict": run.verdict, "why": list(run.why)}


def _row(run: CheckedRun) -> tuple[str, ...]:
    return run.run_id, status_word(run.status.value), run.verdict, "; ".join(run.why)


def _summary(checked: Checked) -> str:
    if not checked.runs:
        return f"no run of {checked.workflow!r} is unfinished here"
    going_on = "goes on" if len(checked.going_on) == 1 else "go on"
    parts = {going_on: checked.going_on, "by a migration": checked.migrating, "stranded": checked.stranded}
    said = ", ".join(f"{len(runs)} {words}" for words, runs in parts.items() if runs)
    return f"{counted(len(checked.runs), 'run')} of {checked.workflow!r}: {said}"
