"""What is in the schema: its tables and functions, what tells it from others, and how an older one is completed."""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
from psycopg import errors

from ..core.errors import StoreUnavailable
from .postgres_functions import FUNCTIONS

Connection = psycopg.Connection[tuple[Any, ...]]

# Names are compared byte by byte (COLLATE "C"): the same order everywhere, and the fastest.
TABLES = """
CREATE TABLE {schema}.runs (
    run_id   text COLLATE "C" PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    latest   bigint NOT NULL,                                   -- the highest number of the run
    wake     text COLLATE "C"                                   -- when it wants to be woken
) WITH (fillfactor = 60);                                       -- room for the next version of a row beside it
CREATE INDEX runs_to_wake ON {schema}.runs (wake, run_id) WHERE wake IS NOT NULL;

CREATE TABLE {schema}.commits (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order of commits over all runs
    run_id        text COLLATE "C" NOT NULL,
    number        bigint NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    status        text NOT NULL,
    iteration     bigint NOT NULL,
    at            text NOT NULL,
    frame         boolean NOT NULL,
    outputs       boolean NOT NULL,
    body          text NOT NULL,                                -- not jsonb: what was written comes back as it was
    UNIQUE (run_id, number)
);
CREATE INDEX commits_by_checkpoint ON {schema}.commits (checkpoint_id, seq);
CREATE INDEX commits_by_workflow ON {schema}.commits (workflow, seq);
CREATE INDEX commits_with_outputs ON {schema}.commits (run_id, number) WHERE outputs;

CREATE TABLE {schema}.memory (
    run_id text COLLATE "C" NOT NULL,
    place  bigint NOT NULL,
    key    text COLLATE "C" NOT NULL,
    body   text NOT NULL,
    PRIMARY KEY (run_id, place, key)
);

CREATE TABLE {schema}.mail (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- the order of posting
    run_id   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    consumed boolean NOT NULL,                                  -- then it stays, so that the key is taken for ever
    posting  text,                                              -- tells the call that posted it from any other
    body     text NOT NULL,
    UNIQUE (run_id, key)
);
CREATE INDEX mail_to_read ON {schema}.mail (run_id, seq) WHERE NOT consumed;

CREATE TABLE {schema}.requests (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order of asking
    run_id        text COLLATE "C" NOT NULL,
    request_id    text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    executor      text NOT NULL,
    request_type  text NOT NULL,
    response_type text NOT NULL,
    schema        text NOT NULL,
    at            text COLLATE "C" NOT NULL,
    deadline      text,
    UNIQUE (run_id, request_id)
);
CREATE INDEX requests_by_age ON {schema}.requests (at, run_id, seq);
CREATE INDEX requests_by_workflow ON {schema}.requests (workflow, at, run_id, seq);

CREATE TABLE {schema}.leases (
    run_id  text COLLATE "C" PRIMARY KEY,
    host    text NOT NULL,
    machine text NOT NULL,
    pid     bigint NOT NULL,
    started text NOT NULL,
    drive   text NOT NULL,
    until   timestamptz NOT NULL                                -- by the clock of the database
);

CREATE TABLE {schema}.holdfast (format integer NOT NULL);       -- one row: how many steps the schema has gone
INSERT INTO {schema}.holdfast VALUES (0);
"""

STEPS = (TABLES + FUNCTIONS,)  # a schema of format n has gone the first n
FORMAT = len(STEPS)

LONGEST_NAME = 63  # bytes; PostgreSQL cuts off what is longer
UNSAFE = ("\0", "$holdfast$")  # what no quoting allows, and what would end the text of a function


def quoted(schema: str) -> str:
    """The name as it stands in a statement. Raises ValueError for one that cannot be a schema's."""
    if not 0 < len(schema.encode()) <= LONGEST_NAME or any(part in schema for part in UNSAFE):
        raise ValueError(f"a schema cannot be named {schema!r}: 1 to {LONGEST_NAME} bytes, no NUL")
    return '"' + schema.replace('"', '""') + '"'


def prepare(db: Connection, schema: str, where: str, *, known: bool) -> None:
    """Make sure that the schema is ours and of this format, and create or complete it.

    One that is `known` must be there: if it is gone, so are its runs, and an empty one would hide that.
    """
    try:
        found = db.execute(f"SELECT format FROM {quoted(schema)}.holdfast".encode()).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        if known:
            raise
        found = None
    if found is None or found[0] < FORMAT:
        with db.transaction():
            _bring_up_to_date(db, schema, where)
    else:
        _refuse_newer(found[0], where)


def _bring_up_to_date(db: Connection, schema: str, where: str) -> None:
    db.execute(b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # what we see must be of the time after the lock
    db.execute(b"SELECT pg_advisory_xact_lock($1)", [_lock_of(schema)])  # one process at a time; gone with COMMIT
    name = quoted(schema)
    version = _format(db, schema, where)
    _refuse_newer(version, where)
    for step in STEPS[version:]:
        db.execute(step.replace("{schema}", name).encode())
    db.execute(f"UPDATE {name}.holdfast SET format = {FORMAT}".encode())


def _format(db: Connection, schema: str, where: str) -> int:
    """The format of the schema, 0 for one that is empty or was not there. Raises if it is not ours to use."""
    name = quoted(schema)
    ours = db.execute(b"SELECT to_regclass($1) IS NOT NULL", [f"{name}.holdfast"]).fetchone()
    if ours == (True,):
        return int((db.execute(f"SELECT format FROM {name}.holdfast".encode()).fetchone() or (0,))[0])
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
        raise StoreUnavailable(
            f"{where} was written by a newer Holdfast (format {version}, this one knows {FORMAT}); "
            f"it was left as it is. Upgrade Holdfast to use it"
        )


def _lock_of(schema: str) -> int:
    """A number for the schema that no other program is likely to lock."""
    return int.from_bytes(hashlib.sha256(f"holdfast/{schema}".encode()).digest()[:8], "big", signed=True)
