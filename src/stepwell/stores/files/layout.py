"""The layout on disk: names of files and folders, their contents, and how they are written safely.

    <root>/stepwell.json                              the mark of a store, with its format
    <root>/<workflow>/<run>/000012-<checkpoint>.json  one record
    <root>/<workflow>/<run>/.reduced-000012-<checkpoint>.json  what will stay of it; see run_folder
    <root>/<workflow>/<run>/memory/000012-<key>.json  the superstep log; see superstep_log
    <root>/<workflow>/<run>/mail/000012-<key>.json    a signal; see signals
    <root>/<workflow>/<run>/open.json                 open requests and wake-up time; see open_page
    <root>/<workflow>/<run>/owner.json                the lease; see lease
    <root>/.new/<run>/                                a run that has no record yet
    <root>/.gone/                                     runs that are being deleted

Names that start with a dot are never records: they are locks (see lock; they store nothing), and
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
MARK, OWNER, OPEN, LOG_FOLDER, SIGNALS_FOLDER = "stepwell.json", "owner.json", "open.json", "memory", "mail"
LOCK, NEW, GONE, TEMPORARY = ".lock", ".new", ".gone", ".tmp-"
REDUCED = ".reduced-"  # before the name of a record: what replaces it once the next commit is there

COVER = 8192  # bytes of a longer file that are read to find its cover

RECORD_NAME = re.compile(r"(\d{6,})-.*\.json")
PLAIN = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,99}")
# Numbers for temporary files. Shared by all stores of the process, because two of them may write in
# the same folder; `next` on it is atomic.
_temporary_numbers = itertools.count()


class StoredFile(msgspec.Struct):
    """The content of a file."""

    format: int


class Mark(StoredFile):
    """The content of `stepwell.json`, which marks a directory as a store."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What never changes in a run. Each record repeats it, so that any of them can be deleted."""

    began: str
    tags: dict[str, str] = {}
    caller: str | None = None

    @property
    def metadata(self) -> RunMetadata:
        return RunMetadata(self.tags, self.caller)

    def with_metadata(self, metadata: RunMetadata | None) -> Origin:
        """Return the origin with other metadata; None changes nothing."""
        return self if metadata is None else Origin(self.began, dict(metadata.tags), metadata.caller)


class Cover(StoredFile, kw_only=True, omit_defaults=True):
    """Everything in a record's file before the body."""

    run_id: str
    number: int
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str
    is_snapshot: bool = msgspec.field(name="frame")  # its name in the file, which never changes
    outputs: bool
    fleeting: bool = False
    seq: int  # when it was committed, in nanoseconds: the order of commits across all runs
    origin: Origin
    # Records before this number that existed then and hold no outputs are deleted, even if their
    # files are still there.
    drop_below: int | None = None

    @property
    def entry(self) -> Entry:
        return Entry(
            self.run_id,
            self.number,
            checkpoint_id=self.checkpoint_id,
            workflow=self.workflow,
            status=self.status,
            iteration=self.iteration,
            at=self.at,
            is_snapshot=self.is_snapshot,
            outputs=self.outputs,
            fleeting=self.fleeting,
        )

    @property
    def order(self) -> tuple[int, str, int]:
        """A key that sorts records in the order of their commits."""
        return (self.seq, self.run_id, self.number)


class StoredRecord(Cover, kw_only=True, omit_defaults=True):
    """A record as it is written to its file, body last, so that the cover can be read alone."""

    body: msgspec.Raw

    @property
    def record(self) -> Record:
        return Record(self.entry, compact(self.body))


S = TypeVar("S", bound=StoredFile)

# Created at import, before there are threads: msgspec inspects a class when it first meets it, and
# two threads that do so at the same time crash the interpreter.
MARKS, _COVERS, _RECORDS = msgspec.json.Decoder(Mark), msgspec.json.Decoder(Cover), msgspec.json.Decoder(StoredRecord)


def safe_name(text: str) -> str:
    """Return a file name for any string: never hidden, never a path, and different for each string.

    Plain lower-case names stay as they are. Others get a hash after a `~`, which no plain name
    contains. Names with capitals get one too, because some file systems ignore case.
    """
    if PLAIN.fullmatch(text) and text != MARK:  # the mark is next to the folders of the workflows
        return text
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:60]
    return f"{readable}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def record_name(number: int, checkpoint_id: str) -> str:
    return f"{number:06d}-{safe_name(checkpoint_id)}.json"


