"""`stepwell migrate`: create a store, or upgrade one of an older format."""

from __future__ import annotations

import asyncio

import click

from stepwell.admin.phrases import pluralise
from stepwell.cli.failures import CommandFailed, refusals
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.locations import Format, StoreLocation
from stepwell.cli.stores.session import find_location
from stepwell.cli.views.output import print_document, print_lines
from stepwell.error_ids import ErrorId


@click.command("migrate")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--dispatch",
    type=click.Choice(["procrastinate"]),
    help="Also create the tables of this dispatcher, which is on PostgreSQL.",
)
@json_option
@common_options
def command(dry_run: bool, dispatch: str | None, json: bool) -> None:
    """Create a store, or upgrade its format.

    The runs in the store are not changed. An older version of Stepwell cannot open the store
    afterwards.
    """
    location = find_location()
    location.check(make=True)
    before = location.read_format()
    needed = before is not None and before.stored < before.supported
    records = location.count_records() if before is not None and needed and before.stored else 0
    # Even if nothing is to be done: opening raises the right error for a store that is newer or not
    # ours.
    if not (needed and dry_run):
        asyncio.run(location.upgrade())
    after = location.read_format()
    if before is None or after is None or (needed and not dry_run and after.stored != after.supported):
        raise CommandFailed(ErrorId.NOT_UPGRADED, "the store could not be upgraded and was not changed")
    creates = None if dispatch is None else asyncio.run(_create_tables(location, dry_run=dry_run))
    if json:
        formats = {"from": before.stored or None, "to": before.supported, "commits": records if needed else None}
        print_document(**formats, needed=needed, dry_run=dry_run, dispatch=creates)
    else:
        print_lines([_describe(before, records, needed=needed, dry_run=dry_run)])
        if creates is not None:
            verb = "would be" if dry_run else "were"
            tables = f"the tables of {dispatch}"
            print_lines([f"{tables} {verb} created" if creates else f"nothing to do: {tables} are there"])


async def _create_tables(location: StoreLocation, *, dry_run: bool) -> bool:
    """Create the tables of procrastinate; return whether they were missing."""
    from stepwell.worker.dispatch.choice import load_procrastinate  # lazy: it loads the engine

    async with location.open_storage() as storage:
        with refusals():
            return await load_procrastinate().migrate(storage, dry_run=dry_run)


def _describe(before: Format, records: int, *, needed: bool, dry_run: bool) -> str:
    if not needed:
        return f"nothing to do: the store has format {before.stored}, the newest that this Stepwell supports"
    verb = "would be" if dry_run else "was"
    if not before.stored:
        return f"the store {verb} created with format {before.supported}"
    commits = pluralise(records, "commit")
    return f"the store {verb} upgraded from format {before.stored} to {before.supported}; it holds {commits}"
