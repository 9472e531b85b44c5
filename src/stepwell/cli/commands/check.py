"""`stepwell check`: which runs some code would strand, before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell import admin
from stepwell.cli.code_loader import load_code
from stepwell.cli.failures import NOT_THIS_CODE, exit_with
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import pluralise, status_word

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("check")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option("--stored-as", metavar="NAME", help="The name the runs are stored under, if it is another.")
@click.option("--all", "every", is_flag=True, help="Runs that are done or were cancelled, too.")
@json_option
@common_options
def command(workflow: str, stored_as: str | None, every: bool, json: bool) -> None:
    """Which runs of a workflow this code could go on with, and why not with the others.

    Looks at the runs in the store that are under way, wait, sleep or failed. WORKFLOW is a workflow, a builder, or a
    function without arguments that gives one. MODULE is looked for in the working directory, too. Importing it runs its
    code; apart from that nothing is run, and nothing is changed.

    Ends with 0 if every run could go on, 5 if one could not.
    """
    code = load_code(workflow)

    async def work(storage: BuiltInStorage) -> admin.Checked:
        return await admin.check(storage, await code.build_workflow(), stored_as=stored_as, every=every)

    checked = run_on_store(work)
    if json:
        print_document(workflow=checked.workflow, version=checked.version, runs=[_to_dict(run) for run in checked.runs])
    elif checked.runs:
        print_table(("run", "status", "verdict", "why"), [_make_row(run) for run in checked.runs])
    print_note(_summarise(checked))
    if checked.stranded:
        print_note("hint: declare a migration, or let the code before finish these runs")
        exit_with(NOT_THIS_CODE)


def _to_dict(run: admin.CheckedRun) -> dict[str, Any]:
    fields = {"run_id": run.run_id, "status": run.status.value, "number": run.number}
    return {**fields, "verdict": run.verdict, "why": list(run.why)}


def _make_row(run: admin.CheckedRun) -> tuple[str, ...]:
    return run.run_id, status_word(run.status.value), run.verdict, "; ".join(run.why)


def _summarise(checked: admin.Checked) -> str:
    if not checked.runs:
        return f"no run of {checked.workflow!r} is unfinished here"
    going_on = "goes on" if len(checked.going_on) == 1 else "go on"
    parts = {going_on: checked.going_on, "by a migration": checked.migrating, "stranded": checked.stranded}
    counts = ", ".join(f"{len(runs)} {words}" for words, runs in parts.items() if runs)
    return f"{pluralise(len(checked.runs), 'run')} of {checked.workflow!r}: {counts}"