def compact(body: bytes | msgspec.Raw) -> bytes:
    """Return JSON without white space; numbers, strings and the order of keys stay unchanged.

    Files are indented for people, and checksums are computed over the compact text.
    """
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
    """Return the record in a file. Raises CheckpointCorrupt unless it belongs under that name."""
    return _check_place(read(path, _RECORDS), path)


def read_cover(path: Path) -> Cover:
    """Return the record in a file without its body.

    Of a large file only the beginning is read, and the last bytes, to see that it is complete.
    """
    cover = _read_beginning(path)
    return _check_place(read(path, _COVERS) if cover is None else cover, path)


C = TypeVar("C", bound=Cover)


def _check_place(cover: C, path: Path) -> C:
    expected = Path(safe_name(cover.workflow), safe_name(cover.run_id), record_name(cover.number, cover.checkpoint_id))
    if path.with_name(path.name.removeprefix(REDUCED)).parts[-3:] != expected.parts:
        raise CheckpointCorrupt(
            f"{path} does not belong under this name: it contains commit {cover.number} ({cover.checkpoint_id}) "
            f"of run {cover.run_id!r} of workflow {cover.workflow!r}; move it back to its place"
        )
    return cover


def _read_beginning(path: Path) -> Cover | None:
    """Return the cover of a large file; None if the whole file has to be read to know it."""
    try:
        if path.stat().st_size <= COVER:
            return None
        with open(path, "rb") as file:
            start, body, _ = file.read(COVER).partition(b',\n  "body": ')
            file.seek(-3, os.SEEK_END)
            if not body or file.read() != b"\n}\n":
                return None
        cover = _COVERS.decode(start + b"}")
    except (OSError, ValueError, RecursionError):  # reading the whole file will report the error
        return None
    return cover if cover.format <= FORMAT else None


def read(path: Path, decoder: msgspec.json.Decoder[S]) -> S:
    """Return the content of a file.

    Raises CheckpointCorrupt, naming the file, if it is damaged; FileNotFoundError is passed on.
    """
    try:
        data = path.read_bytes()
        data.decode()  # msgspec accepts invalid UTF-8 in a raw body
        content = decoder.decode(data)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise CheckpointCorrupt(f"{path} cannot be read: it is a broken symbolic link") from error
        raise
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # not the fault of this file
            raise
        raise CheckpointCorrupt(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise CheckpointCorrupt(f"{path} is damaged: it is nested too deep; restore it from a backup") from None
    except ValueError as error:
        raise CheckpointCorrupt(
            f"{path} is damaged: {error}; restore it from a backup, or delete it if you can do without it"
        ) from error
    if content.format < 1:
        raise CheckpointCorrupt(f"{path} is damaged: there is no format {content.format}; restore it from a backup")
    if content.format > FORMAT:
        raise NewerFormat(
            f"{path} was written by a newer Stepwell (format {content.format}, this one knows {FORMAT}) and is "
            f"unchanged; upgrade Stepwell to use it"
        )
    return content


def write(
    path: Path, content: StoredFile, *, stamp: int | None = None, lasting: bool = True, mode: int | None = None
) -> None:
    """Write a file atomically: after a crash it has the old content or the new, never a mixture.

    `stamp` becomes the modification time, in nanoseconds. Without `lasting`, a power failure may
    undo the write. Without `mode`, the permissions follow those of the folder.
    """
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    half = path.with_name(f"{TEMPORARY}{os.getpid()}-{next(_temporary_numbers)}")
    try:
        with open(half, "xb", opener=creating(files_mode_in(path.parent) if mode is None else mode)) as file:
            file.write(data)
            file.flush()
            if stamp is not None:
                os.utime(file.fileno(), ns=(stamp, stamp))
            # Always, even without `lasting`: otherwise the new name could survive a power failure
            # and its content not.
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
    """Create a folder and its parents, durably.

    `mode` is that of the files in it; without it, they are like the files in the folder above.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    # Another process was faster; if it is a file, the next use fails.
    with suppress(FileExistsError):
        make_one_folder(folder, folder_mode(files_mode_in(folder.parent) if mode is None else mode))
    sync_folder(folder.parent)
