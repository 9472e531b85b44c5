"""A PostgreSQL schema as text: statements that make it again under another name."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from stepwell.stores.postgres.functions import FUNCTIONS
from stepwell.stores.postgres.tables import FORMAT, STEPS
from tests.support.postgres_server import ask, dsn


def dump(schema: str, path: Path) -> None:
    """Write what is in a schema of the present format."""
    made = [*STEPS, f"UPDATE {{schema}}.stepwell SET format = {FORMAT};", FUNCTIONS.replace("{format}", str(FORMAT))]
    tables = [name for (name,) in ask(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1")]
    with psycopg.connect(dsn()) as db:
        rows = [line for table in tables if table != "stepwell" for line in _rows(db, schema, table)]
    path.write_text("\n".join([*made, *rows]) + "\n")


def _rows(db: psycopg.Connection, schema: str, table: str) -> list[str]:
    found = db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
    columns = [column.name for column in found.description or ()]
    lines = []
    for row in found.fetchall():
        given = [Jsonb(value) if isinstance(value, dict) else value for value in row]
        values = ", ".join(sql.Literal(value).as_string(db) for value in given)
        names = ", ".join(columns)
        lines.append(f"INSERT INTO {{schema}}.{table} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values});")
    if "seq" in columns:
        count = f"coalesce((SELECT max(seq) FROM {{schema}}.{table}), 0) + 1"
        lines.append(f"SELECT setval(pg_get_serial_sequence('{{schema}}.{table}', 'seq'), {count}, false);")
    return lines


def load(path: Path, schema: str) -> None:
    """Make a schema of what was written."""
    ask(f"CREATE SCHEMA {schema}")
    with psycopg.connect(dsn()) as db:
        db.execute(path.read_text().replace("{schema}", schema).encode())
