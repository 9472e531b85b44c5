"""The connections of a store, and what to do while the server is away."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from stepwell.errors import StoreUnavailable
from stepwell.stores.postgres.connection import Connection, StepConnection
from stepwell.stores.postgres.errors import Transient, as_transient, translate, unreachable_error
from stepwell.stores.postgres.schema import prepare_schema
from stepwell.stores.postgres.server import Server
from stepwell.stores.postgres.watchdog import SHORTEST_LIMIT

T = TypeVar("T")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts to reach a server that is away


class ConnectionPool:
    """Connections, each lent to one user at a time, over outages of the server.

    All users share one outage: it begins when the server does not answer, and ends with the next
    answer to anybody. Whoever has waited through it for `timeout` seconds gets an error.
    """

    def __init__(self, server: Server, schema: str, timeout: float, connections: int) -> None:
        self._server, self._schema = server, schema
        self._timeout, self._most = timeout, connections
        self._returned = threading.Condition(threading.Lock())
        self._idle: list[Connection] = []
        # Weak: an event loop that was closed in the middle of a statement returns nothing.
        self._lent: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._connecting = 0
        self._is_closed = self._was_prepared = self._is_pooled = False
        self._answered = 0.0  # when the server last answered somebody
        self._failure: Exception | None = None  # the last failure, unless an answer came after it
        self._failed = 0.0  # when that was

    def use(
        self,
        work: Callable[[Connection, bool], T],
        *,
        asked: float | None = None,
        best_effort: bool = False,
        in_doubt: bool = False,
    ) -> T:
        """Return what `work` returns; do it again on another connection if the server goes away.

        Its second argument is True if it may have been done already: the answer was lost. Raises
        StoreUnavailable if the server stays away for longer than the timeout. Errors of the driver
        are raised translated. `asked` is when the caller asked for the work. A best-effort call does
        not wait for a server that others have given up. `in_doubt`: some of the work was sent before,
        and its outcome is unknown.
        """

        def attempt(again: bool, seconds: float) -> T:
            with self._lend(seconds) as db:
                return work(db, again)

        return self._over_outages(attempt, asked, best_effort=best_effort, in_doubt=in_doubt)

    def connect_for_step(self) -> StepConnection:
        """Return a new connection for the user's statements, with the driver's defaults."""
        db = self._over_outages(lambda again, seconds: self._server.connect(StepConnection, seconds))
        db.session = None if self._is_pooled else db.pgconn.backend_pid
        return db

    def _over_outages(
        self,
        attempt: Callable[[bool, float], T],
        asked: float | None = None,
        *,
        best_effort: bool = False,
        in_doubt: bool = False,
    ) -> T:
        asked = time.monotonic() if asked is None else asked
        again, pause, tried = in_doubt, 0.0, False
        while True:
            now, failure = time.monotonic(), self._failure
            waited = now - (self._answered if best_effort and failure is not None else max(asked, self._answered))
            # A call that has waited in a queue through the whole outage, or is a best effort, is
            # tried once, and not at all if somebody has just tried.
            if failure is not None and waited >= self._timeout and (tried or now - self._failed < SHORTEST_LIMIT):
                raise unreachable_error(failure, self._server.where, waited, in_doubt=again) from failure
            try:
                result = attempt(again, max(self._timeout - waited, SHORTEST_LIMIT))
            except Transient as trouble:
                again, tried = again or trouble.sent, True
                self._failure, self._failed = trouble.cause, time.monotonic()
            else:
                self.note_answer()
                return result
            # With jitter, so that many processes do not all knock at the same moment when a server
            # comes back.
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(max(pause * 1.5, SHORTEST_PAUSE), LONGEST_PAUSE)

    def note_answer(self) -> None:
        """Note that the server has answered: an outage is over."""
        self._answered, self._failure = time.monotonic(), None

    # ---------------------------------------------------------------- lending

    def take_idle(self) -> Connection | None:
        """Take an idle connection, without waiting; None if there is none.

        The caller returns it with `give_back`, or discards it.
        """
        with self._returned:
            if not self._idle:
                return None
            db = self._idle.pop()
            self._lent.add(db)
            return db

    def give_back(self, db: Connection) -> None:
        """Return a connection that can be used again."""
        with self._returned:
            self._lent.discard(db)
            if not self._is_closed:
                self._idle.append(db)
            self._returned.notify()
        if self._is_closed:
            db.close()

    def discard(self, db: Connection, error: psycopg.Error) -> Transient | None:
        """Close a connection after an error; return the error if it is a transient one."""
        is_broken = db.broken or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
        trouble = as_transient(error, is_broken=is_broken)
        self._close(db)
        if trouble is not None and trouble.sent:
            self._close_idle()  # they are as old as this one, and most likely broken too
        return trouble

    def close(self) -> None:
        """Close every idle connection now, and those in use when they are returned."""
        self._is_closed = True
        self._close_idle()

    @contextmanager
    def _lend(self, seconds: float) -> Iterator[Connection]:
        db = self._take(seconds)
        try:
            yield db
        except psycopg.Error as error:
            raise (self.discard(db, error) or translate(error, self._server.where)) from error
        except BaseException:
            self._close(db)  # interrupted in the middle of a statement, so it cannot be reused
            raise
        self.give_back(db)

    def _take(self, seconds: float) -> Connection:
        """Return an idle connection or a new one, waiting for some seconds."""
        with self._returned:
            is_free = self._returned.wait_for(lambda: len(self._lent) + self._connecting < self._most, seconds)
            if not is_free:
                raise StoreUnavailable(
                    f"{self._server.where} cannot be used: all {self._most} connections were busy for {seconds:.1f} s; "
                    f"allow more with `connections`"
                )
            if self._idle:
                db = self._idle.pop()
                self._lent.add(db)
                return db
            self._connecting += 1
        try:
            db = self._connect(seconds)
            self._lent.add(db)
            return db
        finally:
            with self._returned:
                self._connecting -= 1
                self._returned.notify()

    def _connect(self, seconds: float) -> Connection:
        """Return a new connection to a schema that is ready for use."""
        db = self._server.connect(Connection, seconds)
        try:
            session = prepare_schema(db, self._schema, self._server.where, must_exist=self._was_prepared)
        except psycopg.Error as error:
            trouble = self.discard(db, error)
            if trouble is None:
                raise translate(error, self._server.where) from error
            raise Transient(trouble.cause, sent=False) from error  # only the preparation was sent
        except BaseException:
            db.close()
            raise
        # A pooler gives its clients an invented process id; if the two differ, there is a pooler.
        self._is_pooled = session != db.pgconn.backend_pid
        db.session = None if self._is_pooled else session
        self._was_prepared = True
        return db

    def _close(self, db: Connection) -> None:
        db.close()
        with self._returned:
            self._lent.discard(db)
            self._returned.notify()

    def _close_idle(self) -> None:
        with self._returned:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()
