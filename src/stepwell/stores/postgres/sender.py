"""Sending jobs to the server as one statement, past the driver's cursors.

A cursor of psycopg waits in Python, with several steps for each statement. The writer thread has
nothing else to do, so it lets libpq wait; an event loop sends and reads when the socket is readable.
"""

from __future__ import annotations

import hashlib
import struct
import weakref
from collections.abc import Sequence

import msgspec
import psycopg
from psycopg import errors
from psycopg.abc import Buffer
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from stepwell.stores.postgres.job import Job
from stepwell.stores.postgres.schema import Connection

_TEXT = 25  # the oid of the type `text`
_AS_TEXT, _AS_BYTES = 0, 1
_FORMATS = [_AS_TEXT, _AS_BYTES]
_PREPARED_ALREADY, _NOT_PREPARED = b"42P05", b"26000"  # SQLSTATEs
_decode = msgspec.json.Decoder(list[object]).decode


class Statement:
    """A statement that is sent often, by one thread at a time, prepared once per connection.

    Behind a pooler the text is sent each time: the next call may reach another session, which does not
    have the prepared statement. A pooler that was not recognised is noticed when that happens; nothing
    was executed then. The name of a prepared statement is a hash of its text, so one that already
    exists under that name is the same.

    `shorter` is an alternative for a single job, with columns instead of JSON.
    """

    def __init__(self, query: bytes, shorter: bytes | None = None) -> None:
        self._query = query
        self._name = _name_of(query)
        self._shorter = None if shorter is None else (_name_of(shorter), shorter)
        # By connection, because readers and the writer share connections: not every one has seen
        # this statement.
        self._prepared_on: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._unprepared = False  # once a pooler was noticed

    def call(
        self, db: Connection, jobs: bytes, bodies: Sequence[str | None], *, unprepared: bool = False
    ) -> list[object]:
        """Return the result of each job, waiting for it. Raises what a cursor would."""
        return self._read(db, self._send(db, [jobs, _array(bodies)], unprepared))

    def is_prepared_on(self, db: Connection) -> bool:
        return db in self._prepared_on

    def send(self, db: Connection, job: Job) -> bool:
        """Send a job without waiting. False if the rest has yet to be flushed."""
        # A job that may have been done already goes by JSON: only `work` can look whether it was.
        if self._shorter is not None and job.columns is not None and not job.again:
            (name, query), values, formats = self._shorter, list(job.columns), None
        else:
            name, query, formats = self._name, self._query, _FORMATS
            values = [b"[" + job.line + b"]", _array([job.body])]
        if self.is_prepared_on(db):
            db.pgconn.send_query_prepared(name, values, param_formats=formats, result_format=_AS_TEXT)
        else:
            db.pgconn.send_query_params(query, values, param_formats=formats, result_format=_AS_TEXT)
        return db.pgconn.flush() == 0

    def read_answer(self, db: Connection, result: PGresult | None) -> list[object]:
        """Return the result of what `send` has sent. Raises what a cursor would."""
        if result is None:
            raise psycopg.OperationalError("the server sent no result")
        if _code(result) == _NOT_PREPARED:
            self._unprepared = True
            self._prepared_on.clear()
        return self._read(db, result)

    def _read(self, db: Connection, result: PGresult) -> list[object]:
        if result.status != ExecStatus.TUPLES_OK:
            if _code(result) is None:  # without an SQLSTATE it is an error of libpq: the connection is broken
                message = result.get_error_message()
                db.close()
                raise psycopg.OperationalError(message)
            raise errors.error_from_result(result)
        return _decode(result.get_value(0, 0) or b"[]")

    def _send(self, db: Connection, values: list[Buffer], unprepared: bool) -> PGresult:
        server = db.pgconn
        if not (unprepared or self._unprepared):
            if not self.is_prepared_on(db):
                for name, query in ((self._name, self._query), *([self._shorter] if self._shorter else [])):
                    prepared = server.prepare(name, query)
                    if prepared.status != ExecStatus.COMMAND_OK and _code(prepared) != _PREPARED_ALREADY:
                        return prepared
                self._prepared_on.add(db)
            result = server.exec_prepared(self._name, values, param_formats=_FORMATS, result_format=_AS_TEXT)
            if _code(result) != _NOT_PREPARED:
                return result
            # There is a pooler after all. Nothing was executed, so the same call may be sent again
            # as text.
            self._unprepared = True
            self._prepared_on.clear()
        return server.exec_params(self._query, values, param_formats=_FORMATS, result_format=_AS_TEXT)


def _name_of(query: bytes) -> bytes:
    return b"stepwell_" + hashlib.sha256(query).hexdigest()[:32].encode()


def _code(result: PGresult) -> bytes | None:
    """Return the SQLSTATE of the server's error, None if it reported none."""
    return result.error_field(DiagnosticField.SQLSTATE) if result.status != ExecStatus.TUPLES_OK else None


def _array(strings: Sequence[str | None]) -> bytes:
    """Return an array of strings in PostgreSQL's binary format: as text, each quote would be escaped.

    The header is: dimensions, has-nulls flag, element type, length, lower bound.
    """
    parts = [struct.pack("!iiIii", 1, int(None in strings), _TEXT, len(strings), 1)]
    for text in strings:
        body = None if text is None else text.encode()
        parts.append(struct.pack("!i", -1) if body is None else struct.pack("!i", len(body)) + body)
    return b"".join(parts)
