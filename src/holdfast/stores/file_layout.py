"""How a store looks on disk: the names of files and folders, what is in them, and how they are written safely.

    <root>/holdfast.json                              the mark of a store, with the version of its format
    <root>/<workflow>/<run>/000012-<checkpoint>.json  one record
    <root>/<workflow>/<run>/memory/000012-<key>.json  what was finished inside a superstep under way
    <root>/<workflow>/<run>/mail/000012-<key>.json    mail; see file_mail
    <root>/<workflow>/<run>/open.json                 open questions, and when to wake the run; see file_beside
    <root>/<workflow>/<run>/owner.json                who drives the run
    <root>/.new/<run>/                                a run that has no record yet

Names that begin with a dot are never records: locks (see file_lock; nothing of what is in them is stored), and
files that a killed writer left half written.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from ..core.errors import CheckpointCorrupt, StoreUnavailable
from ..durable.ownership import Lease, Owner
from ..durable.ports import Entry, Record

FORMAT = 2  # 1 had neither mail nor open.json; its files are read as they are
MARK, OWNER, OPEN, MEMORY, MAIL = "holdfast.json", "owner.json", "open.json", "memory", "mail"
LOCK, NEW, TEMPORARY = ".lock", ".new", ".tmp-"

RECORD_NAME = re.compile(r"(\d{6,})-.*\.json")
PLAIN = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,99}")
_counter = itertools.count()


class Stored(msgspec.Struct):
    """What is written to a file of its own."""

    format: int


class Mark(Stored):
    """What tells that a directory is a store."""


class Sheet(Stored):
    """A record as it is written to its file."""

    run_id: str
    number: int
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str
    frame: bool
    outputs: bool
    seq: int  # when it was committed, in nanoseconds: the order of commits over all runs
    body: msgspec.Raw

    @property
    def entry(self) -> Entry:
        return Entry(
            self.run_id,
            self.number,
            self.checkpoint_id,
            self.workflow,
            self.status,
            self.iteration,
            self.at,
            self.frame,
            self.outputs,
        )

    @property
    def record(self) -> Record:
        return Record(self.entry, compact(self.body))


class Memo(Stored):
    """One remembered thing as it is written to its file."""

    key: str
    body: msgspec.Raw


class Claim(Stored):
    """A lease as it is written to its file."""

    host: str
    machine: str
    pid: int
    started: str
    drive: str
    until: float

    @property
    def lease(self) -> Lease:
        return Lease(Owner(self.host, self.machine, self.pid, self.started, self.drive), self.until)


S = TypeVar("S", bound=Stored)


def safe_name(text: str) -> str:
    """A file name for any text: never hidden, never a path, and never the same for two texts.

    Plain lower-case names stay as they are. Others get a hash behind a `~`, which no plain name contains;
    capitals count as others because some file systems cannot tell them from small letters.
    """
    if PLAIN.fullmatch(text) and text != MARK:  # the marker lies beside the folders of the workflows
        return text
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:60]
    return f"{readable}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def record_name(number: int, checkpoint_id: str) -> str:
    return f"{number:06d}-{safe_name(checkpoint_id)}.json"


def memo_name(place: int, key: str) -> str:
    return f"{place:06d}-{safe_name(key)}.json"


def compact(body: bytes | msgspec.Raw) -> bytes:
    """JSON without white space. Numbers, strings and the order of keys stay as they were written."""
    return msgspec.json.format(bytes(body), indent=-1)


def sheet_of(record: Record, seq: int) -> Sheet:
    e, body = record.entry, msgspec.Raw(compact(record.body))
    return Sheet(
        FORMAT,
        e.run_id,
        e.number,
        e.checkpoint_id,
        e.workflow,
        e.status,
        e.iteration,
        e.at,
        e.frame,
        e.outputs,
        seq,
        body,
    )


def claim_of(owner: Owner, until: float) -> Claim:
    return Claim(FORMAT, owner.host, owner.machine, owner.pid, owner.started, owner.drive, until)


def read_sheet(path: Path) -> Sheet:
    """The record in that file. Raises CheckpointCorrupt unless it is the record that its name and folders say."""
    sheet = read(path, Sheet)
    e = sheet.entry
    told = Path(safe_name(e.workflow), safe_name(e.run_id), record_name(e.number, e.checkpoint_id))
    if path.parts[-3:] != told.parts:
        raise CheckpointCorrupt(
            f"{path} is not what its name says: it holds commit {e.number} ({e.checkpoint_id}) "
            f"of run {e.run_id!r} of workflow {e.workflow!r}; put it back where it belongs"
        )
    return sheet


def read_memo(path: Path, place: int) -> Memo:
    memo = read(path, Memo)
    if path.name != memo_name(place, memo.key):
        raise CheckpointCorrupt(f"{path} is not what its name says: it holds {memo.key!r}; put it back or delete it")
    return memo


def read(path: Path, kind: type[S]) -> S:
    """What is in a file. Raises CheckpointCorrupt, naming it, if that cannot be trusted; FileNotFoundError as it is."""
    try:
        data = path.read_bytes()
        data.decode()
        found = msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # says nothing about this file
            raise
        raise CheckpointCorrupt(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointCorrupt(
            f"{path} is damaged: {error}; restore it from a backup, or delete it to do without it"
        ) from error
    if found.format > FORMAT:
        raise StoreUnavailable(
            f"{path} was written by a newer Holdfast (format {found.format}, this one knows {FORMAT}); "
            f"it was left as it is. Upgrade Holdfast to use it"
        )
    return found


def write(path: Path, content: Stored, *, stamp: int | None = None) -> None:
    """Put the content in place of whatever is there: after a crash it is wholly there or not at all.

    `stamp` becomes the time of modification, in nanoseconds.
    """
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    half = path.with_name(f"{TEMPORARY}{os.getpid()}-{next(_counter)}")
    try:
        with open(half, "xb") as file:
            file.write(data)
            file.flush()
            if stamp is not None:
                os.utime(file.fileno(), ns=(stamp, stamp))
            os.fsync(file.fileno())
        os.replace(half, path)
    except BaseException:
        with suppress(OSError):
            half.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):  # another process was faster; a file of that name fails at the next use
        folder.mkdir()
    sync_folder(folder.parent)


class Records(Mapping[int, Path]):
    """The record files of a run by number, lowest first, from their names alone."""

    def __init__(self, folder: Path, names: dict[int, str]) -> None:
        self._folder, self.names = folder, names

    def __getitem__(self, number: int) -> Path:
        return self._folder / self.names[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def records_in(folder: Path) -> Records:
    """The records of a run. Raises CheckpointCorrupt if a file has a name that tells nothing."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # the run is gone
        return Records(folder, {})
    found: dict[int, str] = {}
    for name in names:
        match = RECORD_NAME.fullmatch(name)
        if match:
            number = int(match[1])
            found[number] = _later(folder, found[number], name) if number in found else name
        elif name.endswith(".json") and name not in (OWNER, OPEN) and not name.startswith(".") and LOCK in names:
            raise CheckpointCorrupt(f"{folder / name} does not have the name of a record; move it elsewhere")
    return Records(folder, dict(sorted(found.items())))


