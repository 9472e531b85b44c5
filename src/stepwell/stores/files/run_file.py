"""The file of one run: its lock, and how it is read, appended to and written anew."""

from __future__ import annotations

import mmap
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from stepwell.errors import CheckpointCorrupt, NewerFormat, StoreUnavailable
from stepwell.storage.lease import Lease
from stepwell.storage.permissions import create
from stepwell.storage.posix import sync_folder
from stepwell.storage.stored_values import Entry, Record
from stepwell.stores.files import lines
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.lines import Acquire, Body, Commit, Header, Line, LogEntry, Placed, Signal, State

PATIENCE = 30.0  # seconds to wait for another process that holds a lock
_FIRST = 72  # bytes of a file that say which one it is: the header up to the generation
_PIECE = 1 << 20  # bytes that are written at once when a file is written anew
_STATE_EVERY = 32 << 10  # bytes of lines between two lines with the whole state
_STATE_AT_REST = 2 << 10  # the same if the driver leaves the run: it is likely to be listed next
_STATE_SHARE = 4  # a large state is written only after this many times its size


class StoredRecord(NamedTuple):
    """Where a record is in the file."""

    entry: Entry
    start: int
    body: Body


class RunFile:
    """The log of one run.

    All methods but `reading` and `writing` are for the time in which the file is open by one of
    these. What was read is kept; the next time, only what others have written since is read.
    """

    def __init__(self, path: Path, run_id: str = "") -> None:
        self.path = path
        self.run_id = run_id  # if it is not given, it is read in the file
        self._lock = threading.Lock()  # a file lock does not protect what is kept here
        self._fd: int | None = None
        self._buffer = bytearray()  # lines that are not written yet
        self._is_lasting = False  # one of them must survive a power failure
        self._rests = False  # one of them ends the lease
        self.is_replaced = False  # nothing more can be written until it is opened again
        self._forget()

    def _forget(self) -> None:
        self._buffer.clear()
        self._is_lasting = self._rests = False
        self._first = b""  # of the file that was read
        self.end = 0  # of its complete lines
        self.state = State()
        self.records: dict[int, StoredRecord] = {}  # those that begin at `_indexed` or later
        self._indexed = 0
        self._damage: int | None = None  # where the file is damaged, if that was noticed
        self._is_torn = False  # something follows that a crash cut off
        self._is_synced = True  # the last line is not one that may be lost
        self._is_named = False  # there are lines that must survive, so the name of the file does
        self._last_state = (0, 0)  # end and size of the last line with the whole state

    # ---------------------------------------------------------------- opening

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Share the file with other readers. If there is none, the state is that of an empty run."""
        with self._lock, _lock_file(self.path, exclusive=False) as self._fd:
            self._catch_up()
            yield

    @contextmanager
    def writing(self, make: Callable[[], int] | None = None) -> Iterator[None]:
        """Exclude everybody else. What was put is written at the end, all of it or nothing.

        With `make`, a file that does not exist is created: `make` creates its folder and returns its
        permissions. If nothing is put into it, it is deleted.
        """
        with self._lock, _lock_file(self.path, exclusive=True, make=make) as self._fd:
            self.is_replaced = False
            if not self._first:
                _unlink(_part(self.path))  # left by a process that was killed
            try:
                self._catch_up()
                yield
                self.flush()
                if self._fd is not None and self.end == 0 and not self.is_replaced:
                    os.unlink(self.path)
            except BaseException:
                self._forget()  # nobody knows what was written
                raise

    def _catch_up(self) -> None:
        """Read what others have written since."""
        size = 0 if self._fd is None else os.fstat(self._fd).st_size
        if self._fd is None or size == 0:
            self._forget()
        elif size < self.end or os.pread(self._fd, _FIRST, 0) != self._first:
            self._forget()
            with self._map() as data:
                self._load(data)
        elif size > self.end:
            with self._map() as data:
                self._fold(data, self.end)
        self._is_torn = size > self.end

    def _load(self, data: mmap.mmap) -> None:
        header = lines.read_line(data, 0, "")
        if header is None or not isinstance(header.line, Header):
            if lines.find_end(data, lines.Scan([], [0])) is None:
                raise self._damage_error(0)
            return
        if header.line.format > lines.FORMAT:
            raise NewerFormat(
                f"{self.path} was written by a newer Stepwell (format {header.line.format}, this one knows "
                f"{lines.FORMAT}) and is unchanged; upgrade Stepwell to use it"
            )
        if run_name(header.line.run_id) != f"{self.path.parent.name}/{self.path.name}":
            raise CheckpointCorrupt(f"{self.path} belongs to run {header.line.run_id!r}; move it back to its place")
        self.run_id = header.line.run_id
        self._first, self._indexed = data[:_FIRST], header.end
        placed = lines.find_last_state(data, self.run_id)
        if placed is not None and isinstance(placed.line, State):
            self.state, self._indexed, self._is_named = placed.line, placed.end, True
            self._last_state = (placed.end, placed.end - placed.offset)
        self._fold(data, self._indexed)

    def _fold(self, data: mmap.mmap, start: int) -> None:
        found = lines.scan(data, start, len(data), self.run_id)
        end = lines.find_end(data, found)
        if end is None:
            raise self._damage_error(min(found.damages, default=start))
        for placed in found.lines:
            if placed.offset < end:
                self._apply(placed)
                self._is_named = self._is_named or self._is_synced
        self.end = max(start, end)

    def _apply(self, placed: Placed) -> None:
        line = placed.line
        if isinstance(line, Commit):
            self.records[line.entry.number] = StoredRecord(line.entry, placed.offset, placed.body)
        elif isinstance(line, State):
            self.state = line
            self._last_state = (placed.end, placed.end - placed.offset)
        self.state.apply(placed)
        self._is_synced = not isinstance(line, Acquire)

    @property
    def _open_fd(self) -> int:
        assert self._fd is not None
        return self._fd

    def _map(self) -> mmap.mmap:
        return mmap.mmap(self._open_fd, 0, access=mmap.ACCESS_READ)

    # ---------------------------------------------------------------- reading

    def index(self, start: int = 0) -> None:
        """Make the records from an offset on known; it is that of a record, or 0 for all."""
        if self._fd is None or start >= self._indexed:
            return
        with self._map() as data:
            found = lines.scan(data, start or data.find(b"\n") + 1, self._indexed, self.run_id)
        for placed in found.lines:
            if isinstance(placed.line, Commit):
                entry = placed.line.entry
                self.records.setdefault(entry.number, StoredRecord(entry, placed.offset, placed.body))
        self._indexed = start
        if found.damages:
            self._damage = found.damages[0]

    @property
    def is_damaged(self) -> bool:
        return self._damage is not None

    def check_complete(self) -> None:
        """Raise CheckpointCorrupt if damage was noticed: what was not found may have been there."""
        if self._damage is not None:
            raise self._damage_error(self._damage)

    def read_record(self, number: int) -> Record:
        stored = self.records[number]
        return Record(stored.entry, self.read_body(stored.body, f"commit {number}"))

    def read_body(self, body: Body, what: str) -> bytes:
        """Return a body. Raises CheckpointCorrupt, naming `what`, if it is damaged."""
        text = self._read(body)
        if crc32(text) != body.crc:
            raise CheckpointCorrupt(
                f"{self.path} is damaged: {what} of run {self.run_id!r} is not what was written; restore the file from "
                f"a backup, or remove what is damaged"
            )
        return text

    def read_lease(self) -> Lease | None:
        """Return the lease that is held, if there is one; it may be over."""
        if self.state.owner is None or self.state.until is None:
            return None
        with suppress(ValueError):  # it is blank, or was lost with the power
            return Lease(self.state.owner, float(self._read(self.state.until)))
        return None

    def _read(self, body: Body) -> bytes:
        if body.offset >= self.end:
            self.flush()
        return os.pread(self._open_fd, body.size, body.offset)

    def _damage_error(self, offset: int) -> CheckpointCorrupt:
        return CheckpointCorrupt(
            f"{self.path} is damaged at byte {offset}, so run {self.run_id!r} cannot be read; restore the file from a "
            f"backup, or delete it if you can do without the run"
        )

    # ---------------------------------------------------------------- writing

    def put(self, line: Line, body: bytes = b"") -> None:
        """Add a line, which is written by `flush` at the latest when the file is closed."""
        if self.end + len(self._buffer) == 0:
            header = Header(format=lines.FORMAT, generation=secrets.token_hex(8), run_id=self.run_id)
            text, _ = lines.write_line(header, b"", 0, "")
            self._buffer += text
            self._first, self._indexed = text[:_FIRST], len(text)
        if b"\n" in body:  # a body is one line; white space does not count in JSON
            body = msgspec.json.format(body, indent=-1)
        line.joined = bool(self._buffer) or not self._is_synced
        text, placed = lines.write_line(line, body, self.end + len(self._buffer), self.run_id)
        self._buffer += text
        self._is_lasting = self._is_lasting or not isinstance(line, Acquire)
        self._rests = self._rests or (isinstance(line, Commit) and line.release)
        self._apply(placed)

    def set_lease_end(self, until: float | None) -> None:
        """Renew the lease that is held, or release it."""
        body = self.state.until
        assert body is not None
        self._read(body)  # it may not have been written yet
        os.pwrite(self._open_fd, lease_text(until), body.offset)
        if until is None:
            self.state.owner = self.state.until = None

    def flush(self) -> None:
        """Write what was put. It survives a power failure then, unless it is only a lease."""
        if not self._buffer:
            return
        if self._is_lasting and self._wants_state():
            self.put(self.state)
        start = self.end
        try:
            self._write_out()
            if self._is_lasting:
                self._sync()
        except OSError:
            with suppress(OSError):  # what stays is cut off by the next writer, or complete
                os.ftruncate(self._open_fd, start)
            raise
        self._is_lasting = self._rests = False
        self._blank(before=start)

    def _wants_state(self) -> bool:
        end, size = self._last_state
        since = self.end + len(self._buffer) - end
        return since >= max(_STATE_AT_REST if self._rests else _STATE_EVERY, _STATE_SHARE * size)

    def _write_out(self) -> None:
        if self._is_torn:
            os.ftruncate(self._open_fd, self.end)
            self._is_torn = False
        rest = memoryview(bytes(self._buffer))
        while rest:
            written = os.pwrite(self._open_fd, rest, self.end)
            self.end += written
            rest = rest[written:]
        self._buffer.clear()

    def _sync(self) -> None:
        os.fsync(self._open_fd)
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def _blank(self, *, before: int) -> None:
        """Overwrite the bodies that are not needed any more.

        Those in the last write stay for now: blanks that are not synced must not look like a write
        that was cut off.
        """
        dead, self.state.dead = self.state.dead, []
        for body in dead:
            try:
                if body.offset < before:
                    os.pwrite(self._open_fd, b" " * body.size, body.offset)
                    continue
            except OSError:  # the transaction is complete; the next writer tries again
                pass
            self.state.dead.append(body)

    def write_anew(self, records: Iterable[Record]) -> None:
        """Write these records and the state to a new file, which takes the place of this one."""
        part, state = _part(self.path), self.state
        _unlink(part)
        fresh = RunFile(part, self.run_id)
        fresh._is_named = True  # the name is synced below, when it is the right one
        fresh._fd = create(part, os.O_RDWR, os.fstat(self._open_fd).st_mode & 0o666)
        try:
            for record in records:
                fresh.put(Commit(entry=record.entry), record.body)
                if len(fresh._buffer) > _PIECE:
                    fresh._write_out()
            fresh._put_state(state, self)
            fresh.flush()
            os.replace(part, self.path)
            sync_folder(self.path.parent)
        except BaseException:
            _unlink(part)
            raise
        finally:
            os.close(fresh._fd)
            self._forget()
            self.is_replaced = True

    def _put_state(self, state: State, source: RunFile) -> None:
        """Put all but the records, as it is in another file."""
        for place, entries in state.log.items():
            for key, body in entries.items():
                self.put(LogEntry(place=place, key=key), source.read_body(body, f"log entry {key!r}"))
        for key, body in state.signals.items():
            self.put(Signal(key=key), source.read_body(body, f"signal {key!r}"))
        if (lease := source.read_lease()) is not None:
            self.put(Acquire(owner=lease.owner, fence=state.fence), lease_text(lease.until))
        for name in ("began", "metadata", "requests", "wake", "used_keys", "fence"):
            setattr(self.state, name, getattr(state, name))
        self.put(self.state)

    def remove(self) -> None:
        """Delete the file: the run is gone."""
        _unlink(_part(self.path))
        os.unlink(self.path)
        sync_folder(self.path.parent)
        self._forget()
        self.is_replaced = True


def lease_text(until: float | None) -> bytes:
    """Return the end of a lease as it is stored: always of the same length; blank if it was released."""
    return b" " * 20 if until is None else b"%20.6f" % until


def _part(path: Path) -> Path:
    """Return the name of a file while it is written anew."""
    return path.with_suffix(".part")


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


@contextmanager
def _lock_file(path: Path, *, exclusive: bool, make: Callable[[], int] | None = None) -> Iterator[int | None]:
    """Open and lock a file; None if it does not exist and `make` is not given."""
    while True:
        fd = _open(path, os.O_RDWR if exclusive else os.O_RDONLY, make)
        if fd is None:
            yield None
            return
        try:
            _wait_for_lock(fd, path, exclusive=exclusive)
            try:
                # While we waited, the file may have been deleted, or another one took its place.
                if os.fstat(fd).st_nlink:
                    yield fd
                    return
            finally:
                # Explicitly: closing would not release it while a forked child holds the handle too.
                _flock(fd, "LOCK_UN")
        finally:
            os.close(fd)


def _open(path: Path, flags: int, make: Callable[[], int] | None) -> int | None:
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags | os.O_NOFOLLOW)
        if make is None:
            return None
        with suppress(FileExistsError):  # another process was faster
            return create(path, flags, make())


def _wait_for_lock(fd: int, path: Path, *, exclusive: bool) -> None:
    # Polling, because a blocking flock could not be given up, and the holder may be suspended.
    until, pause = time.monotonic() + PATIENCE, 0.0001
    while not _flock(fd, "LOCK_EX" if exclusive else "LOCK_SH"):
        if time.monotonic() > until:
            raise StoreUnavailable(
                f"another process has held the lock on {path} for {PATIENCE:.0f} s; try again, or stop that process"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.005)


def _flock(fd: int, operation: str) -> bool:
    import fcntl  # lazy: there is none on Windows

    with suppress(BlockingIOError):
        fcntl.flock(fd, getattr(fcntl, operation) | fcntl.LOCK_NB)
        return True
    return False
