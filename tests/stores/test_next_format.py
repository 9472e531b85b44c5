"""What the next format relies on: stores are completed once, by whoever is first, and nobody older writes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell.errors import NewerFormat, StoreUnavailable
from stepwell.storage.port import Store
from stepwell.stores.files.store import FileStore
from stepwell.stores.postgres import schema as postgres_schema
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import meanings, record, signals_of
from tests.support.next_format import NEXT, know_the_next_format
from tests.support.postgres_server import ask, dsn, fresh_schema

Open = Callable[[], Any]


@pytest.fixture(params=["file", "sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store, each time as a program that has just started."""
    if request.param == "file":
        yield lambda: FileStore(tmp_path / "runs")
    elif request.param == "sqlite":
        yield lambda: SQLiteStore(tmp_path / "runs.db")
    else:
        with fresh_schema() as schema:
            yield lambda: PostgresStore(dsn(), schema=schema)


async def fill(store: Store) -> None:
    await store.append(record("r", 0))
    await store.send("r", "k", b"1")
    await store.close()


async def test_a_store_is_completed_and_its_runs_continue(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(open_store())
    with monkeypatch.context() as later:
        know_the_next_format(later)
        store = open_store()
        await store.append(record("r", 1, is_snapshot=False))
        assert meanings(await store.read("r", 1)) == meanings([record("r", 0), record("r", 1, is_snapshot=False)])
        assert await signals_of(store, "r") == [("k", b"1")]
        await store.close()
        again = open_store()
        assert [run.number for run in await again.runs()] == [1]
        await again.close()


async def test_an_older_program_refuses_what_a_newer_one_has_completed(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(open_store())
    with monkeypatch.context() as later:
        know_the_next_format(later)
        store = open_store()
        await store.append(record("r", 1))
        await store.close()
    store = open_store()
    for attempt in (store.runs, lambda: store.append(record("r", 2)), lambda: store.send("r", "k2", b"1")):
        with pytest.raises(NewerFormat, match=rf"newer Stepwell \(format {NEXT}, this one knows {NEXT - 1}\)"):
            await attempt()
    await store.close()


async def test_many_programs_complete_a_store_at_once(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(open_store())
    know_the_next_format(monkeypatch)
    stores = [open_store() for _ in range(4)]
    await asyncio.gather(*(store.append(record(f"r{n}", 0)) for n, store in enumerate(stores)))
    assert {run.run_id for run in await stores[0].runs()} == {"r", "r0", "r1", "r2", "r3"}
    for store in stores:
        await store.close()


@pytest.mark.process
async def test_a_program_that_is_running_when_a_newer_one_completes_its_schema_writes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fresh_schema() as schema:
        running = PostgresStore(dsn(), schema=schema)
        await running.append(record("r", 0))
        with monkeypatch.context() as later:
            know_the_next_format(later)
            newer = PostgresStore(dsn(), schema=schema)
            await newer.runs()
            await newer.close()
        with pytest.raises(StoreUnavailable, match=rf"a newer Stepwell \(format {NEXT}, this one knows"):
            await running.append(record("r", 1))
        assert ask(f"SELECT number FROM {schema}.commits") == [(0,)]
        await running.close()


@pytest.mark.process
async def test_whoever_comes_second_leaves_the_functions_that_the_first_one_uses() -> None:
    with fresh_schema() as schema:
        functions = f"SELECT oid FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace ORDER BY oid"
        store = PostgresStore(dsn(), schema=schema)
        await store.append(record("r", 0))
        made = ask(functions)
        with psycopg.connect(dsn(), cursor_factory=psycopg.RawCursor) as db, db.transaction():
            postgres_schema._bring_up_to_date(db, schema, "the schema")
        assert ask(functions) == made
        await store.append(record("r", 1))
        await store.close()


def test_folders_without_a_mark_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    """A store of another program, or of this one under the name it had before, is not ours to read."""
    (tmp_path / "runs" / "shop" / "r-1").mkdir(parents=True)
    (tmp_path / "runs" / "other.json").write_text('{"format": 1}')

    async def attempts() -> None:
        store = FileStore(tmp_path / "runs")
        for attempt in (store.runs, lambda: store.append(record("r", 0)), lambda: store.send("r", "k", b"1")):
            with pytest.raises(StoreUnavailable, match=r"is not a Stepwell store: it contains folders and no stepwell"):
                await attempt()
        await store.close()

    asyncio.run(attempts())
    assert sorted(path.name for path in (tmp_path / "runs").rglob("*")) == ["other.json", "r-1", "shop"]
