"""The schema of a store: how it is recognised, created, and upgraded from an older format."""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
from psycopg import errors

from stepwell.errors import NewerFormat, StoreUnavailable
from stepwell.stores.postgres.functions import FUNCTIONS
from stepwell.stores.postgres.tables import FORMAT, STEPS

Connection = psycopg.Connection[tuple[Any, ...]]

LONGEST_NAME = 63  # bytes; PostgreSQL truncates longer names silently
UNSAFE = ("\0", "$stepwell$")  # no quoting allows a NUL; the other would end the text of a function


def quote_schema(schema: str) -> str:
    """Return the name quoted for a statement.

    Raises ValueError if a schema cannot have that name.
    """
    if not 0 < len(schema.encode()) <= LONGEST_NAME or any(part in schema for part in UNSAFE):
        raise ValueError(
            f"a schema cannot be named {schema!r}; use 1 to {LONGEST_NAME} bytes, without NUL or '$stepwell$'"
        )
    return '"' + schema.replace('"', '""') + '"'


def prepare_schema(db: Connection, schema: str, where: str, *, must_exist: bool) -> int:
    """Create or upgrade the schema if necessary; return the process id of our session.

    Raises StoreUnavailable or NewerFormat, and changes nothing, if the schema is not ours to use. With
    `must_exist` a missing schema is an error: it was there before, so its runs are gone, and a new, empty
    schema would hide that.
    """
    try:
        query = f"SELECT coalesce(max(format), 0), pg_backend_pid() FROM {quote_schema(schema)}.stepwell"
        version, session = _query(db, query)
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        if must_exist:
            raise
        version = 0
    if version < FORMAT:
        with db.transaction():
            _bring_up_to_date(db, schema, where)
        version, session = _query(db, f"SELECT {FORMAT}, pg_backend_pid()")
    _refuse_newer(version, where)
    return int(session)


def _bring_up_to_date(db: Connection, schema: str, where: str) -> None:
    # Under any stricter level, a snapshot taken before the lock would hide what the process before
    # us did.
    db.execute(b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    # One process at a time. The lock ends with the transaction.
    _query(db, "SELECT pg_advisory_xact_lock($1)", _lock_of(schema))
    version = _format(db, schema, where)
    _refuse_newer(version, where)
    if version < FORMAT:  # otherwise another process was faster, and already uses the functions
        script = "".join((*STEPS[version:], FUNCTIONS, "UPDATE {schema}.stepwell SET format = {format}"))
        db.execute(script.replace("{schema}", quote_schema(schema)).replace("{format}", str(FORMAT)).encode())


def _format(db: Connection, schema: str, where: str) -> int:
    """Return the format of the schema, 0 if it is empty; create it if it does not exist.

    Raises StoreUnavailable if it is not ours to use.
    """
    name = quote_schema(schema)
    if _query(db, "SELECT to_regclass($1) IS NOT NULL", f"{name}.stepwell") == (True,):
        return int(_query(db, f"SELECT coalesce(max(format), 0) FROM {name}.stepwell")[0])
    if _query(db, "SHOW server_encoding") != ("UTF8",):
        raise StoreUnavailable(f"{where}: the database encoding is not UTF8; use a database with ENCODING 'UTF8'")
    if _query(db, "SELECT to_regnamespace($1) IS NULL", name) == (True,):
        db.execute(f"CREATE SCHEMA {name}".encode())
    if _query(db, "SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace($1) LIMIT 1", name):
        raise StoreUnavailable(f"{where} holds tables of another program and was not changed; choose another schema")
    return 0


def _query(db: Connection, query: str, *values: object) -> tuple[Any, ...]:
    """Return the first row. A raw cursor: a schema may contain a %, which others read as a placeholder."""
    return psycopg.RawCursor(db).execute(query.encode(), values or None).fetchone() or ()


def _refuse_newer(version: int, where: str) -> None:
    if version > FORMAT:
        raise NewerFormat(
            f"{where} was written by a newer Stepwell (format {version}, this one knows {FORMAT}) "
            f"and was not changed; upgrade Stepwell to use it"
        )


def _lock_of(schema: str) -> int:
    """Return the key of an advisory lock for the schema that no other program is likely to use."""
    return int.from_bytes(hashlib.sha256(f"stepwell/{schema}".encode()).digest()[:8], "big", signed=True)
