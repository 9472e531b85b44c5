"""Connections to one server that may go away and come back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import RawCursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, Ping
from psycopg.types.array import ListBinaryDumper

from .postgres_errors import CROWDED, Passing, away, passing, refused, stays_refused, translated
from .postgres_schema import Connection, prepare, quoted

T = TypeVar("T")
C = TypeVar("C", bound="psycopg.Connection[tuple[Any, ...]]")
Work = Callable[[Connection, bool], T]
"""Done on a connection. The second argument says that it may have been done already, and the answer was lost."""

UNLESS_SAID_OTHERWISE = {
    "connect_timeout": "10",
    "keepalives_idle": "5",  # with the next two: a server whose machine is gone is noticed after 11 seconds
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "11000",
    "fallback_application_name": "holdfast",
}
ATTEMPTS = 3  # a server that is there and refuses us so often means it
SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks whether the server is back


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """One that may be dropped without being closed, in a forked child or when the program ends."""

    def __del__(self, _: Any = None, /) -> None:
        """Nothing to say: libpq closes the socket, and only in the process that opened it."""


class _Ours(_Connection):
    """One for our own statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = RawCursor


class Guest(_Connection):
    """One that is given to somebody else's function, inside a transaction that is ours to end."""

    def commit(self) -> None:
        raise RuntimeError(
            "what a step writes is committed with its result: return, and it is; raise, and it is undone"
        )

    def rollback(self) -> None:
        raise RuntimeError("what a step writes is undone if it raises; use `with connection.transaction():` for a part")

    def canceller(self) -> Callable[[], None]:
        """Stops the statement that is under way. May be called from any thread, at any time."""
        try:
            return self.pgconn.cancel_conn().blocking
        except psycopg.NotSupportedError:  # an older libpq
            return self.pgconn.get_cancel().cancel

    def leave(self) -> None:
        """Undo what is not committed, and end."""
        self.pgconn.finish()


class Link:
    """Open connections, each lent to one user at a time."""

    def __init__(self, dsn: str, schema: str, patience: float) -> None:
        """Raises ValueError if that cannot be a dsn or a schema. Connects at the first use."""
        quoted(schema)
        try:
            said = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:  # its words may show a part of the dsn, and that may be the password
            raise ValueError(
                "that is no dsn of PostgreSQL: it looks like 'postgresql://user:password@host/database' "
                "or 'host=... dbname=... user=... password=...'"
            ) from None
        self.where = _where(said, schema)
        self._dsn = make_conninfo(dsn, **{k: v for k, v in UNLESS_SAID_OTHERWISE.items() if k not in said})
        self._schema, self._patience = schema, patience
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = self._known = False
        self._away_since: float | None = None  # whoever finds the server back says so for all

    def use(self, work: Work[T]) -> T:
        """What the work gives; done again on another connection if the server went away meanwhile.

        Raises StoreUnavailable if it stays away longer than our patience. Errors of the driver come out translated.
        """

        def on_a_connection(again: bool) -> T:
            with self._lend() as db:
                return work(db, again)

        return self._patiently(on_a_connection)

    def guest(self) -> Guest:
        """A connection for one use that is not ours: as the driver makes it, and nothing is set."""
        return self._patiently(lambda again: self._reach(Guest))

    def _patiently(self, work: Callable[[bool], T]) -> T:
        again, since, pause = False, None, 0.0
        while True:
            try:
                found = work(again)
            except Passing as trouble:
                again = trouble.sent = again or trouble.sent
                since = self._bear(trouble, since)
            else:
                self._away_since = None
                return found
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(max(pause * 1.5, SHORTEST), LONGEST)

    def close(self) -> None:
        """Close every connection that is not in use; those that are, when they come back."""
        with self._lock:
            self._closed = True
        self._forget_idle()

    def _bear(self, trouble: Passing, since: float | None) -> float:
        """Since when there is trouble. Raises if that is too long: for everybody, or for this piece of work alone."""
        now = time.monotonic()
        self._away_since = self._away_since or now
        since = min(since or now, self._away_since)
        if now - since >= self._patience:
            raise away(trouble, self.where, self._patience) from trouble.cause
        return since

    @contextmanager
    def _lend(self) -> Iterator[Connection]:
        with self._lock:
            db = self._idle.pop() if self._idle else None
        if db is None:
            db = self._connect()
        try:
            yield db
        except psycopg.Error as error:
            trouble = self._part_with(db, error)
            if trouble is None:
                raise translated(error, self.where) from error
            raise trouble from error
        except BaseException:
            db.close()  # in the midst of something
            raise
        self.take_back(db)

    def idle(self, suits: Callable[[Connection], bool]) -> Connection | None:
        """One that is open and suits, without waiting. To be given back, or parted with."""
        with self._lock:
            found = next((db for db in self._idle if suits(db)), None)
            if found is not None:
                self._idle.remove(found)
            return found

    def is_in_doubt(self, db: Connection, error: psycopg.Error) -> bool:
        """Part with a connection on which something failed. Whether it was sent, and nobody said how it went."""
        trouble = self._part_with(db, error)
        return trouble is not None and trouble.sent

    def _part_with(self, db: Connection, error: psycopg.Error) -> Passing | None:
        trouble = passing(error, broken=db.closed)
        db.close()
        if trouble is not None and trouble.sent:
            self._forget_idle()  # they are of the same age, and most likely broken too
        return trouble

    def take_back(self, db: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(db)
                return
        db.close()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _connect(self) -> Connection:
        """A connection in autocommit mode that prepares nothing by itself: a pooler may stand in between."""
        db = self._reach(_Ours)
        try:
            db.adapters.register_dumper(list, ListBinaryDumper)  # as text, every quote in a body would be escaped
            prepare(db, self._schema, self.where, known=self._known)
        except psycopg.Error as error:
            trouble = passing(error, broken=db.closed)
            db.close()
            if trouble is None:
                raise translated(error, self.where) from error
            trouble.sent = False  # what was sent was the preparing, and that is done anew
            raise trouble from error
        except BaseException:
            db.close()
            raise
        self._known = True
        return db

    def _reach(self, kind: type[C]) -> C:
        for attempt in range(ATTEMPTS):
            try:
                return kind.connect(self._dsn, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
            except psycopg.Error as error:
                if stays_refused(error):
                    raise refused(error, self.where) from error
                is_there = PGconn.ping(self._dsn.encode()) in (Ping.OK, Ping.NO_ATTEMPT)
                if not is_there or any(words in str(error) for words in CROWDED):
                    raise Passing(error, sent=False) from error
                if attempt == ATTEMPTS - 1:
                    raise refused(error, self.where) from error
        raise AssertionError


def _where(said: dict[str, Any], schema: str) -> str:
    """The store in words. Not the dsn: that holds a password."""
    host, name = said.get("host") or said.get("hostaddr"), said.get("dbname")
    database = "the PostgreSQL database" + (f" {name!r}" if name else "") + (f" on {host}" if host else "")
    return f"schema {schema!r} of {database}"
