"""`stepwell cancel`: stop a run on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell import admin
from stepwell.cli.failures import refusals
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.output import print_document, print_note
from stepwell.cli.views.text import status_word
from stepwell.model.superstep import is_text

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("cancel")
@click.argument("run")
@click.option("--reason", metavar="TEXT", help="Why; it becomes part of the history of the run.")
@json_option
@common_options
def command(run: str, reason: str | None, json: bool) -> None:
    """Stop RUN on purpose: it ends cancelled at its last commit, and `stepwell resume` goes on with it from there.

    A process that drives the run is told to stop, and this waits until it has; whoever interrupts the waiting leaves
    the wish behind. A run that is done or cancelled already stays as it is, which is no error.
    """

    if reason is not None and not is_text(reason):
        raise click.BadParameter("that is no text in UTF-8", param_hint="--reason")

    async def work(storage: BuiltInStorage) -> None:
        with refusals():  # of a run that works for another
            result = await admin.cancel(storage, run, reason=reason, told=_note_waiting)
        _report(result, json)

    run_on_store(work)


def _note_waiting(driver: str) -> None:
    print_note(f"{driver} drives it and was told to stop; waiting until it has")


def _report(result: admin.Cancelled, json: bool) -> None:
    if json:
        fields = {"run_id": result.run_id, "status": result.status.value, "number": result.number}
        print_document(**fields, changed=result.changed, driver=result.driver)
        return
    word = status_word(result.status.value)
    if not result.changed:
        print_note(f"run {result.run_id!r} is {word} already, and stays so")
    elif word != "cancelled":
        print_note(f"run {result.run_id!r} was {word} before it could be stopped")
    else:
        print_note(f"run {result.run_id!r} is cancelled at {result.run_id}@{result.number}")
