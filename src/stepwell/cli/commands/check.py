"""`stepwell check`: find the runs that a new version of the code cannot continue."""

from __future__ import annotations

import click

from stepwell import admin
from stepwell.admin.phrases import pluralise
from stepwell.cli.code_loader import load_code
from stepwell.cli.failures import INCOMPATIBLE, exit_with
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_note, print_table


@click.command("check")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option("--stored-as", metavar="NAME", help="The workflow name of the stored runs, if the code has another.")
@click.option("--all", "every", is_flag=True, help="Include completed and cancelled runs.")
@json_option
@common_options
def command(workflow: str, stored_as: str | None, every: bool, json: bool) -> None:
    """Check which runs this code can continue.

    Checks the stored runs of the workflow that are running, waiting, sleeping or failed, and says
    why a run cannot be continued. WORKFLOW is a workflow, a builder, or a function without
    arguments that returns one. MODULE is also searched in the working directory. Importing it runs
    its code; nothing else is run, and nothing is changed.

    Exits with 0 if every run can be continued, 5 if one cannot.
    """
    # Before the store is opened: importing may run an event loop of its own, and may fail.
    code = load_code(workflow)

    async def work(storage: BuiltInStorage) -> admin.Checked:
        return await admin.check(storage, await code.build_workflow(), stored_as=stored_as, every=every)

    checked = run_on_store(work)
    if json:
        runs = [
            {
                "run_id": run.run_id,
                "status": run.standing,
                "number": run.number,
                "verdict": run.verdict,
                "why": list(run.why),
                "suggestions": list(run.suggestions),
            }
            for run in checked.runs
        ]
        print_document(workflow=checked.workflow, version=checked.version, runs=runs)
    elif checked.runs:
        rows = [(run.run_id, run.standing, run.verdict, "; ".join(run.why)) for run in checked.runs]
        print_table(("run", "status", "verdict", "why"), rows)
    print_note(_summarise(checked))
    if checked.incompatible:
        for suggestion in dict.fromkeys(text for run in checked.incompatible for text in run.suggestions):
            print_note(f"hint: {suggestion}")
        print_note("hint: declare a migration, or let the old code finish these runs")
        exit_with(INCOMPATIBLE)


def _summarise(checked: admin.Checked) -> str:
    if not checked.runs:
        return f"no run of {checked.workflow!r} is unfinished"
    parts = {
        "compatible": checked.compatible,
        "compatible after a migration": checked.migrating,
        "incompatible": checked.incompatible,
    }
    counts = ", ".join(f"{len(runs)} {word}" for word, runs in parts.items() if runs)
    return f"{pluralise(len(checked.runs), 'run')} of {checked.workflow!r}: {counts}"