def has_records(folder: Path) -> bool:
    """Whether a run has any, found out without listing them all."""
    try:
        with os.scandir(folder) as found:
            return any(RECORD_NAME.fullmatch(entry.name) for entry in found)
    except FileNotFoundError:
        return False


def _later(folder: Path, one: str, other: str) -> str:
    """Of two files of one number, the one that was to replace the other when its writer was killed."""
    return max(one, other, key=lambda name: (folder / name).stat().st_mtime_ns)


def sweep(folder: Path) -> None:
    """Delete what killed writers left: half-written files, and records that were replaced. Only under the lock."""
    stored = records_in(folder)
    kept = set(stored.names.values())
    for name in os.listdir(folder):
        match = RECORD_NAME.fullmatch(name) if name not in kept else None
        if match:
            read_sheet(stored[int(match[1])])  # a file that somebody else put there must not cost the true one
        if match or name.startswith(TEMPORARY):
            (folder / name).unlink()
    for below in (folder / MEMORY, folder / MAIL):
        with suppress(FileNotFoundError):
            for name in os.listdir(below):
                if name.startswith(TEMPORARY):
                    (below / name).unlink()


def newest_in(folder: Path) -> Sheet | None:
    """The record of a run that was committed last: its head, or one that was put after the head was written."""
    stored = records_in(folder)
    if not stored:
        return None
    times = {path: path.stat().st_mtime_ns for path in stored.values()}
    latest = times[stored[max(stored)]]  # files carry the time of their commit
    return max((read_sheet(path) for path, at in times.items() if at >= latest), key=order)


def order(sheet: Sheet) -> tuple[int, str, int]:
    """What sorts records as they were committed."""
    return (sheet.seq, sheet.run_id, sheet.number)


def memos_in(folder: Path, place: int | None = None) -> list[Path]:
    """The files of a run's memory, or of one place in it."""
    start = "" if place is None else f"{place:06d}-"
    try:
        names = sorted(os.listdir(folder / MEMORY))
    except FileNotFoundError:
        return []
    return [folder / MEMORY / name for name in names if RECORD_NAME.fullmatch(name) and name.startswith(start)]


def forget_at(folder: Path, place: int) -> None:
    """Delete the memory of one place."""
    for path in memos_in(folder, place):
        path.unlink()


def forget_after(folder: Path, place: int) -> None:
    """Delete the memory of places past one."""
    for path in memos_in(folder):
        if _place_of(path) > place:
            path.unlink()


def forget(folder: Path, upto: int | None = None) -> None:
    """Delete the memory of every place, or of those up to one."""
    for path in memos_in(folder):
        if upto is None or _place_of(path) <= upto:
            path.unlink()
    if upto is None:
        with suppress(OSError):  # it is not there, or something is left in it
            (folder / MEMORY).rmdir()


def _place_of(memo: Path) -> int:
    return int(memo.name.partition("-")[0])


def claim_in(folder: Path) -> Claim | None:
    try:
        return read(folder / OWNER, Claim)
    except FileNotFoundError:
        return None
