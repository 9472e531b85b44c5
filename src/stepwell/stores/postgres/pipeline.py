"""Statements that are sent together: one round trip and, unless one is open, one transaction.

They are sent by libpq in its pipeline mode, past the cursors of psycopg: a cursor costs more than
the server needs for the statement. Waiting is left to psycopg, or to an event loop (`writer`), so
`exchange` is a generator in psycopg's manner: it yields what it waits for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from stepwell.stores.postgres.tables import FORMAT
from stepwell.stores.postgres.values import Encoded, Row

if TYPE_CHECKING:
    from stepwell.stores.postgres.connection import Connection

AS_TEXT, AS_BYTES = 0, 1  # formats of libpq


class Statement(NamedTuple):
    """A statement, and how its values are sent."""

    query: bytes
    # Under which sessions prepare it; empty: they do not. A hash of the query, so that a statement
    # that exists under that name is the same.
    name: bytes = b""
    formats: Sequence[int] | None = None

    @classmethod
    def of_function(cls, schema: str, function: str, values: int, *, body: int | None = None) -> Statement:
        """Return a call of a function in the schema, which is quoted; `body` is the place of a body in the values.

        A body is sent as bytes: libpq would cut a text at a NUL.
        """
        places = ", ".join(f"${n}" for n in range(1, values + 1))
        query = f"SELECT * FROM {schema}.{function}({FORMAT}, {places})".encode()
        name = b"stepwell_" + hashlib.sha256(query).hexdigest()[:32].encode()
        return cls(query, name, [AS_BYTES if n == body else AS_TEXT for n in range(values)])


class Call(NamedTuple):
    """A statement with its values."""

    statement: Statement
    values: Encoded = ()


def exchange(db: Connection, calls: Iterable[Call]) -> PQGen[list[list[Row]]]:
    """Send calls and return their rows, once all of them are done.

    Raises the first error, as a cursor would; then nothing was done, unless the connection broke.
    """
    server = db.pgconn
    server.enter_pipeline_mode()
    for call in calls:
        db.send(call)
    server.pipeline_sync()
    while server.flush():
        # Reading while sending: the server may stop to read until its answers are read.
        ready = yield Wait.RW
        if ready and ready & Ready.R:
            server.consume_input()
    answers: list[list[Row]] = []
    failed: PGresult | None = None
    # Only the end of the pipeline says that the transaction was committed.
    while (result := (yield from _fetch(db))).status != ExecStatus.PIPELINE_SYNC:
        if result.status == ExecStatus.TUPLES_OK:
            answers.append(db.rows(result))
        elif result.status == ExecStatus.FATAL_ERROR and failed is None:
            failed = result
    server.exit_pipeline_mode()
    if failed is not None:
        raise errors.error_from_result(failed)
    return answers


def _fetch(db: Connection) -> PQGen[PGresult]:
    """Return the next result. Raises OperationalError if the connection is broken."""
    server = db.pgconn
    while True:
        while server.is_busy():
            if (yield Wait.R):
                server.consume_input()
        result = server.get_result()  # None after each statement
        if result is not None:
            return result
        if server.status == ConnStatus.BAD:
            raise psycopg.OperationalError(server.get_error_message())
