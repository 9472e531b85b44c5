"""Connections of the driver: calls are sent together, and every wait has an end.

Calls are sent by libpq in its pipeline mode, past the cursors of psycopg: a cursor costs more than
the server needs for the statement. They are one round trip and, unless one is open, one transaction.

Nothing reports a connection that is dead after a failover without a reset, behind a lossy firewall,
or with a server that hangs. So when a statement has had no answer for a while, a second connection,
the probe, asks the server what it is doing. A session that works on a statement of that age is a
sign of life, however long the statement takes. If the server answers but does not work for this
connection, the connection is lost; if it does not answer at all, its time runs out. Both end the
wait with the error of a broken connection, and what handles lost answers takes over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from stepwell.stores.postgres.tables import FORMAT
from stepwell.stores.postgres.values import Encoded, Row

T = TypeVar("T")

AS_TEXT, AS_BYTES = 0, 1  # formats of libpq
SHORTEST_LIMIT = 1.0  # seconds that an answer may always take, even with a shorter timeout
PROBE_AFTER = 3.0  # seconds without an answer; a third of the limit if that is less
PROBE_SECONDS = 5.0  # after which a probe has failed, and another one is sent
# How often in a row the server must deny that it works for a connection. Once is not enough: the
# answer may be on its way.
DENIALS = 2
STANDSTILL = 2.0  # seconds between two looks that mean this process was stopped, or its machine asleep


class ServerProbe(Protocol):
    """Finds out whether a silent server still works."""

    def probe(self, session: int | None, sent: float, seconds: float) -> bool | None:
        """Ask the server, within some seconds, whether a session works on what was sent at that moment.

        The session may be unknown. Returns None if the server does not answer.
        """

    def note_failure(self, cause: Exception) -> None:
        """Note that the server is silent."""


class Call(NamedTuple):
    """A statement with its values."""

    query: bytes
    values: Encoded = ()
    # Under which name sessions prepare it; empty: they do not. A hash of the query, so that a
    # statement that exists under that name is the same.
    name: bytes = b""
    formats: Sequence[int] | None = None


def function_call(schema: str, function: str, values: int, body: int | None = None) -> Call:
    """Return a call of a function in a schema, whose name is quoted, without its values.

    `body` is the place of a body among them. It is sent as bytes: libpq would cut a text at a NUL.
    """
    places = ", ".join(f"${n}" for n in range(1, values + 1))
    query = f"SELECT * FROM {schema}.{function}({FORMAT}, {places})".encode()
    name = f"stepwell_{hashlib.sha256(query).hexdigest()[:32]}".encode()
    return Call(query, (), name, [AS_BYTES if n == body else AS_TEXT for n in range(values)])


class Connection(psycopg.Connection[Row]):
    """A connection that is watched while a caller waits for an answer.

    It may be dropped without being closed, in a forked child or when the program exits.
    """

    # The process that serves it; None behind a pooler, where each transaction may have another one.
    session: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit = 0.0  # seconds for which the server may be silent
        self._watcher: ServerProbe | None = None
        self._statements: set[bytes] = set()  # the names of those that are prepared
        self._transformer = Transformer()  # without a reference to the connection: no cycle

    @classmethod
    def open(cls, dsn: str, limit: float, watcher: ServerProbe | None = None) -> Self:
        """Connect in autocommit mode. `limit` is how many seconds the server may be silent.

        Psycopg prepares nothing by itself: a pooler may be in between.
        """
        db = cls.connect(dsn, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
        db._limit, db._watcher = limit, watcher
        return db

    def call(self, *calls: Call) -> list[list[Row]]:
        """Send calls together, wait, and return the rows of each."""
        return self.wait(self.exchange(calls))

    def exchange(self, calls: Iterable[Call]) -> PQGen[list[list[Row]]]:
        """Send calls and return the rows of each, once all are done: a generator as psycopg waits for.

        Raises the first error, as a cursor would; then nothing was done, unless the connection broke.
        """
        server = self.pgconn
        server.enter_pipeline_mode()
        for call in calls:
            self._send(call)
        server.pipeline_sync()
        while server.flush():
            # Reading while sending: the server may stop to read until its answers are read.
            ready = yield Wait.RW
            if ready and ready & Ready.R:
                server.consume_input()
        answers: list[list[Row]] = []
        failed: PGresult | None = None
        # Only the end of the pipeline says that the transaction was committed.
        while (result := (yield from self._fetch())).status != ExecStatus.PIPELINE_SYNC:
            if result.status == ExecStatus.TUPLES_OK:
                self._transformer.set_pgresult(result)
                answers.append(self._transformer.load_rows(0, result.ntuples, tuple))
            elif result.status == ExecStatus.FATAL_ERROR and failed is None:
                failed = result
        server.exit_pipeline_mode()
        if failed is not None:
            raise errors.error_from_result(failed)
        return answers

    def _send(self, call: Call) -> None:
        server, name, is_prepared = self.pgconn, call.name, call.name and self.session is not None
        # In the same round trip. If it fails, the connection is closed, like after every error.
        if is_prepared and name not in self._statements:
            server.send_prepare(name, call.query)
            self._statements.add(name)
        if is_prepared:
            server.send_query_prepared(name, call.values, param_formats=call.formats, result_format=AS_BYTES)
        else:
            server.send_query_params(call.query, call.values, param_formats=call.formats, result_format=AS_BYTES)

    def _fetch(self) -> PQGen[PGresult]:
        """Return the next result. Raises OperationalError if the connection is broken."""
        server = self.pgconn
        while True:
            while server.is_busy():
                if (yield Wait.R):
                    server.consume_input()
            result = server.get_result()  # None after each statement
            if result is not None:
                return result
            if server.status == ConnStatus.BAD:
                raise psycopg.OperationalError(server.get_error_message())

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
                return end.value  # type: ignore[no-any-return]
            now = time.monotonic()
            # If this process itself stood still, the silence is not the server's.
            heard = now if ready or now - looked > STANDSTILL else heard
            if now - heard >= min(PROBE_AFTER, self._limit / 3) and self._watcher is not None:
                works = self._watcher.probe(self.session, sent, min(PROBE_SECONDS, max(heard + self._limit - now, 0.1)))
                heard, denials = (now, 0) if works else (heard, denials + (works is not None))
                if denials >= DENIALS:
                    raise psycopg.OperationalError("the server has lost the connection without closing it")
            looked = time.monotonic()
            if looked - heard >= self._limit:
                error = psycopg.OperationalError(f"the server was silent for {looked - heard:.1f} s")
                if self._watcher is not None:
                    self._watcher.note_failure(error)
                raise error

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
