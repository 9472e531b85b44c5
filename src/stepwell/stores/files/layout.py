"""How a store looks on disk: the names of files and folders, what is in them, and how they are written safely.

    <root>/stepwell.json                              the mark of a store, with the version of its format
    <root>/<workflow>/<run>/000012-<checkpoint>.json  one record
    <root>/<workflow>/<run>/.reduced-000012-<checkpoint>.json  what will be kept of it; see run_folder
    <root>/<workflow>/<run>/memory/000012-<key>.json  what was finished inside a superstep under way; see superstep_log
    <root>/<workflow>/<run>/mail/000012-<key>.json    mail; see signals
    <root>/<workflow>/<run>/open.json                 open questions, and when to wake the run; see open_page
    <root>/<workflow>/<run>/owner.json                who drives the run; see lease
    <root>/.new/<run>/                                a run that has no record yet
    <root>/.gone/                                     runs that are being deleted

Names that begin with a dot are never records: locks (see lock; nothing of what is in them is stored), and
files that a killed writer left half written.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from stepwell.errors import CheckpointCorrupt, NewerFormat
from stepwell.storage.permissions import creating, files_mode_in, folder_mode, make_one_folder
from stepwell.storage.port import Entry, Record, RunMetadata

FORMAT = 1
MARK, OWNER, OPEN, MEMORY, MAIL = "stepwell.json", "owner.json", "open.json", "memory", "mail"
LOCK, NEW, GONE, TEMPORARY = ".lock", ".new", ".gone", ".tmp-"
REDUCED = ".reduced-"  # before the name of a record: what is to replace it once the next commit is there

COVER = 8192  # bytes: of a longer file so much is read to know what it holds

RECORD_NAME = re.compile(r"(\d{6,})-.*\.json")
PLAIN = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,99}")
_counter = itertools.count()


class StoredFile(msgspec.Struct):
    """What is written to a file of its own."""

    format: int


class Mark(StoredFile):
    """What tells that a directory is a store."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a run whatever it has come to. Each record says it, so that any of them may go."""

    began: str
    tags: dict[str, str] = {}
    caller: str | None = None

    @property
    def metadata(self) -> RunMetadata:
        return RunMetadata(self.tags, self.caller)

    def with_metadata(self, metadata: RunMetadata | None) -> Origin:
        """What is known after somebody has said that; None: nothing."""
        return self if metadata is None else Origin(self.began, dict(metadata.tags), metadata.caller)


class Cover(StoredFile, kw_only=True, omit_defaults=True):
    """What a record's file says before its body."""

    run_id: str
    number: int
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str
    is_snapshot: bool = msgspec.field(name="frame")  # the name in the file
    outputs: bool
    fleeting: bool = False
    seq: int  # when it was committed, in nanoseconds: the order of commits over all runs
    origin: Origin
    drop_below: int | None = None  # records before this number that were there and hold no outputs are gone

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
            self.is_snapshot,
            self.outputs,
            self.fleeting,
        )

    @property
    def order(self) -> tuple[int, str, int]:
        """What sorts records as they were committed."""
        return (self.seq, self.run_id, self.number)


class StoredRecord(Cover, kw_only=True, omit_defaults=True):
    """A record as it is written to its file. The body is the last thing in it."""

    body: msgspec.Raw

    @property
    def record(self) -> Record:
        return Record(self.entry, compact(self.body))


S = TypeVar("S", bound=StoredFile)

# Made once, before there are threads: two that find out at the same time what a class is like crash the process.
MARKS, _COVERS, _RECORDS = msgspec.json.Decoder(Mark), msgspec.json.Decoder(Cover), msgspec.json.Decoder(StoredRecord)


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


def compact(body: bytes | msgspec.Raw) -> bytes:
    """JSON without white space. Numbers, strings and the order of keys stay as they were written."""
    return msgspec.json.format(bytes(body), indent=-1)


