"""The connections of a store to a server that may go away and come back."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus

from stepwell.errors import StoreUnavailable
from stepwell.stores.postgres.connection import SHORTEST_LIMIT, Call, Connection, StepConnection
from stepwell.stores.postgres.errors import (
    POOLED,
    Transient,
    as_transient,
    refusal_error,
    translate,
    unreachable_error,
)
from stepwell.stores.postgres.schema import prepare_schema, quote_schema
from stepwell.stores.postgres.values import encode

T = TypeVar("T")
C = TypeVar("C", bound=Connection)

# Unless the dsn or the environment sets them.
DEFAULT_OPTIONS = {
    "connect_timeout": "10",
    "keepalives": "1",
    # The next three: the loss of the server's machine is noticed after 5 + 3 * 2 = 11 seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "11000",
    "fallback_application_name": "stepwell",
}
ENVIRONMENT_VARIABLES = {"connect_timeout": "PGCONNECT_TIMEOUT", "fallback_application_name": "PGAPPNAME"}
BEST_EFFORT = 0.0  # stands for the time at which a call was asked for
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts to reach a server that is away

# A session that waits for its client is not working. With track_activities off the state is
# 'disabled' and says nothing, so such a session counts as working. Behind a pooler the session is
# not known ($1 is NULL); then one with a statement of about that age counts. Server and client may
# disagree about the age, not least because a thread starts to count up to a second late.
IS_AT_WORK = b"""
SELECT EXISTS (
    SELECT FROM pg_stat_activity,
        coalesce(extract(epoch FROM clock_timestamp() - query_start), $2::float8) AS age
    WHERE pid <> pg_backend_pid() AND pid = coalesce($1::int, pid)
        AND (state = 'disabled' OR state = 'active' AND wait_event_type IS DISTINCT FROM 'Client')
        AND age <= $2::float8 + 2 AND ($1::int IS NOT NULL OR age >= $2::float8 - 1))
