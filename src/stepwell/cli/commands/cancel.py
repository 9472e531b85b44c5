"""`stepwell cancel`: stop a run on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.settings import as_json, everywhere
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import document, note
from stepwell.cli.views.text import status_word
from stepwell.model.superstep import is_text

if TYPE_CHECKING:
    from stepwell.admin.cancellation import Cancelled
    from stepwell.storage.built_in_storage import BuiltInStorage


@click.command("cancel")
@click.argument("run")
@click.option("--reason", metavar="TEXT", help="Why; it becomes part of the history of the run.")
@as_json
@everywhere
def command(run: str, reason: str | None, json: bool) -> None:
    """Stop RUN on purpose: it ends cancelled at its last commit, and `stepwell resume` goes on with it from there.

    A process that drives the run is told to stop, and this waits until it has; whoever interrupts the waiting leaves
    the wish behind. A run that is done or cancelled already stays as it is, which is no error.
    """

    if reason is not None and not is_text(reason):
        raise click.BadParameter("that is no text in UTF-8", param_hint="--reason")

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.admin.cancellation import cancel
        from stepwell.cli.forms.answers import refusals

        with refusals():  # of a run that works for another
            ended = await cancel(storage, run, reason=reason, told=_waiting)
        _tell(ended, json)

    on_the_store(work)


def _waiting(driver: str) -> None:
    note(f"{driver} drives it and was told to stop; waiting until it has")


def _tell(ended: Cancelled, json: bool) -> None:
    if json:
        known = {"run_id": ended.run_id, "status": ended.status.value, "number": ended.number}
        document(**known, changed=ended.changed, driver=ended.driver)
        return
    word = status_word(ended.status.value)
    if not ended.changed:
        note(f"run {ended.run_id!r} is {word} already, and stays so")
    elif word != "cancelled":
        note(f"run {ended.run_id!r} was {word} before it could be stopped")
    else:
        note(f"run {ended.run_id!r} is cancelled at {ended.run_id}@{ended.number}")
