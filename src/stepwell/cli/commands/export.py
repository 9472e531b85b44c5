"""`stepwell export`: a run as one file, for another store or for a person."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.confirmation import confirm, must_be_asked
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.settings import as_json, everywhere
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import document, note
from stepwell.cli.views.text import counted

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

STDOUT = "-"


@click.command("export")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Where to: default RUN.stepwell or RUN.html; - is stdout.")
@click.option("--redact", "paths", multiple=True, metavar="PATH", help="Leave out a value, such as state.token.")
@click.option("--redact-all", is_flag=True, help="Leave out all values.")
@click.option("--html", is_flag=True, help="A page for a person, which shows the run; RUN@N shows it at commit N.")
@click.option("--unsealed", is_flag=True, help="Write what is sealed so that everybody can read it.")
@as_json
@everywhere
def command(
    run: str, output: str | None, paths: tuple[str, ...], redact_all: bool, html: bool, unsealed: bool, json: bool
) -> None:
    """RUN as one file that holds everything it needs to go on elsewhere: `stepwell import` puts it into another store.

    PATH begins with state, executors, messages, questions, outputs, failures, steps, metadata or tags; after dots it
    says what in it, and * stands for any one name. A run that was redacted can be looked at, and not resumed.
    """
    if json and output == STDOUT:
        raise CommandFailed("stdout cannot hold both the file and --json", "give -o FILE", USAGE)
    without = ("*",) if redact_all else paths

    async def find(storage: BuiltInStorage) -> tuple[str, int | None]:
        _check_open(storage, unsealed)
        return await _meant(storage, run, html)

    run_id, number = on_the_store(find)
    target = output or f"{_file_name(run_id)}.{'html' if html else 'stepwell'}"
    if target != STDOUT:
        _check_target(Path(target))

    async def write(storage: BuiltInStorage) -> dict[str, object]:
        try:
            return await (_page if html else _file)(storage, run_id, number, target, without)
        except (ValueError, TypeError) as error:
            raise CommandFailed(str(error), "stepwell show RUN --json shows what there is", USAGE) from None

    told = on_the_store(write)
    if json:
        document(run_id=run_id, file=target, redacted=list(without), **told)
    elif target != STDOUT:
        note(_words(run_id, target, told))


async def _meant(storage: BuiltInStorage, run: str, html: bool) -> tuple[str, int | None]:
    from stepwell.admin.lookup import find_checkpoint, find_run

    if not html:
        return (await find_run(storage, run)).run_id, None
    at = await find_checkpoint(storage, run)
    return at.run_id, at.number


def _check_open(storage: BuiltInStorage, unsealed: bool) -> None:
    if getattr(storage.store, "is_sealed", False) and not unsealed:
        told = "this store is sealed, and everybody who has an exported file can read it"
        raise CommandFailed(told, "--unsealed asks for that", USAGE)


def _check_target(target: Path) -> None:
    if target.is_dir() or not target.parent.is_dir():
        raise CommandFailed(f"{target} cannot be written: {_why_not(target)}", "name another file with -o", USAGE)
    if target.exists() and must_be_asked(f"{target} is there already"):
        confirm(f"Replace {target}?", f"{target} was left as it is")


def _why_not(target: Path) -> str:
    return "it is a directory" if target.is_dir() else f"there is no directory {target.parent}"


async def _file(
    storage: BuiltInStorage, run_id: str, number: int | None, target: str, without: tuple[str, ...]
) -> dict[str, object]:
    from stepwell.admin.transfer.exporter import export_run, export_to

    if target == STDOUT:
        data = await export_run(storage, run_id, without=without, unsealed=True)
        sys.stdout.buffer.write(data)
        return {}
    done = await export_to(target, storage, run_id, without=without, unsealed=True)
    return {"runs": list(done.runs), "records": done.records, "missing": list(done.missing)}


async def _page(
    storage: BuiltInStorage, run_id: str, number: int | None, target: str, without: tuple[str, ...]
) -> dict[str, object]:
    from stepwell.admin.report.page import report_run, write_page

    page = await report_run(await _redacted(storage, run_id, without), run_id, number=number)
    if target == STDOUT:
        click.echo(page, nl=False)
    else:
        await asyncio.to_thread(write_page, target, page)
    return {"number": number}


async def _redacted(storage: BuiltInStorage, run_id: str, without: tuple[str, ...]) -> BuiltInStorage:
    """A storage with the run in it, from which everything private was removed."""
    if not without:
        return storage
    from stepwell.admin.transfer.exporter import export_run
    from stepwell.admin.transfer.importer import import_run
    from stepwell.stores.memory.store import InMemoryCheckpointStorage

    copy = InMemoryCheckpointStorage()
    data = await export_run(storage, run_id, without=without, unsealed=True)
    await import_run(copy, data, to_look_at=True, max_memory=None)
    return copy


def _file_name(run_id: str) -> str:
    """A name for any id: never hidden, never a path."""
    return re.sub(r"[^\w.-]+|^\.", "_", run_id)[:100]


def _words(run_id: str, target: str, told: dict[str, object]) -> str:
    if "records" not in told:
        return f"{target} shows run {run_id} at commit {told['number']}"
    runs, missing = told["runs"], told["missing"]
    assert isinstance(runs, list)
    assert isinstance(missing, list)
    more = f" and {counted(len(runs) - 1, 'run')} it needs" if len(runs) > 1 else ""
    gone = f"; not stored any more: {', '.join(missing)}" if missing else ""
    return f"{target} holds run {run_id}{more}, {counted(int(str(told['records'])), 'commit')}{gone}"