def stored_record(record: Record, seq: int, origin: Origin, drop_below: int | None = None) -> StoredRecord:
    e, body = record.entry, msgspec.Raw(compact(record.body))
    return StoredRecord(
        FORMAT,
        run_id=e.run_id,
        number=e.number,
        checkpoint_id=e.checkpoint_id,
        workflow=e.workflow,
        status=e.status,
        iteration=e.iteration,
        at=e.at,
        is_snapshot=e.is_snapshot,
        outputs=e.outputs,
        fleeting=e.fleeting,
        seq=seq,
        origin=origin,
        drop_below=drop_below,
        body=body,
    )


def cover_of(stored: StoredRecord) -> Cover:
    return Cover(stored.format, **{name: getattr(stored, name) for name in Cover.__struct_fields__[1:]})


def read_record(path: Path) -> StoredRecord:
    """The record in that file. Raises CheckpointCorrupt unless it is the record that its name and folders say."""
    return _in_place(read(path, _RECORDS), path)


def read_cover(path: Path) -> Cover:
    """As `read_record`, without the body: of a large file only the beginning is read, and whether it has an end."""
    cover = _beginning(path)
    return _in_place(read(path, _COVERS) if cover is None else cover, path)


C = TypeVar("C", bound=Cover)


def _in_place(cover: C, path: Path) -> C:
    expected = Path(safe_name(cover.workflow), safe_name(cover.run_id), record_name(cover.number, cover.checkpoint_id))
    if path.with_name(path.name.removeprefix(REDUCED)).parts[-3:] != expected.parts:
        raise CheckpointCorrupt(
            f"{path} is not what its name says: it holds commit {cover.number} ({cover.checkpoint_id}) "
            f"of run {cover.run_id!r} of workflow {cover.workflow!r}; put it back where it belongs"
        )
    return cover


def _beginning(path: Path) -> Cover | None:
    """What a large file says before its body; None if all of it has to be read to know that."""
    try:
        if path.stat().st_size <= COVER:
            return None
        with open(path, "rb") as file:
            start, body, _ = file.read(COVER).partition(b',\n  "body": ')
            file.seek(-3, os.SEEK_END)
            if not body or file.read() != b"\n}\n":
                return None
        cover = _COVERS.decode(start + b"}")
    except (OSError, ValueError, RecursionError):  # whoever reads all of it says what is wrong
        return None
    return cover if cover.format <= FORMAT else None


def read(path: Path, decoder: msgspec.json.Decoder[S]) -> S:
    """What is in a file. Raises CheckpointCorrupt, naming it, if that cannot be trusted; FileNotFoundError as it is."""
    try:
        data = path.read_bytes()
        data.decode()
        content = decoder.decode(data)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise CheckpointCorrupt(f"{path} cannot be read: it is a link to nothing") from error
        raise
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # says nothing about this file
            raise
        raise CheckpointCorrupt(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise CheckpointCorrupt(f"{path} is damaged: it is nested too deep; restore it from a backup") from None
    except ValueError as error:
        raise CheckpointCorrupt(
            f"{path} is damaged: {error}; restore it from a backup, or delete it to do without it"
        ) from error
    if content.format < 1:
        raise CheckpointCorrupt(f"{path} is damaged: there is no format {content.format}; restore it from a backup")
    if content.format > FORMAT:
        raise NewerFormat(
            f"{path} was written by a newer Stepwell (format {content.format}, this one knows {FORMAT}); "
            f"it was left as it is. Upgrade Stepwell to use it"
        )
    return content


def write(
    path: Path, content: StoredFile, *, stamp: int | None = None, lasting: bool = True, mode: int | None = None
) -> None:
    """Put the content in place of whatever is there: after a crash it is wholly there or not at all.

    `stamp` becomes the time of modification, in nanoseconds. Without `lasting` a power failure may undo it. Without
    `mode` the file is as open as its folder.
    """
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    half = path.with_name(f"{TEMPORARY}{os.getpid()}-{next(_counter)}")
    try:
        with open(half, "xb", opener=creating(files_mode_in(path.parent) if mode is None else mode)) as file:
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
    if lasting:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int | None = None) -> None:
    """Create a folder and those above it, durably. `mode` is that of the files in it; without it, they are like the
    files in the folder above."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with suppress(FileExistsError):  # another process was faster; a file of that name fails at the next use
        make_one_folder(folder, folder_mode(files_mode_in(folder.parent) if mode is None else mode))
    sync_folder(folder.parent)
