"""Made `postgres-1.sql`, once, with the code that wrote format 1: statements that create such a schema and fill it."""

import asyncio
import sys
from pathlib import Path

import psycopg
from psycopg import sql
from store_rules import record
from store_rules_beside import question

from holdfast.durable.ownership import Owner
from holdfast.durable.ports import Along
from holdfast.stores.postgres_schema import STEPS
from holdfast.stores.postgres_store import PostgresStore
from postgres_server import dsn, fresh_schema

TABLES = ("runs", "commits", "memory", "mail", "requests", "leases")
ODD = "a\0b"


async def fill(store: PostgresStore) -> None:
    await store.append(record("r", 0, body={"state": 0}, at="2026-01-01T00:00:00+00:00"))
    await store.append(record("Other Run", 0, workflow="Other Workflow", outputs=True, at="2026-01-02T00:00:00+00:00"))
    await store.post("r", "used", b"0")
    later = record("r", 1, frame=False, outputs=True, status="waiting", body={"changed": 1}, checkpoint_id="second",
                   at="2026-01-03T00:00:00+00:00")  # fmt: skip
    await store.append(later, Along(consumed=("used",), asked=(question("r", "q"),), wake="2026-02-01"))
    await store.append(record(ODD, 0, workflow=ODD, at="2026-01-01T00:00:00+00:00"))
    await store.post("r", "k", b'{"answer":true}')
    await store.remember("r", 2, "k", b'{"done":true}')
    await store.remember("new", 0, "k", b"1")
    await store.claim("r", Owner("host", "machine", 1, "0", "drive"), seconds=3600 * 24 * 36500)
    await store.claim("new", Owner("host", "machine", 1, "0", "drive"), seconds=0)
    await store.close()


with fresh_schema() as name:
    asyncio.run(fill(PostgresStore(dsn(), schema=name)))
    lines = [*STEPS, "UPDATE {schema}.holdfast SET format = 1;"]
    with psycopg.connect(dsn()) as db:
        for table in TABLES:
            found = db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name, table)))
            assert found.description is not None
            columns = ", ".join(column.name for column in found.description)
            for row in found.fetchall():
                values = ", ".join(sql.Literal(value).as_string(db) for value in row)
                lines.append(f"INSERT INTO {{schema}}.{table} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({values});")
            if "seq" in columns.split(", "):
                count = f"coalesce((SELECT max(seq) FROM {{schema}}.{table}), 0) + 1"
                lines.append(f"SELECT setval(pg_get_serial_sequence('{{schema}}.{table}', 'seq'), {count}, false);")
Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
