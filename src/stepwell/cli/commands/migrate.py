"""`stepwell migrate`: a store is created, or one of an older format is brought up to date."""

from __future__ import annotations

import asyncio

import click

from stepwell.cli.failures import CommandFailed
from stepwell.cli.settings import Settings, as_json, everywhere
from stepwell.cli.stores.kinds import Format
from stepwell.cli.stores.option import meant
from stepwell.cli.views.output import document, lines
from stepwell.cli.views.text import counted


@click.command("migrate")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@as_json
@everywhere
def command(dry_run: bool, json: bool) -> None:
    """Create a store, or bring one that an older Stepwell made up to date. What is in it stays as it is.

    A Stepwell that knows only the older format cannot open the store afterwards.
    """
    kind = meant(click.get_current_context().ensure_object(Settings))
    kind.check(make=True)
    before = kind.format()
    needed = before is not None and before.found < before.known
    records = kind.records() if before is not None and needed and before.found else 0
    if not (needed and dry_run):
        asyncio.run(kind.bring_up_to_date())  # also says what is wrong with one that is newer, or not ours
    after = kind.format()
    if before is None or after is None or (needed and not dry_run and after.found != after.known):
        raise CommandFailed("the store could not be brought up to date, and was left as it is")
    if json:
        known = {"from": before.found or None, "to": before.known, "commits": records if needed else None}
        document(**known, needed=needed, dry_run=dry_run)
    else:
        lines([_words(before, records, needed=needed, dry_run=dry_run)])


def _words(before: Format, records: int, *, needed: bool, dry_run: bool) -> str:
    if not needed:
        return f"nothing to do: the store is of format {before.found}, the newest that this Stepwell knows"
    verb = "would be" if dry_run else "was"
    if not before.found:
        return f"the store {verb} created, of format {before.known}"
    return (
        f"the store {verb} brought from format {before.found} to {before.known}; it holds {counted(records, 'commit')}"
    )
