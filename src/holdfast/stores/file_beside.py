"""What lies beside the records of a run: its mail, its open questions, and when it wants to be woken.

    <run>/mail/000012-<key>.json      mail, numbered as it was posted
    <run>/mail/000012-<key>.consumed  mail that a record has consumed: a tombstone
    <run>/open.json                   what is open

A commit happens when its record gets its name. What goes along with it is written to `open.json` before, as
what is so `next`: it holds from the moment that the record is there. So a writer may be killed anywhere, and
whoever comes next reads all of its commit or none. Mail is renamed after the commit, by it or by the next one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..core.errors import CheckpointCorrupt
from ..durable.ports import Along, Entry, Pending, Wake
from . import file_layout as disk
from .file_layout import FORMAT, MAIL, OPEN, Stored

LETTER_NAME = re.compile(r"(\d{6,})-(.+)\.(json|consumed)", re.DOTALL)


class Letter(Stored):
    """One piece of mail as it is written to its file."""

    key: str
    body: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the name of a letter's file tells."""

    number: int
    is_consumed: bool
    path: Path


class Open(msgspec.Struct, frozen=True):
    """What a run waits for."""

    questions: tuple[Pending, ...] = ()
    wake: Wake | None = None

    def after(self, entry: Entry, along: Along) -> Open:
        asked = {question.request_id: question for question in along.asked}
        kept = [q for q in self.questions if q.request_id not in along.closed and q.request_id not in asked]
        wake = None if along.wake is None else Wake(entry.run_id, entry.workflow, along.wake)
        return Open((*kept, *asked.values()), wake)


NOTHING_OPEN = Open()


class Next(msgspec.Struct, frozen=True):
    """What is so as soon as a record is there."""

    record: str  # the name of its file
    seq: int | None  # set if it replaces a file of the same name, to tell them apart
    consumed: tuple[str, ...]
    open: Open

    def has_come(self, folder: Path) -> bool:
        path = folder / self.record
        return path.exists() and (self.seq is None or disk.read_sheet(path).seq == self.seq)


class Page(Stored):
    """`open.json`. It tells of the last write only: whoever writes next turns what has come into what is."""

    open: Open
    next: Next | None = None
    leaving: bool = False  # when the last record is gone, so is everything beside it


@dataclass(frozen=True, slots=True)
class Seen:
    """What is so beside the records of a run at one moment."""

    open: Open = NOTHING_OPEN
    consumed: tuple[str, ...] = ()  # mail that may not be marked yet
    is_gone: bool = False  # nothing that still lies there counts


def look(folder: Path) -> Seen:
    """What is so, whatever a killed writer left. Needs no lock."""
    while True:
        page = _page_in(folder)
        if page is None:
            return Seen()
        if not disk.records_in(folder):
            return Seen(is_gone=page.leaving)
        if page.next is None:
            return Seen(page.open)
        if page.next.has_come(folder):
            return Seen(page.next.open, page.next.consumed)
        if _page_in(folder) == page:  # else the record may have come and gone between our two looks
            return Seen(page.open)


def recover(folder: Path) -> Open:
    """What is open, after finishing what a killed writer left. Only under the lock."""
    seen = look(folder)
    if seen.is_gone:
        forget(folder)
    elif not disk.records_in(folder):  # it was killed before the first record
        (folder / OPEN).unlink(missing_ok=True)
    _mark(folder, seen.consumed)
    return seen.open


def announce(folder: Path, entry: Entry, seq: int, now: Open, after: Open, consumed: tuple[str, ...]) -> None:
    """Write down what will be so when the record of that entry and seq has its name. `now` is from `recover`."""
    name = disk.record_name(entry.number, entry.checkpoint_id)
    if after != now or consumed:
        replaces = (folder / name).exists()
        _turn(folder, Page(FORMAT, now, Next(name, seq if replaces else None, consumed, after)))
    else:
        rest(folder, now)


def rest(folder: Path, now: Open) -> None:
    """Make what is open independent of any record: one is about to be written or removed. `now` is from `recover`."""
    page = _page_in(folder)
    if page is not None and (page.next is not None or page.leaving):
        _turn(folder, Page(FORMAT, now))


def step_back(folder: Path, newest: Path, now: Open, after: Open) -> None:
    """Let `after` be open as soon as the newest record is gone, which is about to be removed. `now` is from `recover`.

    Until then the page says it the other way round: `after` is so, and `now` as long as that record is there.
    """
    if after != now:
        _turn(folder, Page(FORMAT, after, Next(newest.name, None, (), now)))
    else:
        rest(folder, now)


