"""`stepwell cancel`: cancel a run."""

from __future__ import annotations

import click

from stepwell import admin
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import refusals
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import by_option, common_options, json_option, text_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_note
from stepwell.model.status_words import status_word


@click.command("cancel")
@click.argument("run", shell_complete=complete_runs)
@text_option("--reason", "The reason, stored in the history.")
@by_option
@json_option
@common_options
def command(run: str, reason: str | None, by: str | None, json: bool) -> None:
    """Cancel a run.

    RUN stays at its last commit, and `stepwell resume` can resume it from there.

    If a process drives the run, it is asked to stop, and this command waits until it has. If you
    interrupt the wait, the process still stops. A run that is completed or already cancelled stays
    as it is, which is not an error.
    """

    if (server := find_server(by=by)) is not None:
        with refusals():
            moved = server.post("runs", run, "cancel", reason=reason)
        if json:
            print_document(run_id=moved["run_id"], status=moved["status"], number=moved["number"])
        elif moved["status"] == "cancelled":
            print_note(f"run {moved['run_id']!r} is cancelled at {moved['run_id']}@{moved['number']}")
        else:
            print_note(f"run {moved['run_id']!r} is {moved['status']}; its driver is asked to stop if it has one")
        return

    async def work(storage: BuiltInStorage) -> None:
        with refusals():  # the run of a sub-workflow cannot be cancelled by itself
            result = await admin.cancel(
                storage,
                run,
                reason=reason,
                by=by,
                on_wait=lambda driver: print_note(f"{driver} drives the run; waiting until it has stopped"),
            )
        word = status_word(result.status)
        if json:
            print_document(
                run_id=result.run_id, status=word, number=result.number, changed=result.changed, driver=result.driver
            )
        elif not result.changed:
            print_note(f"run {result.run_id!r} is already {word}")
        elif word != "cancelled":
            print_note(f"run {result.run_id!r} was {word} before it could be cancelled")
        else:
            print_note(f"run {result.run_id!r} is cancelled at {result.run_id}@{result.number}")

    run_on_store(work)
