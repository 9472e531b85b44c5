"""Jobs on their way to the server: one statement, sent without the detours of the driver's cursors.

A cursor of psycopg waits in Python, with several turns for each statement. The thread that writes has nothing else to
do than to wait, so it lets libpq do that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField, ExecStatus

from .postgres_schema import Connection

_TEXT = 25  # the oid of the type
_AS_TEXT, _AS_BYTES = 0, 1
_decode = msgspec.json.Decoder(list[object]).decode


def answers(db: Connection, query: bytes, jobs: bytes, sheets: Sequence[str | None]) -> list[object]:
    """What the function says to each of the jobs. Raises what a cursor would."""
    server = db.pgconn
    formats = [_AS_TEXT, _AS_BYTES]
    result = server.exec_params(query, [jobs, _array(sheets)], param_formats=formats, result_format=_AS_TEXT)
    if result.status != ExecStatus.TUPLES_OK:
        if result.error_field(DiagnosticField.SQLSTATE) is None:  # not the server says so: the line is broken
            said = result.get_error_message()
            db.close()
            raise psycopg.OperationalError(said)
        raise errors.error_from_result(result)
    return _decode(result.get_value(0, 0) or b"[]")


def _array(texts: Sequence[str | None]) -> bytes:
    """An array of texts as PostgreSQL sends it in binary: as text, every quote in a body would have to be escaped."""
    parts = [struct.pack("!iiIii", 1, int(None in texts), _TEXT, len(texts), 1)]
    for text in texts:
        body = None if text is None else text.encode()
        parts.append(struct.pack("!i", -1) if body is None else struct.pack("!i", len(body)) + body)
    return b"".join(parts)
