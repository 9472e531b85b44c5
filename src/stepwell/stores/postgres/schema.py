"""A schema: what tells it from others, how it is created, and how an older one is completed."""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
from psycopg import errors

from stepwell.errors import NewerFormat, StoreUnavailable
from stepwell.stores.postgres.functions import FUNCTIONS
from stepwell.stores.postgres.tables import FORMAT, STEPS

Connection = psycopg.Connection[tuple[Any, ...]]

LONGEST_NAME = 63  # bytes; PostgreSQL cuts off what is longer
UNSAFE = ("\0", "$stepwell$")  # what no quoting allows, and what would end the text of a function


def quote_schema(schema: str) -> str:
    """The name as it stands in a statement. Raises ValueError for one that cannot be a schema's."""
    if not 0 < len(schema.encode()) <= LONGEST_NAME or any(part in schema for part in UNSAFE):
        raise ValueError(f"a schema cannot be named {schema!r}: 1 to {LONGEST_NAME} bytes, no NUL")
    return '"' + schema.replace('"', '""') + '"'


def prepare(db: Connection, schema: str, where: str, *, known: bool) -> int:
    """Make sure that the schema is ours and of this format, and create or complete it. The process that serves us.

    One that is `known` must be there: if it is gone, so are its runs, and an empty one would hide that.
    """
    try:
        row = db.execute(f"SELECT format, pg_backend_pid() FROM {quote_schema(schema)}.stepwell".encode()).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        if known:
            raise
        row = None
    if row is None or row[0] < FORMAT:
        with db.transaction():
            _bring_up_to_date(db, schema, where)
        row = db.execute(b"SELECT 0, pg_backend_pid()").fetchone() or (0, 0)
    else:
        _refuse_newer(row[0], where)
    return int(row[1])


def _bring_up_to_date(db: Connection, schema: str, where: str) -> None:
    db.execute(b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # what we see must be of the time after the lock
    db.execute(b"SELECT pg_advisory_xact_lock($1)", [_lock_of(schema)])  # one process at a time; gone with COMMIT
    name = quote_schema(schema)
    version = _format(db, schema, where)
    _refuse_newer(version, where)
    if version == FORMAT:  # another process was faster, and is using the functions already
        return
    for step in STEPS[version:]:
        db.execute(step.replace("{schema}", name).encode())
    _replace_functions(db, schema)
    db.execute(f"UPDATE {name}.stepwell SET format = {FORMAT}".encode())


def _replace_functions(db: Connection, schema: str) -> None:
    named = b"""
    SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = $1
    """
    for (function,) in db.execute(named, [schema]).fetchall():
        db.execute(f"DROP FUNCTION {function}".encode())
    db.execute(FUNCTIONS.replace("{schema}", quote_schema(schema)).replace("{format}", str(FORMAT)).encode())


def _format(db: Connection, schema: str, where: str) -> int:
    """The format of the schema, 0 for one that is empty or was not there. Raises if it is not ours to use."""
    name = quote_schema(schema)
    ours = db.execute(b"SELECT to_regclass($1) IS NOT NULL", [f"{name}.stepwell"]).fetchone()
    if ours == (True,):
        return int((db.execute(f"SELECT format FROM {name}.stepwell".encode()).fetchone() or (0,))[0])
    if db.execute(b"SHOW server_encoding").fetchone() != ("UTF8",):
        raise StoreUnavailable(f"{where}: the database does not keep text as UTF8; create one that does")
    if db.execute(b"SELECT FROM pg_namespace WHERE nspname = $1", [schema]).fetchone() is None:
        db.execute(f"CREATE SCHEMA {name}".encode())
    tables = b"SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 LIMIT 1"
    if db.execute(tables, [schema]).fetchone() is not None:
        raise StoreUnavailable(f"{where} holds tables of another program; it was left as it is. Name another schema")
    return 0


def _refuse_newer(version: int, where: str) -> None:
    if version > FORMAT:
        raise NewerFormat(
            f"{where} was written by a newer Stepwell (format {version}, this one knows {FORMAT}); "
            f"it was left as it is. Upgrade Stepwell to use it"
        )


def _lock_of(schema: str) -> int:
    """A number for the schema that no other program is likely to lock."""
    return int.from_bytes(hashlib.sha256(f"stepwell/{schema}".encode()).digest()[:8], "big", signed=True)
