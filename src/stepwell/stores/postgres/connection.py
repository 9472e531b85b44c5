"""Connections of the driver whose waits have an end, however silent the server is.

Nothing reports a connection that is dead after a failover without a reset, behind a lossy firewall,
or with a server that hangs. So when a statement has had no answer for a while, a second connection,
the probe, asks the server what it is doing. A session that works on a statement of that age is a
sign of life, however long the statement takes. If the server answers but does not work for this
connection, the connection is lost; if it does not answer at all, its time runs out. Both end the
wait with the error of a broken connection, and what handles lost answers takes over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGresult

from stepwell.stores.postgres.pipeline import AS_BYTES, Call, exchange
from stepwell.stores.postgres.values import Row

T = TypeVar("T")
# Asks the server about a session (None if unknown) and what was sent to it at that moment, within
# some seconds. Returns whether it works on that, None if it does not answer.
Probe = Callable[[int | None, float, float], bool | None]

SHORTEST_LIMIT = 1.0  # seconds that an answer may always take, even with a shorter timeout
PROBE_AFTER = 3.0  # seconds without an answer; a third of the limit if that is less
PROBE_SECONDS = 5.0  # after which a probe has failed, and another one is sent
# How often in a row the server must deny that it works for a connection. Once is not enough: the
# answer may be on its way.
DENIALS = 2
STANDSTILL = 2.0  # seconds between two looks that mean this process was stopped, or its machine asleep


class Connection(psycopg.Connection[Row]):
    """A connection that is watched while a caller waits for an answer.

    It may be dropped without being closed, in a forked child or when the program exits.
    """

    # The process that serves it; None behind a pooler, where each transaction may have another one.
    session: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._statements: set[bytes] = set()  # the names of those that are prepared
        self._transformer = Transformer()  # without a reference to the connection: no cycle

    @classmethod
    def open(cls, dsn: str, limit: float, probe: Probe | None = None) -> Self:
        """Connect in autocommit mode. `limit` is how many seconds the server may be silent.

        Psycopg prepares nothing by itself: a pooler may be in between.
        """
        db = cls.connect(dsn, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
        db._limit, db._probe = limit, probe
        return db

    def call(self, *calls: Call) -> list[list[Row]]:
        """Send calls together, wait, and return the rows of each."""
        return self.wait(exchange(self, calls))

    def send(self, call: Call) -> None:
        """Send a call; `exchange` does the rest."""
        (query, name, formats), values, server = call.statement, call.values, self.pgconn
        if self.session is None or not name:
            server.send_query_params(query, values, param_formats=formats, result_format=AS_BYTES)
            return
        # In the same round trip. If it fails, the connection is closed, like after every error.
        if name not in self._statements:
            server.send_prepare(name, query)
            self._statements.add(name)
        server.send_query_prepared(name, values, param_formats=formats, result_format=AS_BYTES)

    def rows(self, result: PGresult) -> list[Row]:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Wait for the answer to a statement. Everything that the driver sends waits here."""
        return super().wait(self._watch(gen), *args, **options)

    def _watch(self, gen: PQGen[T]) -> PQGen[T]:
        """Do what `gen` does; raise OperationalError once the server does not work for it.

        It is resumed from time to time even if nothing is ready.
        """
        sent = heard = looked = time.monotonic()
        ready: Any = None
        denials = 0
        while True:
            try:
                ready = yield gen.send(ready)
            except StopIteration as end:
                result: T = end.value
                return result
            now = time.monotonic()
            # If this process itself stood still, the silence is not the server's.
            heard = now if ready or now - looked > STANDSTILL else heard
            if now - heard >= min(PROBE_AFTER, self._limit / 3) and self._probe is not None:
                seconds = min(PROBE_SECONDS, max(heard + self._limit - now, 0.1))
                works = self._probe(self.session, sent, seconds)
                heard, denials = (now, 0) if works else (heard, denials + (works is not None))
                if denials >= DENIALS:
                    raise psycopg.OperationalError("the server has lost the connection without closing it")
            looked = time.monotonic()
            if looked - heard >= self._limit:
                raise psycopg.OperationalError(f"the server was silent for {looked - heard:.1f} s")

    def __del__(self, _: Any = None, /) -> None:
        """Do nothing.

        The driver would warn here; libpq closes the socket, only in the process that opened it.
        """


class StepConnection(Connection):
    """A connection for a user's step, inside a transaction that the store ends."""

    def commit(self) -> None:
        raise RuntimeError(
            "a step must not commit: its writes are committed with its result when it returns; "
            "raise an exception to undo them"
        )

    def rollback(self) -> None:
        raise RuntimeError(
            "a step must not roll back: its writes are undone if it raises; "
            "to undo only some of them, use `with connection.transaction():`"
        )


def within(seconds: float, work: Callable[[], T], undo: Callable[[T], object] = lambda result: None) -> T:
    """Return the result of work that connects, or raise ConnectionTimeout after so many seconds.

    It is done in a thread that is abandoned if it takes longer: libpq looks up host names with a
    blocking call that no timeout covers. A result that comes too late is undone.
    """
    made: Future[T] = Future()
    run = partial(_run, made, work)
    try:
        threading.Thread(target=run, name="stepwell-postgres-connect", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down and starts no threads
        run()
    try:
        return made.result(seconds)
    except TimeoutError:
        made.add_done_callback(lambda late: late.exception() or undo(late.result()))
        raise errors.ConnectionTimeout(f"the server did not answer for {seconds:.1f} s") from None


def _run(made: Future[T], work: Callable[[], T]) -> None:
    try:
        made.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
        made.set_exception(error)
