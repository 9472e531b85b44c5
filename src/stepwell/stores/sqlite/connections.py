"""Connections to one SQLite file, each lent to one thread at a time, and what their errors mean."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stepwell.errors import CheckpointCorrupt, DurabilityError, StoreUnavailable
from stepwell.storage.permissions import OWNER_ONLY, folder_mode
from stepwell.stores.sqlite.file import make_file, make_folder

PATIENCE = 30.0  # seconds to wait for other processes on the same file

T = TypeVar("T")
Prepare = Callable[[sqlite3.Connection, str], None]

FOREIGN = (sqlite3.Error, UnicodeDecodeError, OverflowError)  # what is not ours: the last, of a number beyond 64 bits


class Connections:
    """Open connections, each lent to one user at a time."""

    def __init__(self, path: str, prepare: Prepare, mode: int) -> None:
        self.path, self._prepare, self._mode = path, prepare, mode
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._paused = self._retired = False
        self._change = threading.Condition()

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection. Errors of SQLite come out translated, and a connection that saw one is not lent again."""
        with self._change:
            self._change.wait_for(lambda: not self._paused)
            db = self._idle.pop() if self._idle else None
            self._lent += 1
        sound = False
        try:
            if db is None:
                db = open_database(self.path, self._prepare, self._mode)
            yield db
            sound = True
        except FOREIGN as error:
            raise translate(error, self.path) from error
        finally:
            with self._change:
                reusable = sound and not self._retired
                if db is not None and reusable:
                    self._idle.append(db)
            if db is not None and not reusable:
                db.close()  # rolls back what is open
            with self._change:
                self._lent -= 1
                self._change.notify_all()

    def pause(self) -> None:
        """Wait until no connection is in use, close them all and lend none until `resume`."""
        with self._change:
            self._paused = True
            self._change.wait_for(lambda: self._lent == 0)
            while self._idle:
                self._idle.pop().close()

    def resume(self) -> None:
        with self._change:
            self._paused = False
            self._change.notify_all()

    def retire(self) -> None:
        """Close every connection that is not in use, and the others when they are given back."""
        with self._change:
            self._retired = True
            while self._idle:
                self._idle.pop().close()


def open_database(path: str, prepare: Prepare, mode: int = OWNER_ONLY) -> sqlite3.Connection:
    """A connection in autocommit mode, prepared. The file and the folders above it are created."""
    try:
        make_folder(os.path.dirname(path), folder_mode(mode))
    except OSError as error:
        raise StoreUnavailable(f"the folder of the store {path} cannot be created: {error}") from error
    try:
        make_file(path, mode)
    except OSError as error:
        raise StoreUnavailable(f"the store {path} cannot be created: {error}") from error
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        patiently(lambda: prepare(db, path))
    except BaseException:
        db.close()
        raise
    return db


def patiently(action: Callable[[], T]) -> T:
    """Do it again while other processes lock the file: SQLite's own waiting leaves out a few such moments."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) not in _LOCKED or time.monotonic() > until:
                raise
        time.sleep(0.005)


def flaws(db: sqlite3.Connection) -> list[str]:
    """What SQLite finds when it compares its pages, tables and indexes with each other; not all, if it is much."""
    path = db.execute("PRAGMA database_list").fetchone()[2]
    findings = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    return [] if findings == ["ok"] else [_damage_text(path, " ".join(finding.split())) for finding in findings]


def _damage_text(path: str, why: object) -> str:
    sentence = f"the database {path} is damaged ({why}); restore it from a backup, "
    return f"{sentence}or save what can be read with the sqlite3 command `.recover`"


def translate(error: Exception, path: str) -> DurabilityError:
    """The error in our words, with SQLite's own."""
    is_not_text = isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode to UTF-8")
    if is_not_text or _code(error) == sqlite3.SQLITE_CORRUPT:
        return CheckpointCorrupt(_damage_text(path, error))
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} is not a SQLite database; it was left as it is. Name another file")
    return StoreUnavailable(f"the store {path} cannot be used: {error}")


def _code(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)  # absent where Python itself complains
    return None if code is None else code & 0xFF  # without the details of the extended codes


_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
