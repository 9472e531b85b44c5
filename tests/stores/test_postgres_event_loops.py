"""Event loops write to PostgreSQL by themselves, in pipelines; what is not plain sailing goes to a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from stepwell.errors import CommitConflict
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.stores.postgres import writer as postgres_writer
from stepwell.stores.postgres.connection import Call, Connection
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.postgres.values import encode
from stepwell.testing.store_rules.samples import fill, logged, numbers, on, record
from tests.support.postgres_locks import come_to_wait, nobody_moves
from tests.support.postgres_server import ask, dsn, fresh_schema
from tests.support.spies import spy

pytestmark = pytest.mark.process

PATIENT = 600.0  # seconds; a test must not fail because the machine is busy


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
    await fill(made, "r", 1)
    await made._notifier.flush()  # the run is new, which is announced
    yield made
    await made.close()


@pytest.fixture
def by_thread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls a thread sent, each time."""
    sizes: list[int] = []
    counted = spy(postgres_writer.write_batch, sizes, lambda batch, pool: len(batch))
    monkeypatch.setattr(postgres_writer, "write_batch", counted)
    return sizes


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_write_needs_no_thread_and_leaves_nothing_open(store: PostgresStore, by_thread: list[int]) -> None:
    await store.append(record("r", 1))
    before = open_files()
    for number in range(2, 50):
        await store.append(record("r", number))
    assert by_thread == []
    assert open_files() == before
    assert numbers(await store.history("r")) == list(range(50))


@pytest.mark.parametrize(
    "effects", [CommitEffects(), CommitEffects(drop_log_through=0, wake=on(9)), CommitEffects(fence=2**62)]
)
async def test_a_write_that_is_alone_is_stored_as_one_of_many(
    store: PostgresStore, schema: str, effects: CommitEffects
) -> None:
    odd = "a\0b\x10"
    await store.append(record(odd, 0, workflow=odd))
    await store.write_log("r", 0, "k", b"1")
    one = record("r", 1, is_snapshot=False, outputs=True, status="wait\0", body={"é": '"'}, at=on(3))
    await store.append(one, effects)
    query = f"SELECT c.*, r.* FROM {schema}.commits AS c JOIN {schema}.runs AS r ON r.key = run WHERE c.number = 1"
    alone = ask(query)
    assert await logged(store, "r", 0) == ({"k": b"1"} if effects.drop_log_through is None else {})
    await store.rewrite("r", remove=[1], effects=NO_EFFECTS)
    await asyncio.gather(store.append(one, effects), store.append(record(odd, 1, workflow=odd)))
    assert ask(f"{query} AND r.run_id = 'r'") == alone
    await store.append(record(odd, 2, workflow=odd))
    assert numbers(await store.history(odd)) == [0, 1, 2]


async def test_a_refusal_needs_no_thread(store: PostgresStore, by_thread: list[int]) -> None:
    with pytest.raises(CommitConflict, match="is at commit 0"):
        await store.append(record("r", 7))
    assert by_thread == []


async def test_large_writes_are_left_to_a_thread(store: PostgresStore, by_thread: list[int]) -> None:
    await store.append(record("r", 1, body="x" * postgres_writer.LARGE))
    assert by_thread == [1]


async def test_a_full_socket_is_left_to_a_thread(
    store: PostgresStore, by_thread: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "LARGE", 2**30)
    for number in (1, 2, 3):
        await store.append(record("r", number, body="x" * 5_000_000))
    await store.append(record("r", 4))
    assert by_thread == []  # it sends the rest and waits; nothing is sent again
    assert numbers(await store.history("r")) == list(range(5))


@pytest.mark.parametrize("wait", [0.0, 0.3])
async def test_a_connection_that_was_closed_while_nobody_used_it_is_replaced(
    store: PostgresStore, schema: str, by_thread: list[int], wait: float
) -> None:
    await store.append(record("r", 1))
    ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s", f"%{schema}%append%")
    await asyncio.sleep(wait)  # with or without a look of the event loop at it
    await store.append(record("r", 2))
    assert by_thread == [1]
    await store.append(record("r", 3))
    assert by_thread == [1]


async def test_a_loop_that_is_busy_keeps_no_thread_waiting(store: PostgresStore, schema: str) -> None:
    fence = await store.acquire("s", this_process("mine"), seconds=60)
    renewed: list[Any] = []
    with nobody_moves("r", schema):
        appending = asyncio.ensure_future(store.append(record("r", 1)))
        await come_to_wait(schema)
        renewing = threading.Thread(target=lambda: renewed.extend(store.renew({"s": fence}, seconds=60).lost))
        renewing.start()
        renewing.join()  # and so the event loop does nothing
        assert not appending.done()
    assert renewed == []
    await appending


