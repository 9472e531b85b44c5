"""The file of one run: its lock, and how it is read, appended to and written anew."""

from __future__ import annotations

import mmap
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.durable_files import lock_file, write_at
from stepwell.storage.permissions import create
from stepwell.storage.posix import sync_folder
from stepwell.storage.stored_values import Record
from stepwell.stores.files import lines
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.lines import FileBody, HeaderLine, Placed
from stepwell.stores.runs.run import Run, StoredRecord
from stepwell.stores.runs.state import CommitLine, Line, State

_LINE = 350  # bytes of a commit beside its body, about
_FIRST = 44  # bytes of a file that tell it from others: the header up to the generation
_PIECE = 1 << 20  # bytes that are written at once when a file is written anew
_STATE_EVERY = 32 << 10  # bytes of lines between two lines with the whole state
_STATE_AT_REST = 2 << 10  # the same if the driver leaves the run: it is likely to be listed next
_STATE_SHARE = 4  # a large state is written only after this many times its size


class RunFile(Run[FileBody]):
    """The log of one run.

    All methods but `reading` and `writing` are for the time in which one of these holds the file.
    What was read is kept; the next time, only what others have written since is read.
    """

    def __init__(self, path: Path, run_id: str = "") -> None:
        self.path, self.folder = path, path.parent
        self.run_id = run_id  # if it is not given, it is read in the file
        self._lock = threading.Lock()  # a file lock does not protect what is kept here
        self._fd = -1  # of the open file
        self._size = 0  # of the file; more than `end` if a crash has cut off a write
        self.is_replaced = False  # nothing more can be written until it is opened again
        self._forget()

    def _forget(self) -> None:
        self._buffer: list[bytes] = []  # what is not written yet
        self._rests = False  # one of them ends the lease
        self._first = b""  # of the file that was read
        self.end = self._next = 0  # of its complete lines; and with those that are not written yet
        self.state = State()
        self.records = {}
        self._indexed = 0  # the records from this offset on are known
        self._damage: int | None = None  # where the part before `_indexed` is damaged
        self._state_end = self._state_size = 0  # of the last line with the whole state
        self._is_named = False  # the name of the file survives a power failure

    # ---------------------------------------------------------------- opening

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Share the file with other readers. If there is none, the state is that of an empty run."""
        with self._lock, lock_file(self.path, exclusive=False, mode=None) as self._fd:
            self._catch_up()
            yield

    @contextmanager
    def writing(self, mode: int | None = None) -> Iterator[None]:
        """Exclude everybody else. What was put is written at the end, all of it or nothing.

        With `mode`, a file that does not exist is created with these permissions; if nothing is put
        into it, it is deleted.
        """
        with self._lock, lock_file(self.path, mode=mode) as self._fd:
            self.is_replaced = False
            try:
                self._catch_up()
                yield
                self.flush()
                if self._fd >= 0 and self.end == 0 and not self.is_replaced:
                    os.unlink(self.path)
            except BaseException:
                self._forget()  # nobody knows what was written
                raise

    def _catch_up(self) -> None:
        """Read what others have written since."""
        self._size = size = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        if size < self.end or (size and os.pread(self._fd, _FIRST, 0) != self._first):
            self._forget()
        if size > self.end:
            with self._map() as data:
                self._fold(data, self.end or self._load(data))

    def _load(self, data: mmap.mmap) -> int:
        """Read the header and the last line with the whole state; return where to continue."""
        header = lines.read_line(data, 0, "")
        if header is None or not isinstance(header.line, HeaderLine):
            return 0
        if run_name(header.line.run_id) != f"{self.folder.name}/{self.path.name}":
            raise CheckpointCorrupt(f"{self.path} belongs to run {header.line.run_id!r}; move it back to its place")
        self.run_id, self._first = header.line.run_id, data[:_FIRST]
        placed = lines.find_last_state(data, self.run_id)
        if placed is None:
            return header.end
        self._indexed = placed.end
        self._note(placed)
        return placed.end

    def _fold(self, data: mmap.mmap, start: int) -> None:
        complete, damages = lines.scan(data, start, len(data), self.run_id)
        end = lines.find_end(data, complete, damages, self.run_id)
        if end is None:
            raise self._damage_error(min(damages, default=start))
        for placed in complete:
            if placed.offset < end:
                self._note(placed)
        self.end = self._next = end

    def _note(self, placed: Placed) -> None:
        if isinstance(placed.line, State):
            self._state_end, self._state_size = placed.end, placed.end - placed.offset
        self.apply(placed.line, placed.body, placed.offset)

    def _map(self) -> mmap.mmap:
        return mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    # ---------------------------------------------------------------- reading

    def index(self, lowest: int = 0) -> None:
        """Make the records from that number on known, and those since the newest snapshot."""
        for start in (self.state.snapshot, 0):
            if start < self._indexed and (start or min(self.records, default=lowest + 1) > lowest):
                with self._map() as data:
                    before, damages = lines.scan(data, start or data.find(b"\n") + 1, self._indexed, self.run_id)
                self.records |= {
                    placed.line.entry.number: StoredRecord(placed.line.entry, placed.body)
                    for placed in before
                    if isinstance(placed.line, CommitLine)
                }
                self._indexed, self._damage = start, min(damages, default=self._damage)

    def check_complete(self) -> None:
        if self._damage is not None:
            raise self._damage_error(self._damage)

    def read_body(self, body: FileBody, what: str) -> bytes:
        text = self.read(body)
        if crc32(text) != body.crc:
            raise CheckpointCorrupt(
                f"{self.path} is damaged: {what} of run {self.run_id!r} is not what was written; restore the file from "
                f"a backup, or remove what is damaged"
            )
        return text

    def read(self, body: FileBody) -> bytes:
        if body.offset >= self.end:
            self.flush()
        return os.pread(self._fd, body.size, body.offset)

    def _damage_error(self, offset: int) -> CheckpointCorrupt:
        return CheckpointCorrupt(
            f"{self.path} is damaged at byte {offset}, so run {self.run_id!r} cannot be read; restore the file from a "
            f"backup, or delete it if you can do without the run"
        )

    # ---------------------------------------------------------------- writing

    def put(self, line: Line, body: bytes = b"") -> None:
        """Add a line, which is written by `flush`, at the latest when the file is closed."""
        if self._next == 0:
            header = HeaderLine(generation=secrets.token_hex(8), run_id=self.run_id)
            text, placed = lines.write_line(header, b"", 0, "")
            self._first, self._next, self._buffer = text[:_FIRST], placed.end, [text]
        if b"\n" in body:  # a body is one line; white space does not count in JSON
            body = msgspec.json.format(body, indent=-1)
        line.joined = bool(self._buffer)
        text, placed = lines.write_line(line, body, self._next, self.run_id)
        self._buffer += [text, body, b"\n"] if body else [text]
        self._next = placed.end
        self._rests = self._rests or (isinstance(line, CommitLine) and line.release)
        self._note(placed)

    def set_lease_text(self, text: bytes) -> None:
        self.flush()  # the lease may not have been written yet
        assert self.state.until is not None
        os.pwrite(self._fd, text, self.state.until.offset)

    def flush(self) -> None:
        """Write what was put, and sync it."""
        start, since = self.end, self._next - self._state_end
        if not self._buffer:
            return
        if since >= max(_STATE_AT_REST if self._rests else _STATE_EVERY, _STATE_SHARE * self._state_size):
            self.put(self.state)
        try:
            if not self._is_named:
                # The process that wrote this file may have been killed before it synced the name.
                # That must be done before something is in the file that must not be lost.
                _unlink(_part(self.path))
                sync_folder(self.folder)
                self._is_named = True
            if self._size > start:
                os.ftruncate(self._fd, start)  # what a crash cut off
            self._write_out()
            os.fsync(self._fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        self._size, self._rests = self.end, False
        self._blank(before=start)

    def _write_out(self) -> None:
        self.end = write_at(self._fd, b"".join(self._buffer), self.end)
        self._buffer.clear()

    def _blank(self, *, before: int) -> None:
        """Overwrite the bodies that are not needed any more.

        Those in the last write stay for now: blanks that are not synced must not look like a write
        that was cut off.
        """
        later = [body for body in self.state.dead if body.offset >= before]
        with suppress(OSError):  # the transaction is complete; the next one tries again
            for body in self.state.dead:
                if body.offset < before:
                    os.pwrite(self._fd, b" " * body.size, body.offset)
            self.state.dead = later

    def write_anew(self, records: Iterable[Record]) -> None:
        """Write these records and the state to a new file, which takes the place of this one."""
        fresh = RunFile(_part(self.path), self.run_id)

        def write_in_pieces() -> Iterator[Record]:
            for record in records:
                yield record
                if fresh._next - fresh.end > _PIECE:
                    fresh._write_out()

        try:
            _unlink(fresh.path)
            fresh._fd = create(fresh.path, os.O_RDWR, os.fstat(self._fd).st_mode & 0o666)
            self.copy_to(fresh, write_in_pieces())
            fresh.put(fresh.state)
            fresh._write_out()
            os.fsync(fresh._fd)
            os.replace(fresh.path, self.path)
            sync_folder(self.folder)
        except BaseException:
            _unlink(fresh.path)
            raise
        finally:
            if fresh._fd >= 0:
                os.close(fresh._fd)
            self._forget()
            self.is_replaced = True

    def compact(self) -> int:
        """Write the file anew if a quarter of it is not needed any more; return by how much it shrank."""
        with self.writing():
            size, needed = self.end, sum(stored.body.size + _LINE for stored in self.find_all().values())
            if self.state.newest is None or size - needed < size / 4:
                return 0
            self.write_anew([self.read_record(number) for number in sorted(self.records)])
            return size - os.stat(self.path).st_size

    def remove(self) -> None:
        _unlink(_part(self.path))
        os.unlink(self.path)
        sync_folder(self.folder)
        self._forget()
        self.is_replaced = True


def _part(path: Path) -> Path:
    """Return the name of a file while it is written anew."""
    return path.with_suffix(".part")


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
