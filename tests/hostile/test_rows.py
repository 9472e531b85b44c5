"""The rows of a database, changed by somebody else: read, or refused by name; and other runs are read all the same."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import CheckpointCorrupt
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from tests.hostile.texts import CORPUS
from tests.hostile.victim import only_typed
from tests.support.payments import RUN, Payment
from tests.support.postgres_server import dsn, fresh_schema

OTHER = range(15)  # events of the other run
TEXTS = ["''", "'x'", "'../../x'", "'9999'", "'{}'", "'[]'", f"'{'[' * 100_000}'", "'2026-01-01'"]
VALUES = {
    "TEXT": [*TEXTS, "CAST(X'ff00' AS TEXT)", "char(0)", "CAST(zeroblob(10000000) AS TEXT)"],
    "INTEGER": ["-1", "0", "1", "99", "9223372036854775807"],
    "REAL": ["-1", "1e308", "9e999"],
}


async def fill(store: Any) -> None:
    """A run that waits, with memory, mail and tags, and another run that is done."""
    await Payment().drive(store, "other")
    await Payment().wait(store)
    guarded = BuiltInStorage(store)._store
    await guarded.write_log(RUN, 1, "1.0/step/0/x", b'{"format":1,"due":""}')
    await guarded.send(RUN, "input/7/x", b'{"kind":"input","format":1,"value":1}')


async def read_everything(store: Any) -> int:
    storage, done = BuiltInStorage(store), 0
    for what, work in {
        "list_checkpoints": storage.list_checkpoints(),
        "list_runs": storage.list_runs(),
        "pending_requests": storage.pending_requests(),
        "ready_runs": storage.ready_runs(),
        "get_latest": storage.get_latest(run_id=RUN),
        "event_history": storage.event_history(RUN),
        "run": Payment().drive(store, RUN),
    }.items():
        done += await only_typed(what, work)
    assert len(await storage.event_history("other")) == len(OTHER)
    return done


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """The file of a store. What is written to it need not survive the test, so it is not waited for."""
    store = SQLiteStore(tmp_path / "sound.db")
    await fill(store)
    await store.close()
    return tmp_path / "sound.db"


def tables(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The columns of each table, with their types."""
    with sqlite3.connect(path) as db:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'").fetchall()
        found = {name: [row[1:3] for row in db.execute(f"PRAGMA table_info({name})")] for (name,) in names}
    db.close()
    return found


async def after(path: Path, statement: str, *values: Any) -> int | None:
    """How much can be read after a statement; None if SQLite did not take it."""
    copy = path.with_name("changed.db")
    shutil.copy(path, copy)
    db = sqlite3.connect(copy)
    try:
        db.execute(statement, values)
        db.commit()
    except sqlite3.IntegrityError:
        return None
    finally:
        db.close()
    store = SQLiteStore(copy)
    try:
        return await read_everything(store)
    finally:
        await store.close()
        copy.unlink()


async def test_what_was_not_touched_is_read(path: Path) -> None:
    assert await after(path, "SELECT 1") == 7


def changes() -> Iterator[tuple[str, str, str]]:
    for table, columns in {
        "runs": "hash workflow status began caller tags priority wake "
        "owner until fence takeovers dropped_below unordered parent_id parent_run parent_number",
        "commits": "number checkpoint_id status iteration at snapshot outputs latest_only foreign_id decisions body",
        "superstep_log": "place key body",
        "signals": "key position body",
        "requests": "request_id workflow executor request_type response_type schema at deadline body",
        "tags": "name value called began",
    }.items():
        yield from ((table, column, f"{table}.{column}") for column in columns.split())


def of(run_id: str, table: str = "commits") -> str:
    """Which rows of a table belong to a run."""
    has_id = table in ("runs", "requests")
    return f"run_id = '{run_id}'" if has_id else f"run = (SELECT run FROM runs WHERE run_id = '{run_id}')"


