"""`stepwell doctor`: is everything in a store as it must be?"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.code_loader import code_of
from stepwell.cli.failures import FAILED, OK, ended
from stepwell.cli.settings import Settings, as_json, everywhere
from stepwell.cli.stores.kinds import Format, Kind
from stepwell.cli.stores.option import meant
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import document, lines, note
from stepwell.cli.views.text import counted, printable, status_word

if TYPE_CHECKING:
    from stepwell.admin.doctor.examination import Examined, Finding
    from stepwell.storage.built_in_storage import BuiltInStorage

EVERY = 0.2  # seconds; so often the line that tells how far it is is written anew


@click.command("doctor")
@click.argument("workflows", metavar="[MODULE:WORKFLOW]...", nargs=-1)
@as_json
@everywhere
def command(workflows: tuple[str, ...], json: bool) -> None:
    """Read everything in a store, and tell what is not as it must be: what is damaged, lists that do not agree with the
    runs, and runs that cannot go on, and why. Nothing is changed.

    With MODULE:WORKFLOW it is found out, too, whether that code could go on with its runs. Ends with 0 if nothing was
    found, and with 1 if something was.
    """
    codes = [code_of(name) for name in workflows]
    kind = meant(click.get_current_context().ensure_object(Settings))
    kind.check(make=False)
    known = kind.format()
    told = _Told(json)
    if _is_older(known):
        told.finding("warning", _older_words(kind, known))

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.admin.doctor.examination import Examined, examine

        await _check_readable(storage)
        line = _Line()
        given = [await code.workflow() for code in codes]
        async for one in examine(storage, workflows=given, progress=line.show):
            line.clear()
            if isinstance(one, Examined):
                told.seen = one
            else:
                told.found(one)

    if not _is_older(known) or kind.reads_older:
        on_the_store(work)
    told.finish(known)


def _is_older(known: Format | None) -> bool:
    return known is not None and known.found < known.known


def _older_words(kind: Kind, known: Format | None) -> str:
    assert known is not None
    told = f"the store is of format {known.found}, and this Stepwell works with {known.known}: stepwell migrate"
    return told if kind.reads_older else f"{told}; its records can be looked at after that"


async def _check_readable(storage: BuiltInStorage) -> None:
    """Raises CannotUnseal or NewerFormat if the keys of the store were not given, or it is too new: then nothing can be
    said of what is in it. Whatever else is wrong is a finding."""
    from stepwell.errors import CannotUnseal, DurabilityError, NewerFormat

    try:
        for run in await storage.store.runs(limit=1):
            await storage.store.head(run.run_id)
    except (CannotUnseal, NewerFormat):
        raise
    except DurabilityError:
        return


class _Line:
    """One line on a terminal that says how far it is, written again and again. Elsewhere nothing."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next, self._width = 0.0, 0

    def show(self, seen: Examined) -> None:
        if not self._is_shown or time.monotonic() < self._next:
            return
        text = f"{counted(seen.runs, 'run')}, {seen.records:,} records, {seen.records_per_second:,.0f} records/s"
        click.echo(f"\r{text:<{self._width}}", nl=False, err=True)
        self._next, self._width = time.monotonic() + EVERY, len(text)

    def clear(self) -> None:
        if self._width:
            click.echo(f"\r{'':<{self._width}}\r", nl=False, err=True)
            self._width = 0


class _Told:
    """What was found, told as it comes, or kept for one document."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._findings: list[dict[str, Any]] = []
        self._count = 0
        self.seen: Examined | None = None

    def found(self, one: Finding) -> None:
        self.finding(one.severity, one.what, one.run_id, one.number)

    def finding(self, severity: str, what: str, run_id: str | None = None, number: int | None = None) -> None:
        self._count += 1
        if self._json:
            self._findings.append({"severity": severity, "what": what, "run_id": run_id, "number": number})
            return
        place = "" if run_id is None else f"run {run_id}{'' if number is None else f'@{number}'}: "
        lines([printable(f"{severity}: {place}{what}")])

    def finish(self, known: Format | None) -> None:
        code = FAILED if self._count else OK
        if self._json:
            formats = None if known is None else {"found": known.found, "known": known.known}
            document(healthy=not self._count, format=formats, findings=self._findings, looked_at=self._looked_at())
            ended(code)
        if self.seen is not None:
            lines([_summary(self.seen, self._count)])
            note(f"{self.seen.seconds:.2f} s, {self.seen.records_per_second:,.0f} records/s")
        ended(code)

    def _looked_at(self) -> dict[str, Any] | None:
        seen = self.seen
        if seen is None:
            return None
        counts = {name: getattr(seen, name) for name in ("runs", "records", "bytes", "memory", "letters", "questions")}
        rate = {"seconds": round(seen.seconds, 3), "records_per_second": round(seen.records_per_second)}
        return {**counts, **rate, "formats": dict(seen.formats), "statuses": dict(seen.statuses)}


def _summary(seen: Examined, count: int) -> str:
    looked = f"{counted(seen.runs, 'run')}, {counted(seen.records, 'record')}, {seen.bytes:,} bytes"
    where = ", ".join(f"{number} {status_word(status)}" for status, number in sorted(seen.statuses.items()))
    verdict = "healthy" if not count else counted(count, "finding")
    return f"{verdict}: {looked}" + (f" ({where})" if where else "")
