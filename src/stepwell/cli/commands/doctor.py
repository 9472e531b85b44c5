"""`stepwell doctor`: check a store for damage."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from stepwell import admin
from stepwell.admin.phrases import pluralise
from stepwell.cli.code_loader import load_code
from stepwell.cli.failures import FAILED, OK, exit_with
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.locations import Format
from stepwell.cli.stores.session import find_location, run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_lines, print_note
from stepwell.errors import CannotUnseal, DurabilityError, NewerFormat
from stepwell.model.visible_text import visible

_COUNTS = ("runs", "records", "bytes", "log_entries", "signals", "requests")
EVERY = 0.2  # seconds between two updates of the progress line


@click.command("doctor")
@click.argument("workflows", metavar="[MODULE:WORKFLOW]...", nargs=-1)
@json_option
@common_options
def command(workflows: tuple[str, ...], json: bool) -> None:
    """Check a store for damage.

    Reads everything in the store and reports damaged records, lists that do not match the runs, and
    runs that cannot be resumed, with the reason. Nothing is changed. With MODULE:WORKFLOW, also
    checks whether that code can continue its runs.

    Exits with 0 if nothing was found, 1 if something was.
    """
    codes = [load_code(name) for name in workflows]
    location = find_location()
    # Before the store is opened, which may upgrade it.
    location.check(make=False)
    store_format = location.read_format()
    report = _Findings(json)
    is_older = store_format is not None and store_format.stored < store_format.supported
    if store_format is not None and is_older:
        formats = f"the store has format {store_format.stored}, and this Stepwell uses {store_format.supported}"
        more = "" if location.reads_older else ", then check its records"
        report.add(admin.Finding("warning", f"{formats}; upgrade it with `stepwell migrate`{more}"))

    async def work(storage: BuiltInStorage) -> None:
        # Without its keys every record of a store would be a finding.
        await _check_readable(storage)
        line = _StatusLine()
        targets = [await code.build_workflow() for code in codes]
        async for item in admin.examine(storage, workflows=targets, progress=line.show):
            # A finding goes to stdout: the progress line must not be in its way.
            line.clear()
            if isinstance(item, admin.Examined):
                report.summary = item
            else:
                report.add(item)

    # Opening a store of an older format would upgrade it, and a check must not change anything.
    if not is_older or location.reads_older:
        run_on_store(work)
    report.finish(store_format)


async def _check_readable(storage: BuiltInStorage) -> None:
    """Raise CannotUnseal if the keys are missing, NewerFormat if the store is too new."""
    try:
        for run in await storage._store.runs(limit=1):
            await storage._store.read(run.run_id)
    except (CannotUnseal, NewerFormat):
        raise
    except DurabilityError:  # damage: a finding, not a reason to stop
        return


class _StatusLine:
    """A progress line on a terminal, rewritten in place. Does nothing elsewhere."""

    def __init__(self) -> None:
        # A dumb terminal cannot return to the start of the line.
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next, self._width = 0.0, 0

    def show(self, examined: admin.Examined) -> None:
        if not self._is_shown or time.monotonic() < self._next:
            return
        rate = f"{examined.records_per_second:,.0f} records/s"
        text = f"{pluralise(examined.runs, 'run')}, {examined.records:,} records, {rate}"
        click.echo(f"\r{text:<{self._width}}", nl=False, err=True)
        self._next, self._width = time.monotonic() + EVERY, len(text)

    def clear(self) -> None:
        if self._width:
            click.echo(f"\r{'':<{self._width}}\r", nl=False, err=True)
            self._width = 0


class _Findings:
    """The findings, printed as they come, or collected for one JSON document."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._findings: list[admin.Finding] = []
        self.summary: admin.Examined | None = None

    def add(self, finding: admin.Finding) -> None:
        self._findings.append(finding)
        if not self._json:
            at = "" if finding.number is None else f"@{finding.number}"
            place = "" if finding.run_id is None else f"run {finding.run_id}{at}: "
            print_lines([visible(f"{finding.severity}: {place}{finding.what}")])

    def finish(self, store_format: Format | None) -> None:
        # A store of an older format that cannot be read has no summary, but it has a finding.
        count = len(self._findings)
        if self._json:
            formats = None if store_format is None else {"found": store_format.stored, "known": store_format.supported}
            print_document(
                healthy=not count, format=formats, findings=self._findings, looked_at=self._summary_to_dict()
            )
        elif self.summary is not None:
            print_lines([_summarise(self.summary, count)])
            print_note(f"{self.summary.seconds:.2f} s, {self.summary.records_per_second:,.0f} records/s")
        exit_with(FAILED if count else OK)

    def _summary_to_dict(self) -> dict[str, Any] | None:
        examined = self.summary
        if examined is None:
            return None
        return {
            **{name: getattr(examined, name) for name in _COUNTS},
            "seconds": round(examined.seconds, 3),
            "records_per_second": round(examined.records_per_second),
            "formats": dict(examined.formats),
            "statuses": dict(examined.statuses),
        }


def _summarise(examined: admin.Examined, count: int) -> str:
    looked = f"{pluralise(examined.runs, 'run')}, {pluralise(examined.records, 'record')}, {examined.bytes:,} bytes"
    where = ", ".join(f"{number} {word}" for word, number in sorted(examined.statuses.items()))
    verdict = "healthy" if not count else pluralise(count, "finding")
    return f"{verdict}: {looked}" + (f" ({where})" if where else "")