@pytest.mark.parametrize(("table", "column"), [one[:2] for one in changes()], ids=[one[2] for one in changes()])
async def test_a_row_that_says_something_else_is_read_or_refused(path: Path, table: str, column: str) -> None:
    kind = dict(tables(path))[table]
    values = VALUES[dict(kind)[column]]
    some = (values[hash_of(table, column) % (len(values) - 1)], values[0])  # not the last, which is large
    for value in dict.fromkeys(values if column in ("body", "tags", "schema", "fence") else some):
        await after(path, f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {of(RUN, table)}")


def hash_of(*words: str) -> int:
    """The same in every process."""
    return sum(map(ord, "".join(words)))


async def test_every_column_is_tried(path: Path) -> None:
    tried = {(table, column) for table, column, _ in changes()}
    # Workers and webhooks belong to no run: see the next tests.
    apart = ("workers", "webhooks", "outbox")
    there = {(table, name) for table, columns in tables(path).items() for name, _ in columns if table not in apart}
    keys = {(table, column) for table in tables(path) for column in ("run", "run_id")}
    assert there - tried - keys == {("commits", "position"), ("requests", "position")}


async def test_a_row_of_a_worker_that_says_something_else_is_refused_and_stops_no_run(path: Path) -> None:
    for body in ("", "[", "{}", '{"name":1}', "[" * 100_000):
        db = sqlite3.connect(path)
        db.execute("INSERT OR REPLACE INTO workers VALUES ('press', 'p', 1.0, ?)", (body,))
        db.commit()
        db.close()
        store = SQLiteStore(path)
        with pytest.raises(CheckpointCorrupt, match="press"):
            await BuiltInStorage(store).list_workers()
        assert len(await BuiltInStorage(store).list_runs()) == 2
        await store.close()


async def test_rows_of_webhooks_that_say_something_else_are_refused_by_name(path: Path) -> None:
    for kinds in ("", "[", "{}", "[1]", "[" * 100_000):
        db = sqlite3.connect(path)
        db.execute("INSERT OR REPLACE INTO webhooks VALUES ('w-1', NULL, ?, 0, '{}')", (kinds,))
        db.commit()
        db.close()
        store = SQLiteStore(path)
        with pytest.raises(CheckpointCorrupt, match="w-1"):
            await store.webhooks()
        assert len(await BuiltInStorage(store).list_runs()) == 2
        await store.close()


@pytest.mark.parametrize("table", ["commits", "superstep_log", "signals", "requests", "runs", "tags"])
async def test_rows_that_are_gone_are_missed_or_not_needed(path: Path, table: str) -> None:
    await after(path, f"DELETE FROM {table} WHERE {of(RUN, table)}")
    if table == "commits":
        assert await after(path, f"DELETE FROM commits WHERE {of(RUN)} AND number = 0") != 7


@pytest.mark.parametrize("name", CORPUS)
async def test_a_body_made_to_attack_is_refused_by_name(path: Path, name: str) -> None:
    text = CORPUS[name].decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape")
    done = await after(path, f"UPDATE commits SET body = CAST(? AS TEXT) WHERE {of(RUN)} AND number = 1", text)
    assert done is not None
    assert done < 5


async def test_bodies_that_changed_places_are_refused(path: Path) -> None:
    for mine, theirs in (((RUN, 1), ("other", 1)), ((RUN, 0), ("other", 0)), ((RUN, 0), (RUN, 1))):
        body = f"SELECT body FROM commits WHERE {of(theirs[0])} AND number = {theirs[1]}"
        where = f"{of(mine[0])} AND number = {mine[1]}"
        done = await after(path, f"UPDATE commits SET body = ({body}) WHERE {where}")
        assert done is not None
        assert done < 6, (mine, theirs)


OF_RUN = "run = (SELECT key FROM {schema}.runs WHERE run_id = 'invoice')"
SWAPPED = (
    "(SELECT body FROM {schema}.commits JOIN {schema}.runs ON key = run WHERE run_id = 'other' AND commits.number = 1)"
)
IN_POSTGRES = {
    "a body cut": f"UPDATE {{schema}}.commits SET body = left(body, 40) WHERE {OF_RUN}",
    "a body of 100,000 levels": f"UPDATE {{schema}}.commits SET body = repeat('[', 100000) WHERE {OF_RUN}",
    "a body of another run": f"UPDATE {{schema}}.commits SET body = {SWAPPED} WHERE {OF_RUN} AND number = 1",
    "no body": f"UPDATE {{schema}}.commits SET body = '' WHERE {OF_RUN}",
    "log": f"UPDATE {{schema}}.superstep_log SET body = '{{{{}}}}' WHERE {OF_RUN}",
    "signal": f"UPDATE {{schema}}.signals SET body = '[' WHERE {OF_RUN}",
    "a status": "UPDATE {schema}.runs SET status = 'x' WHERE run_id = 'invoice'",
    "a time": "UPDATE {schema}.runs SET wake = '1' WHERE run_id = 'invoice'",
    "a schema": "UPDATE {schema}.requests SET schema = repeat('[', 100000) WHERE run_id = 'invoice'",
    "a deadline": "UPDATE {schema}.requests SET deadline = 'soon' WHERE run_id = 'invoice'",
    "a missing record": f"DELETE FROM {{schema}}.commits WHERE {OF_RUN} AND number = 0",
    "an owner": "UPDATE {schema}.runs SET owner = '[]', until = now() + interval '1 hour' WHERE run_id = 'invoice'",
    "a number": "UPDATE {schema}.runs SET number = 9223372036854775807 WHERE run_id = 'invoice'",
}


@pytest.mark.process
@pytest.mark.parametrize("statement", IN_POSTGRES.values(), ids=IN_POSTGRES)
async def test_a_row_in_postgres_that_says_something_else_is_refused(statement: str) -> None:
    with fresh_schema() as schema:
        store = PostgresStore(dsn(), schema=schema)
        await fill(store)
        with psycopg.connect(dsn(), autocommit=True) as db:
            assert db.execute(statement.format(schema=f'"{schema}"')).rowcount == 1 or "body" in statement
        assert await read_everything(store) < 7
        await store.close()


async def test_a_table_that_lost_its_own_rules_is_read_or_refused(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = ON")
    for gone in ("NOT NULL", "STRICT"):
        db.execute(f"UPDATE sqlite_schema SET sql = replace(sql, '{gone}', '') WHERE name = 'commits'")
    db.commit()
    db.close()
    for value in ("NULL", "X'00ff'"):
        assert (await after(path, f"UPDATE commits SET body = {value} WHERE {of(RUN)}") or 0) < 5