def take_leave(folder: Path, now: Open) -> None:
    """Let everything go together with the last record, which is about to be removed. `now` is from `recover`."""
    if now != NOTHING_OPEN or _letters_in(folder) or disk.memos_in(folder):
        _turn(folder, Page(FORMAT, now, leaving=True))
    else:
        rest(folder, now)


def _turn(folder: Path, page: Page) -> None:
    if (folder / MAIL).is_dir():
        disk.sync_folder(folder / MAIL)  # the marks must not be lost with the page that told of them
    disk.write(folder / OPEN, page)


def finish(folder: Path, along: Along) -> None:
    """Tidy up after a commit. If a crash prevents it, the next writer does it."""
    _mark(folder, along.consumed)
    if along.settled is not None:
        disk.forget(folder, along.settled)


def forget(folder: Path) -> None:
    """Delete all that lies beside the records."""
    disk.sync_folder(folder)  # no power failure may bring the last record back without it
    disk.forget(folder)
    for letter in _letters_in(folder).values():
        letter.path.unlink()
    if (folder / MAIL).is_dir() and not os.listdir(folder / MAIL):
        (folder / MAIL).rmdir()
    disk.sync_folder(folder)
    (folder / OPEN).unlink(missing_ok=True)  # last: as long as it is there the rest does not count


# -------------------------------------------------------------------- mail


def has_mail(folder: Path) -> bool:
    return bool(_letters_in(folder))


def post(folder: Path, key: str, body: msgspec.Raw) -> bool:
    """Leave mail under the lock, after `recover`; False if the key was ever used."""
    if disk.safe_name(key) in _letters_in(folder):
        return False
    _write(folder, key, body, "json")
    return True


def unread(folder: Path) -> list[tuple[str, bytes]]:
    """The mail that is not consumed, oldest first."""
    found = [_read_letter(path) for path in waiting(folder)]
    return [(letter.key, disk.compact(letter.body)) for letter in found]


def waiting(folder: Path) -> list[Path]:
    """The files of the mail that is not consumed, oldest first."""
    seen = look(folder)
    done = {disk.safe_name(key) for key in seen.consumed}
    letters = {} if seen.is_gone else _letters_in(folder)
    found = [letter.path for name, letter in letters.items() if not letter.is_consumed and name not in done]
    if not found and not folder.is_dir():
        raise FileNotFoundError(2, "the run was moved while we looked", str(folder))
    return found


def _mark(folder: Path, consumed: tuple[str, ...]) -> None:
    letters = _letters_in(folder) if consumed else {}
    keys = {disk.safe_name(key): key for key in consumed}
    unmarked = [name for name in keys if name not in letters or not letters[name].is_consumed]
    if unmarked:
        disk.sync_folder(folder)  # no power failure may take the record back and leave the mark
    for name in unmarked:
        if name in letters:
            letters[name].path.rename(letters[name].path.with_suffix(".consumed"))
        else:  # nobody posted it, and nobody will
            _write(folder, keys[name], msgspec.Raw(b"null"), "consumed")


def _write(folder: Path, key: str, body: msgspec.Raw, suffix: str) -> None:
    number = max((envelope.number for envelope in _letters_in(folder).values()), default=-1) + 1
    disk.make_folder(folder / MAIL)
    disk.write(folder / MAIL / f"{number:06d}-{disk.safe_name(key)}.{suffix}", Letter(FORMAT, key, body))


def _letters_in(folder: Path) -> dict[str, Envelope]:
    """All mail that was ever posted, oldest first, by the safe names of the keys."""
    try:
        matches = [LETTER_NAME.fullmatch(name) for name in os.listdir(folder / MAIL)]
    except FileNotFoundError:
        return {}
    found = sorted((int(m[1]), m[2], m[3] == "consumed", m[0]) for m in matches if m)
    return {key: Envelope(number, is_consumed, folder / MAIL / name) for number, key, is_consumed, name in found}


def _read_letter(path: Path) -> Letter:
    letter = disk.read(path, Letter)
    if path.name.partition("-")[2] != f"{disk.safe_name(letter.key)}.json":
        raise CheckpointCorrupt(f"{path} is not what its name says: it holds {letter.key!r}; put it back or delete it")
    return letter


def _page_in(folder: Path) -> Page | None:
    try:
        page = disk.read(folder / OPEN, Page)
    except FileNotFoundError:
        return None
    for state in (page.open, *([page.next.open] if page.next else [])):
        for run_id in (*(q.run_id for q in state.questions), *([state.wake.run_id] if state.wake else [])):
            if disk.safe_name(run_id) != folder.name:
                raise CheckpointCorrupt(f"{folder / OPEN} is that of run {run_id!r}; put it back where it belongs")
    return page
