"""A pool of connections to one SQLite file, and the translation of their errors."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from stepwell.errors import CheckpointCorrupt, DurabilityError, StoreUnavailable
from stepwell.storage.permissions import OWNER_ONLY, create, folder_mode, make_folders

PATIENCE = 30.0  # seconds to wait for other processes on the same file

# POSIX drops all locks of a process on a file when the process closes *any* descriptor of that
# file. A thread that closed the new file while another one already had it open in SQLite would take
# SQLite's locks away. Global, because two stores of one process may use the same file.
_CREATING = threading.Lock()

T = TypeVar("T")
Prepare = Callable[[sqlite3.Connection, str], None]

# Errors of the driver. UnicodeDecodeError: a stored string is damaged. OverflowError: an integer
# beyond 64 bits.
FOREIGN = (sqlite3.Error, UnicodeDecodeError, OverflowError)


class Connections:
    """Connections to one file, each lent to one thread at a time."""

    def __init__(self, path: str, prepare: Prepare, mode: int) -> None:
        self.path, self._prepare, self._mode = path, prepare, mode
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for the body of a `with` statement.

        Errors of SQLite are raised translated, and a connection that saw an error is closed.
        """
        with self._lock:
            db = self._idle.pop() if self._idle else None
        try:
            if db is None:
                db = open_database(self.path, self._prepare, self._mode)
            yield db
        except BaseException as error:
            if db is not None:
                db.close()  # rolls back an open transaction
            if isinstance(error, FOREIGN):
                raise translate(error, self.path) from error
            raise
        self._idle.append(db)

    def close(self) -> None:
        """Close all connections. None may be lent."""
        while self._idle:
            self._idle.pop().close()


def open_database(path: str, prepare: Prepare, mode: int = OWNER_ONLY) -> sqlite3.Connection:
    """Return a new connection in autocommit mode, set up by `prepare`.

    Creates the file and its folders. Raises StoreUnavailable if that is not possible.
    """
    try:
        make_folders(os.path.dirname(path), folder_mode(mode))
        # SQLite gives the files it creates next to it (`-wal`, `-shm`) the same permissions.
        with _CREATING, suppress(FileExistsError):
            os.close(create(os.path.realpath(path), os.O_RDWR, mode))
    except OSError as error:
        raise StoreUnavailable(f"cannot create the store {path}: {error}") from error
    # Autocommit, because the callers send BEGIN and COMMIT themselves. The pool takes care of
    # threads.
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        patiently(lambda: prepare(db, path))
    except BaseException:
        db.close()
        raise
    return db


def patiently(action: Callable[[], T]) -> T:
    """Return what `action` returns, and retry while another process locks the file.

    SQLite waits for locks by itself, but not in every situation: switching a file to WAL mode, for
    example, fails at once.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) not in _LOCKED or time.monotonic() > until:
                raise
        time.sleep(0.005)


def damage_text(path: str, why: object) -> str:
    """Return what to tell of a damaged file."""
    advice = "restore it from a backup, or recover what is readable with the sqlite3 command `.recover`"
    return f"the database {path} is damaged ({why}); {advice}"


def translate(error: Exception, path: str) -> DurabilityError:
    """Return the error of SQLite as an error of Stepwell that says what to do."""
    is_not_text = isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode to UTF-8")
    if is_not_text or _code(error) == sqlite3.SQLITE_CORRUPT:
        return CheckpointCorrupt(damage_text(path, error))
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} is not a SQLite database and was not changed; choose another file")
    return StoreUnavailable(f"cannot use the store {path}: {error}")


def _code(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)  # absent if Python's module raised the error
    return None if code is None else code & 0xFF  # the primary code, without the extended bits


_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
