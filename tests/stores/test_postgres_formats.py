"""Schemas that an older Stepwell wrote. The statements in `data` are that version's and stay as they are."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from stepwell.core.errors import CommitConflict, RunBusy, StoreUnavailable
from stepwell.durable.ownership import this_process
from stepwell.durable.ports import About, Along, RunEntry, Wake
from stepwell.stores.postgres_errors import translated
from stepwell.stores.postgres_store import PostgresStore
from stepwell.stores.postgres_tables import FORMAT
from stepwell.testing.rules_samples import meaning, meanings, on, places, question, record
from tests.support.postgres_server import ask, dsn, fresh_schema

pytestmark = pytest.mark.process

FIRST = Path(__file__).parent / "data" / "postgres-1.sql"
ODD = "a\0b"
BEGAN = record("r", 0, body={"state": 0}, at=on(1))
OTHER = record("Other Run", 0, workflow="Other Workflow", outputs=True, at=on(2))
NEWEST = record(
    "r", 1, frame=False, outputs=True, status="waiting", body={"changed": 1}, checkpoint_id="second", at=on(3)
)

LISTED = [
    RunEntry("Other Run", "Other Workflow", "running", 0, "Other Run-0", 0, on(2), on(2), About()),
    RunEntry("r", "w", "waiting", 1, "second", 1, on(3), on(1), About()),
    RunEntry(ODD, ODD, "running", 0, f"{ODD}-0", 0, on(1), on(1), About()),
]


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        ask(f"CREATE SCHEMA {name}")
        with psycopg.connect(dsn()) as db:
            db.execute(FIRST.read_text().replace("{schema}", name).encode())
        yield name


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    assert ask(f"SELECT format FROM {schema}.stepwell") == [(1,)]
    made = PostgresStore(dsn(), schema=schema)
    yield made
    await made.close()


async def test_a_schema_of_format_1_is_read(store: PostgresStore) -> None:
    assert places(await store.entries()) == [("r", 0), ("Other Run", 0), ("r", 1), (ODD, 0)]
    assert meanings(await store.chain("r", 1)) == meanings([BEGAN, NEWEST])
    assert meaning(await store.head("Other Run")) == meaning(OTHER)
    assert await store.locate("second") == NEWEST.entry
    assert await store.newest(run_id="r") == NEWEST.entry
    assert await store.recall("r", 2) == {"k": b'{"done":true}'}
    assert await store.recall("new", 0) == {"k": b"1"}
    assert await store.mail("r") == [("k", b'{"answer":true}')]
    assert await store.pending() == [question("r", "q")]
    assert await store.wakes() == [Wake("r", "w", "2026-02-01")]


async def test_the_runs_of_a_schema_of_format_1_are_listed(store: PostgresStore) -> None:
    assert await store.runs() == await store.runs(inner=True) == LISTED
    assert await store.runs(workflow="w", status="waiting") == [LISTED[1]]
    assert await store.runs(past=LISTED[0], limit=1) == [LISTED[1]]
    assert await store.runs(tags={"team": "red"}) == []


async def test_the_claims_of_a_schema_of_format_1_hold(store: PostgresStore) -> None:
    mine = this_process("mine")
    with pytest.raises(RunBusy, match="process 1 on host"):
        await store.claim("r", mine, seconds=60)
    first = await store.claim("new", mine, seconds=60)
    assert await store.claim("new", mine, seconds=60) > first
    second = await store.claim("Other Run", mine, seconds=60)
    await store.append(record("Other Run", 1, workflow="Other Workflow"), Along(fence=second))


async def test_a_schema_of_format_1_is_continued(store: PostgresStore, schema: str) -> None:
    assert not await store.post("r", "used", b"1")
    done = record("r", 2, status="done", at=on(9))
    await store.append(done, Along(settled=2, consumed=("k",), closed=("q",), about=About({"team": "red"})))
    await store.append(record("new", 0, at=on(8)))
    assert meanings(await store.history("r")) == meanings([BEGAN, NEWEST, done])
    assert await store.recall("r", 2) == {}
    assert await store.pending() == []
    assert await store.wakes() == []
    assert [run.run_id for run in await store.runs()] == ["new", "Other Run", "r", ODD]
    assert (await store.runs(tags={"team": "red"}))[0].status == "done"
    assert ask(f"SELECT format FROM {schema}.stepwell") == [(FORMAT,)]
    with pytest.raises(CommitConflict):
        await store.append(record("Other Run", 0, workflow="Other Workflow"))
    assert await store.drop("Other Run")
    assert await store.remove(ODD, 0)


async def test_a_completed_schema_is_as_a_new_one(store: PostgresStore, schema: str) -> None:
    await store.runs()
    with fresh_schema() as new:
        made = PostgresStore(dsn(), schema=new)
        await made.runs()
        await made.close()
        for query in (
            "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity, collation_name "
            "FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
            "SELECT indexname, replace(indexdef, schemaname, '') FROM pg_indexes WHERE schemaname = %s ORDER BY 1",
            "SELECT proname, pronargs FROM pg_proc WHERE pronamespace = %s::regnamespace ORDER BY 1, 2",
        ):
            assert ask(query, schema) == ask(query, new)


async def test_many_complete_a_schema_at_once(schema: str) -> None:
    stores = [PostgresStore(dsn(), schema=schema) for _ in range(4)]
    for found in await asyncio.gather(*(store.runs() for store in stores)):
        assert found == LISTED
    for store in stores:
        await store.close()


async def test_a_program_of_format_1_that_goes_on_is_told(store: PostgresStore, schema: str) -> None:
    with psycopg.connect(dsn()) as older:
        older.execute(f"SELECT {schema}.work('[]', '{{}}')".encode())
        older.commit()
        await store.runs()
        with pytest.raises(errors.RaiseException) as refusal:
            older.execute(f"SELECT {schema}.work('[]', '{{}}')".encode())
    said = translated(refusal.value, "the store")
    assert isinstance(said, StoreUnavailable)
    assert f"a newer Stepwell made it format {FORMAT}" in str(said)