"""


class ConnectionPool:
    """Connections, each lent to one user at a time, over outages of the server.

    All users share one outage: it begins when the server does not answer, and ends with the next
    answer to anybody. A user that has waited through it for `timeout` seconds gets an error.
    """

    def __init__(self, dsn: str, schema: str, timeout: float, connections: int) -> None:
        """Check the settings; connects at the first use.

        Raises ValueError for a bad dsn or schema.
        """
        quote_schema(schema)
        try:
            options = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # Neither the message nor the dsn is repeated, and no cause is kept: they may contain
            # the password.
            raise ValueError(
                "this is not a PostgreSQL dsn; write 'postgresql://user:password@host/database' "
                "or 'host=... dbname=... user=... password=...'"
            ) from None
        set_by_user = options.keys() | {
            name for name, variable in ENVIRONMENT_VARIABLES.items() if variable in os.environ
        }
        self.dsn = make_conninfo(dsn, **{k: v for k, v in DEFAULT_OPTIONS.items() if k not in set_by_user})
        self.limit = max(timeout, SHORTEST_LIMIT)  # seconds that the server may be silent
        self._where, self._schema, self._timeout, self._most = _where(options, schema), schema, timeout, connections
        self._returned = threading.Condition()
        self._idle: list[Connection] = []
        # With the event loop that holds it, if one does. Weak: a closed loop returns nothing.
        self._lent: weakref.WeakKeyDictionary[Connection, weakref.ref[asyncio.AbstractEventLoop] | None]
        self._lent = weakref.WeakKeyDictionary()
        self._connecting = 0
        self._is_closed = self._is_pooled = self._was_prepared = False
        self._answered = self._failed = 0.0  # when the server last answered somebody, and last failed to
        self._failure: Exception | None = None  # the last failure, unless an answer came after it

    def use(self, work: Callable[[Connection, bool], T], *, asked: float | None = None, in_doubt: bool = False) -> T:
        """Return what `work` returns; do it again on another connection if the server goes away.

        Its second argument is True if it may have been done already: the answer was lost. Raises
        StoreUnavailable if the server stays away for longer than the timeout. Errors of the driver
        are raised translated. `asked` is when the caller asked for the work; BEST_EFFORT does not wait
        for a server that others have given up. `in_doubt`: some of the work was sent before, and its
        outcome is unknown.
        """
        asked = time.monotonic() if asked is None else asked
        again, pause, tried = in_doubt, 0.0, False
        while True:
            now, failure = time.monotonic(), self._failure
            waited = now - max(asked, self._answered)
            # What has waited in a queue through the whole outage, or is a best effort, is tried once,
            # and not at all if somebody has just tried.
            tried = tried or asked <= self._failed > now - SHORTEST_LIMIT
            if failure is not None and waited >= self._timeout and tried:
                raise unreachable_error(failure, self._where, waited, in_doubt=again) from failure
            try:
                with self._lend(max(self._timeout - waited, SHORTEST_LIMIT)) as db:
                    result = work(db, again)
                self.note_answer()
                return result
            except Transient as trouble:
                again, tried = again or trouble.sent, True
                self.note_failure(trouble.cause)
            # With jitter, so that many processes do not all knock at the same moment when a server
            # comes back.
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(max(pause * 1.5, SHORTEST_PAUSE), LONGEST_PAUSE)

    def connect_for_step(self) -> StepConnection:
        """Return a new connection for the user's statements, with the driver's defaults."""

        db = self.use(lambda other, again: self._connect(StepConnection, self.limit))
        db.session = None if self._is_pooled else db.pgconn.backend_pid
        return db

    def note_answer(self) -> None:
        """Note that the server has answered: an outage is over."""
        self._answered, self._failure = time.monotonic(), None

    def note_failure(self, cause: Exception) -> None:
        """Note that the server is away or silent."""
        self._failure, self._failed = cause, time.monotonic()

    # ---------------------------------------------------------------- lending

    def take_idle(self, holder: asyncio.AbstractEventLoop | None = None) -> Connection | None:
        """Take an idle connection, without waiting; None if there is none.

        The caller returns it with `give_back`, or discards it. An event loop may be closed before.
        """
        with self._returned:
            if not self._idle:
                self._reclaim()
            db = self._idle.pop() if self._idle else None
            if db is not None:
                self._lent[db] = None if holder is None else weakref.ref(holder)
            return db

    def give_back(self, db: Connection) -> None:
        """Return a connection that can be used again."""
        with self._returned:
            self._lent.pop(db, None)
            if self._is_closed:
                db.close()
            else:
                self._idle.append(db)
            self._returned.notify()

    def _reclaim(self) -> None:
        """Take back what event loops have not returned before they were closed."""
        for db, holder in list(self._lent.items()):
            loop = None if holder is None else holder()
            if loop is not None and loop.is_closed():
                del self._lent[db]
                if db.pgconn.pipeline_status == PipelineStatus.OFF:
                    self._idle.append(db)
                else:  # in the middle of a statement
                    db.close()

    def discard(self, db: Connection, error: BaseException) -> Transient | None:
        """Close a connection after an error; return the error if it is a transient one."""
        # An error without an SQLSTATE comes from the driver, or from the one who watches the connection.
        is_broken = db.broken or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
        self._is_pooled = self._is_pooled or isinstance(error, POOLED)
        db.close()
        with self._returned:
            self._lent.pop(db, None)
            self._returned.notify()
        if is_broken:
            self._close_idle()  # they are as old as this one, and most likely broken too
        return as_transient(error, is_broken=is_broken)

    def close(self) -> None:
        """Close every idle connection now, and those in use when they are returned."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._returned:
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def _lend(self, seconds: float) -> Iterator[Connection]:
        db = self._take(seconds)
        try:
            yield db
        except psycopg.Error as error:
            raise (self.discard(db, error) or translate(error, self._where)) from error
        except BaseException as error:
            self.discard(db, error)  # interrupted in the middle of a statement, so it cannot be reused
            raise
        self.give_back(db)

    def _take(self, seconds: float) -> Connection:
        """Take an idle connection, or connect, as soon as there are not too many."""
        until = time.monotonic() + seconds
        with self._returned:
            while (db := self.take_idle()) is None and len(self._lent) + self._connecting >= self._most:
                if time.monotonic() > until:
                    raise StoreUnavailable(
                        f"{self._where} cannot be used: all {self._most} connections were busy for {seconds:.1f} s; "
                        f"allow more with `connections`"
                    )
                self._returned.wait(LONGEST_PAUSE)  # not for ever: a closed event loop returns nothing
            if db is not None:
                return db
            self._connecting += 1
        try:
            db = self._prepare(self._connect(Connection, seconds))
            self._lent[db] = None
            return db
        finally:
            with self._returned:
                self._connecting -= 1
                self._returned.notify()

    # ---------------------------------------------------------------- connecting

    def _connect(self, kind: type[C], seconds: float) -> C:
        """Return a new connection within some seconds.

        Raises Transient if there is no server, or none that accepts connections now, and
        StoreUnavailable if it refuses us for good.
        """
        try:
            return _within(seconds, lambda: kind.open(self.dsn, self.limit, weakref.proxy(self)), undo=kind.close)
        except psycopg.Error as error:
            raise (refusal_error(error, self._where) or Transient(error, sent=False)) from error

    def _prepare(self, db: Connection) -> Connection:
        """Make a new connection ready for use: create or upgrade the schema, and notice a pooler."""
        try:
            session = prepare_schema(db, self._schema, self._where, must_exist=self._was_prepared)
        except psycopg.Error as error:
            if (trouble := self.discard(db, error)) is None:
                raise translate(error, self._where) from error
            raise Transient(trouble.cause, sent=False) from error  # only the preparation was sent
        except StoreUnavailable:
            db.close()
            raise
        # A pooler gives its clients an invented process id; if the two differ, there is a pooler.
        self._is_pooled, self._was_prepared = self._is_pooled or session != db.pgconn.backend_pid, True
        db.session = None if self._is_pooled else session
        return db

    def probe(self, session: int | None, sent: float, seconds: float) -> bool | None:
        """Ask the server, on another connection, whether it works on what was sent to a session."""

        def ask() -> bool:
            dsn = make_conninfo(self.dsn, application_name="stepwell probe")
            with closing(Connection.open(dsn, seconds)) as db:
                return bool(db.call(Call(IS_AT_WORK, encode(session, time.monotonic() - sent)))[0][0][0])

        try:
            return _within(seconds, ask)
        except psycopg.Error as error:
            # A server that refuses us, for any reason, is alive. libpq reports no SQLSTATE while
            # connecting.
            return True if error.sqlstate or "FATAL" in str(error) else None


def _within(seconds: float, work: Callable[[], T], undo: Callable[[T], object] = lambda result: None) -> T:
    """Return the result of work that connects, or raise ConnectionTimeout after so many seconds.

    It is done in a thread that is abandoned if it takes longer: libpq looks up host names with a
    blocking call that no timeout covers. A result that comes too late is undone.
    """
    made: Future[T] = Future()

    def run() -> None:
        try:
            made.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            made.set_exception(error)

    try:
        threading.Thread(target=run, name="stepwell-postgres-connect", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down and starts no threads
        run()
    try:
        return made.result(seconds)
    except TimeoutError:
        made.add_done_callback(lambda late: late.exception() or undo(late.result()))
        raise errors.ConnectionTimeout(f"the server did not answer for {seconds:.1f} s") from None


def _where(options: dict[str, Any], schema: str) -> str:
    """Describe the store for error messages. Not by its dsn, which may contain a password."""
    host, name = options.get("host") or options.get("hostaddr"), options.get("dbname")
    database = "the PostgreSQL database" + (f" {name!r}" if name else "") + (f" on {host}" if host else "")
    return f"schema {schema!r} of {database}"
