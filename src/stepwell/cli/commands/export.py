"""`stepwell export`: export a run to a file, for another store or for a person."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import stepwell
from stepwell import admin
from stepwell.admin.phrases import pluralise
from stepwell.cli import server_runs
from stepwell.cli.completion import complete_runs
from stepwell.cli.confirmation import confirm, needs_confirmation
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.server_client import ServerClient, find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_note
from stepwell.error_ids import ErrorId

STDOUT = "-"


@click.command("export")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("-o", "--output", metavar="FILE", help="The file. Default: RUN.stepwell or RUN.html; - is stdout.")
@click.option("--redact", "paths", multiple=True, metavar="PATH", help="Leave out a value, such as state.token.")
@click.option("--redact-all", is_flag=True, help="Leave out all values.")
@click.option("--html", is_flag=True, help="Write an HTML report for people; RUN@N shows the run at commit N.")
@click.option("--unsealed", is_flag=True, help="Export an encrypted store; the file will not be encrypted.")
@json_option
@common_options
def command(
    run: str, output: str | None, paths: tuple[str, ...], redact_all: bool, html: bool, unsealed: bool, json: bool
) -> None:
    """Export a run to a file.

    The file holds everything that RUN needs to be resumed elsewhere: `stepwell import` puts it into
    another store.

    PATH starts with state, executors, messages, requests, outputs, failures, steps, metadata or
    tags, followed by names separated by dots; * matches any name. A redacted run can be inspected,
    but not resumed.
    """
    if json and output == STDOUT:
        raise CommandFailed(ErrorId.WRONG_USAGE, "stdout cannot hold both the file and --json", "pass -o FILE", USAGE)
    without = ("*",) if redact_all else paths

    # The store is opened twice: between the two, a person may be asked, which must not happen in an
    # event loop.
    server = find_server()
    run_id, number = _find(run, html, unsealed) if server is None else _find_on_server(server, run, html)
    target = output or f"{_file_name(run_id)}.{'html' if html else 'stepwell'}"
    if target != STDOUT:
        _check_target(Path(target))
    data = None if server is None else _read_from_server(server, run_id, without, unsealed)
    with _explaining():
        if data is None:
            write = _write_report if html else _write_file
            facts = run_on_store(lambda storage: write(storage, run_id, number, target, without))
        elif html:
            import asyncio  # lazy: 15 ms

            facts = asyncio.run(_report_on_export(data, run_id, number, target))
        else:
            facts = _write_data(data, target)
    if json:
        print_document(run_id=run_id, file=target, redacted=list(without), **facts)
    elif target != STDOUT:
        print_note(_describe(run_id, target, facts))


def _find(run: str, html: bool, unsealed: bool) -> tuple[str, int | None]:
    """Return the run that is meant and, for a report, the commit."""

    async def find(storage: BuiltInStorage) -> tuple[str, int | None]:
        if getattr(storage._store, "is_sealed", False) and not unsealed:
            raise _sealed_error()
        if not html:
            return (await admin.find_run(storage, run)).run_id, None
        at = await admin.find_checkpoint(storage, run)
        return at.run_id, at.number

    return run_on_store(find)


def _find_on_server(server: ServerClient, run: str, html: bool) -> tuple[str, int | None]:
    if html:
        at = server_runs.find_checkpoint(server, run)
        return at.run_id, at.number
    return server.get("runs", run, "checkpoints", limit=1)["run_id"], None


def _read_from_server(server: ServerClient, run_id: str, without: tuple[str, ...], unsealed: bool) -> bytes:
    with _explaining():
        try:
            return server.read("runs", run_id, "export", without=list(without), unsealed=unsealed)
        except stepwell.DefinitionError:
            raise _sealed_error() from None


def _sealed_error() -> CommandFailed:
    problem = "this store is encrypted, and an exported file is not"
    return CommandFailed(ErrorId.UNSEALED_EXPORT, problem, "--unsealed exports it anyway", USAGE)


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:  # a path of --redact that matches nothing
        raise CommandFailed(
            ErrorId.WRONG_USAGE, str(error), "stepwell show RUN --json shows the values", USAGE
        ) from None


def _check_target(target: Path) -> None:
    if target.is_dir() or not target.parent.is_dir():
        reason = "it is a directory" if target.is_dir() else f"there is no directory {target.parent}"
        raise CommandFailed(ErrorId.WRONG_FILE, f"cannot write {target}: {reason}", "name another file with -o", USAGE)
    if target.exists() and needs_confirmation(f"{target} already exists", "--yes replaces it, -o names another file"):
        confirm(f"Replace {target}?", f"{target} was not changed")


async def _write_file(
    storage: BuiltInStorage, run_id: str, number: int | None, target: str, without: tuple[str, ...]
) -> dict[str, Any]:
    if target == STDOUT:
        return _write_data(await admin.export_run(storage, run_id, without=without, unsealed=True), target)
    return _facts_of(await admin.export_to(target, storage, run_id, without=without, unsealed=True))


def _write_data(data: bytes, target: str) -> dict[str, Any]:
    from stepwell.admin.transfer.exporter import describe_export, writing  # lazy: 60 ms

    if target == STDOUT:
        # Bytes, past the text layer: the file is compressed.
        sys.stdout.buffer.write(data)
        return {}
    with writing(Path(target)) as file:
        file.write(data)
    return _facts_of(describe_export(data))


def _facts_of(exported: admin.Exported) -> dict[str, Any]:
    return {"runs": list(exported.runs), "records": exported.records, "missing": list(exported.missing)}


async def _write_report(
    storage: BuiltInStorage, run_id: str, number: int | None, target: str, without: tuple[str, ...]
) -> dict[str, Any]:
    if without:
        # Through an exported file, because exporting is the one place that knows how to redact.
        data = await admin.export_run(storage, run_id, without=without, unsealed=True)
        return await _report_on_export(data, run_id, number, target)
    if target == STDOUT:
        click.echo(await admin.report_run(storage, run_id, number=number), nl=False)
    else:
        await admin.report_to(target, storage, run_id, number=number)
    return {"number": number}


async def _report_on_export(data: bytes, run_id: str, number: int | None, target: str) -> dict[str, Any]:
    storage = stepwell.InMemoryCheckpointStorage()
    await admin.import_run(storage, data, inspect_only=True, max_memory=None)
    return await _write_report(storage, run_id, number, target, ())


def _file_name(run_id: str) -> str:
    """Return a file name for any run id: never hidden, never a path."""
    # Long ids are cut, because file systems limit the length of a name.
    return re.sub(r"[^\w.-]+|^\.", "_", run_id)[:100]


def _describe(run_id: str, target: str, facts: dict[str, Any]) -> str:
    if "records" not in facts:
        return f"{target} shows run {run_id} at commit {facts['number']}"
    others = len(facts["runs"]) - 1
    more = f" and {pluralise(others, 'run')} it needs" if others else ""
    gone = f"; no longer stored: {', '.join(facts['missing'])}" if facts["missing"] else ""
    return f"{target} holds run {run_id}{more}, {pluralise(facts['records'], 'commit')}{gone}"
