"""Connections of the driver whose waits have an end, however silent the server is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGresult

from stepwell.stores.postgres.pipeline import AS_BYTES, Call, exchange
from stepwell.stores.postgres.values import Row
from stepwell.stores.postgres.watchdog import Watchdog

T = TypeVar("T")


class Connection(psycopg.Connection[Row]):
    """A connection that is watched while a caller waits for an answer.

    It may be dropped without being closed, in a forked child or when the program exits.
    """

    # The process that serves this connection; None behind a pooler, where each transaction may have
    # another one.
    session: int | None = None
    watchdog: Watchdog

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._statements: set[bytes] = set()  # names of statements
        self._transformer = Transformer(self)
        # Of the current wait: when it began, when the server last gave a sign of life, when that was
        # last checked, and how often in a row the server denied that it works for this connection.
        self.sent = self.heard = self.looked = 0.0
        self.denials = 0

    @classmethod
    def open(cls, dsn: str, watchdog: Watchdog) -> Self:
        """Connect in autocommit mode.

        Psycopg prepares nothing by itself: a pooler may be in between.
        """
        db = cls.connect(dsn, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
        db.watchdog = watchdog
        return db

    def call(self, *calls: Call) -> list[list[Row]]:
        """Send calls together, wait, and return the rows of each."""
        return [self.rows(result) for result in self.wait(exchange(self, calls))]

    def send(self, call: Call) -> None:
        """Send a call; `exchange` does the rest."""
        statement, server = call.statement, self.pgconn
        values, formats = list(call.values), statement.formats
        if self.session is None or not statement.name:
            server.send_query_params(statement.query, values, param_formats=formats, result_format=AS_BYTES)
            return
        # In the same round trip. If it fails, the connection is discarded, like after every error.
        if statement.name not in self._statements:
            server.send_prepare(statement.name, statement.query)
            self._statements.add(statement.name)
        server.send_query_prepared(statement.name, values, param_formats=formats, result_format=AS_BYTES)

    def rows(self, result: PGresult) -> list[Row]:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def start_wait(self, *, unchecked: float = 0.0) -> None:
        """Note that something is sent now, and that nobody looks at the clock for some seconds."""
        self.sent = self.heard = time.monotonic()
        self.looked, self.denials = self.sent + unchecked, 0

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Wait for the answer to a statement. Everything that the driver sends waits here."""
        self.start_wait()
        return self.resume_wait(gen, *args, **options)

    def resume_wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Wait on, for what an event loop has begun to wait for."""
        return super().wait(self._watched(gen), *args, **options)

    def _watched(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        """Do what `gen` does, and look at the clock whenever nothing came for a while."""
        ready = None
        try:
            while True:
                wanted = gen.send(ready)
                ready = yield wanted
                if not ready:
                    self.watchdog.check(self)
        except StopIteration as end:
            result: T = end.value
            return result

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
