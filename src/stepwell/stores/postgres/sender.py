"""Jobs on their way to the server: one statement, sent without the detours of the driver's cursors.

A cursor of psycopg waits in Python, with several turns for each statement. A thread that has nothing else to do than to
wait lets libpq do that; an event loop sends, and listens when there is something to hear.
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

_TEXT = 25  # the oid of the type
_AS_TEXT, _AS_BYTES = 0, 1
_FORMATS = [_AS_TEXT, _AS_BYTES]
_PREPARED_ALREADY, _NOT_PREPARED = b"42P05", b"26000"
_decode = msgspec.json.Decoder(list[object]).decode


class Statement:
    """One that is sent again and again, by one thread at a time, so the server prepares it once for each connection.

    Behind a pooler each is sent whole: it may hand what follows to another session, which knows of no such statement. A
    pooler that was not recognised is found out when that happens; then nothing was done. The name says what the
    statement is: one that is there under that name is the same.
    What is sent without waiting may have a shorter form, with columns for values, which is prepared along with it.
    """

    def __init__(self, query: bytes, shorter: bytes | None = None) -> None:
        self._query = query
        self._name = _name_of(query)
        self._shorter = None if shorter is None else (_name_of(shorter), shorter)
        self._prepared_on: weakref.WeakSet[Connection] = weakref.WeakSet()  # readers and the writer share connections
        self._whole = False

    def answers(
        self, db: Connection, jobs: bytes, sheets: Sequence[str | None], *, whole: bool = False
    ) -> list[object]:
        """What the function says to each of the jobs. Raises what a cursor would."""
        return self._read(db, self._send(db, [jobs, _array(sheets)], whole))

    def is_prepared_on(self, db: Connection) -> bool:
        return db in self._prepared_on

    def send(self, db: Connection, job: Job) -> bool:
        """Without waiting, prepared or whole. Whether all of it is on its way; if not, somebody has to wait."""
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

    def understood(self, db: Connection, result: PGresult | None) -> list[object]:
        """What the function says to what was sent without waiting. Raises what a cursor would."""
        if result is None:
            raise psycopg.OperationalError("the server said nothing")
        if _code(result) == _NOT_PREPARED:
            self._whole = True
            self._prepared_on.clear()
        return self._read(db, result)

    def _read(self, db: Connection, result: PGresult) -> list[object]:
        if result.status != ExecStatus.TUPLES_OK:
            if _code(result) is None:  # not the server says so: the line is broken
                said = result.get_error_message()
                db.close()
                raise psycopg.OperationalError(said)
            raise errors.error_from_result(result)
        return _decode(result.get_value(0, 0) or b"[]")

    def _send(self, db: Connection, values: list[Buffer], whole: bool) -> PGresult:
        server = db.pgconn
        if not (whole or self._whole):
            if not self.is_prepared_on(db):
                for name, query in ((self._name, self._query), *([self._shorter] if self._shorter else [])):
                    made = server.prepare(name, query)
                    if made.status != ExecStatus.COMMAND_OK and _code(made) != _PREPARED_ALREADY:
                        return made
                self._prepared_on.add(db)
            result = server.exec_prepared(self._name, values, param_formats=_FORMATS, result_format=_AS_TEXT)
            if _code(result) != _NOT_PREPARED:
                return result
            self._whole = True
            self._prepared_on.clear()
        return server.exec_params(self._query, values, param_formats=_FORMATS, result_format=_AS_TEXT)


def _name_of(query: bytes) -> bytes:
    return b"stepwell_" + hashlib.sha256(query).hexdigest()[:32].encode()


def _code(result: PGresult) -> bytes | None:
    """What the server calls its error, None if it reported none."""
    return result.error_field(DiagnosticField.SQLSTATE) if result.status != ExecStatus.TUPLES_OK else None


def _array(texts: Sequence[str | None]) -> bytes:
    """An array of texts as PostgreSQL sends it in binary: as text, every quote in a body would have to be escaped."""
    parts = [struct.pack("!iiIii", 1, int(None in texts), _TEXT, len(texts), 1)]
    for text in texts:
        body = None if text is None else text.encode()
        parts.append(struct.pack("!i", -1) if body is None else struct.pack("!i", len(body)) + body)
    return b"".join(parts)