def test_a_loop_that_is_busy_keeps_no_other_loop_waiting(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema, timeout=PATIENT)

    async def main() -> None:
        await fill(store, "r", 1)
        appending = asyncio.ensure_future(store.append(record("r", 1)))
        await asyncio.sleep(0)  # it is sent
        other = threading.Thread(target=lambda: asyncio.run(fill(store, "s", 5)))
        other.start()
        other.join()
        await appending
        assert numbers(await store.history("s")) == list(range(5))
        await store.close()

    asyncio.run(main())


async def test_the_cancellation_of_an_append_is_held_back_until_it_is_done(store: PostgresStore, schema: str) -> None:
    with nobody_moves("r", schema):
        appending = asyncio.ensure_future(store.append(record("r", 1)))
        await come_to_wait(schema)
        appending.cancel()
        assert await asyncio.wait([appending], timeout=0.05) == (set(), {appending})
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert numbers(await store.history("r")) == [0, 1]


async def test_other_writes_are_cancelled_at_once_and_done_all_the_same(store: PostgresStore, schema: str) -> None:
    with nobody_moves("r", schema):
        writing = asyncio.ensure_future(store.rewrite("r", insert=record("r", 1)))
        await come_to_wait(schema)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    await store.append(record("s", 0))
    assert numbers(await store.history("r")) == [0, 1]


def test_loops_in_several_threads_write_side_by_side(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
    threads = [threading.Thread(target=lambda n=n: asyncio.run(fill(store, f"r{n}", 50))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def look() -> None:
        for n in range(4):
            assert numbers(await store.history(f"r{n}")) == list(range(50))
        await store.close()

    asyncio.run(look())


def test_what_closed_loops_have_not_returned_is_used_again(schema: str) -> None:
    store = PostgresStore(f"{dsn()} application_name={schema}", schema=schema, timeout=PATIENT, connections=2)
    loops = [asyncio.new_event_loop() for _ in range(6)]
    for n, loop in enumerate(loops):
        loop.run_until_complete(fill(store, f"r{n}", 3))
        loop.close()
    assert len(ask("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", schema)) <= 2
    asyncio.run(store.close())


# -------------------------------------------------------------------- calls on a connection

ECHO = b"SELECT $1::jsonb, $2::text, $3::bytea, $4::bigint"
PREPARED = Call(ECHO, encode({"a": 1}, 'é"\\ 日本', b"\\x00ff", 2**40), b"stepwell_echo")
ECHOED = [[({"a": 1}, 'é"\\ 日本', b"\0\xff", 2**40)]]


@pytest.fixture
def db() -> Iterator[Connection]:
    made = Connection.open(dsn(), PATIENT)
    made.session = made.pgconn.backend_pid
    yield made
    made.close()


def prepared(db: Connection) -> int:
    row = db.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'stepwell%'").fetchone()
    return int(row[0] if row else 0)


def test_values_arrive_as_they_are(db: Connection) -> None:
    assert db.call(PREPARED) == db.call(PREPARED._replace(name=b"")) == ECHOED
    assert db.call(PREPARED, Call(b"SELECT 1"), PREPARED) == [*ECHOED, [(1,)], *ECHOED]


def test_an_error_of_the_server_has_its_class_and_undoes_the_others(db: Connection) -> None:
    with pytest.raises(errors.DivisionByZero):
        db.call(Call(b"CREATE TABLE pg_temp.t (x int)"), Call(b"SELECT 1 / 0"), Call(b"SELECT 2"))
    assert not db.closed
    with pytest.raises(errors.UndefinedTable):
        db.call(Call(b"SELECT FROM pg_temp.t"))


def test_a_broken_connection_is_an_operational_error(db: Connection) -> None:
    ask("SELECT pg_terminate_backend(%s)", db.pgconn.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        db.call(PREPARED)
    assert db.broken


def test_a_statement_is_prepared_once_for_each_connection(db: Connection) -> None:
    for _ in range(3):
        db.call(PREPARED, PREPARED)
    assert prepared(db) == 1


async def test_a_pooler_that_was_not_recognised_is_noticed(store: PostgresStore, by_thread: list[int]) -> None:
    def forget(db: Connection, again: bool) -> None:
        db.execute("DEALLOCATE ALL")  # as if a pooler had given us another session

    await asyncio.sleep(0.3)  # the loop has returned its connection
    await store._db.use(forget)
    await store.append(record("r", 1))
    await store.append(record("r", 2))
    assert by_thread == [1]
    assert numbers(await store.history("r")) == [0, 1, 2]
