"""`stepwell import`: import an exported run into a store."""

# ruff: noqa: N999 - the module has the name of its command, by which `app` finds it

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stepwell import admin
from stepwell.admin.phrases import pluralise
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.error_ids import ErrorId
from stepwell.errors import CannotUnseal, CheckpointCorrupt, CodecError
from stepwell.model.visible_text import visible

STDIN = "-"
HINTS = {
    "redacted": "--inspect-only imports it anyway; use a separate store for it",
    "there": "--as NEW imports the run under another id, --store names another store",
    "busy": "import it without --as, then use stepwell fork",
    "large": "if you trust the file, raise the limit with --max-memory",
}


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--as", "name", metavar="NEW", help="Import the run under this id.")
@click.option("--inspect-only", is_flag=True, help="Allow a redacted run, which can be inspected, but not resumed.")
@click.option(
    "--max-memory",
    metavar="MIB",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Refuse a file that needs more memory to read.",
)
@json_option
@common_options
def command(file: str, name: str | None, inspect_only: bool, max_memory: int, json: bool) -> None:
    """Import an exported run into a store.

    FILE was written by `stepwell export`; - reads from stdin. The run continues exactly where it
    was. The whole file is checked before anything is written, and no stored run is overwritten. A
    missing store is created.
    """
    # stdin is read before an event loop runs: reading would block it.
    data = _read_if_stdin(file)

    async def work(storage: BuiltInStorage) -> None:
        limit = max_memory * 2**20
        imported = await _import(storage, file, data, run_id=name, inspect_only=inspect_only, max_memory=limit)
        if json:
            print_document(
                run_id=imported.run_id,
                runs=list(imported.runs),
                records=imported.records,
                redacted=list(imported.redacted),
                missing=list(imported.missing),
            )
        else:
            print_lines([visible(imported.run_id)])
            print_note(_describe(imported))

    run_on_store(work, make=True)


def _read_if_stdin(file: str) -> bytes | None:
    """Return what stdin holds; None for a file, which is read piece by piece later."""
    if file == STDIN:
        return sys.stdin.buffer.read()
    # Checked before the store is opened, so that a wrong file name does not create an empty store.
    if not Path(file).exists():
        raise CommandFailed(ErrorId.WRONG_FILE, f"there is no file {file}", code=NOT_FOUND)
    if Path(file).is_dir():
        raise CommandFailed(ErrorId.WRONG_FILE, f"{file} is a directory, and an exported run is a file", code=USAGE)
    return None


async def _import(storage: BuiltInStorage, file: str, data: bytes | None, **options: Any) -> admin.Imported:
    try:
        if data is not None:
            return await admin.import_run(storage, data, **options)
        return await admin.import_from(file, storage, **options)
    except CannotUnseal:  # a CheckpointCorrupt, but about the keys of the store, not about the file
        raise
    except (CheckpointCorrupt, CodecError) as error:
        raise CommandFailed(ErrorId.WRONG_FILE, str(error), "nothing was imported", USAGE) from error
    except admin.ImportRefused as refused:
        raise CommandFailed(refused.id, refused.what, HINTS[refused.reason], USAGE) from refused


def _describe(imported: admin.Imported) -> str:
    if not imported.runs:
        return f"run {imported.run_id} is already in the store, with the same content"
    more = f" and {pluralise(len(imported.runs) - 1, 'run')} it needs" if len(imported.runs) > 1 else ""
    gone = f"; not in the file: {', '.join(imported.missing)}" if imported.missing else ""
    return f"imported run {imported.run_id}{more}, {pluralise(imported.records, 'commit')}{gone}"
