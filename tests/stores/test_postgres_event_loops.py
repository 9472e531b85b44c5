"""A job that is alone goes from the event loop to the server and back; what is not plain sailing goes to the thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from stepwell.errors import CommitConflict
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects
from stepwell.stores.postgres import access as postgres_access
from stepwell.stores.postgres import direct as postgres_direct
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import fill, numbers, on, record
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
    yield made
    await made.close()


@pytest.fixture
def by_thread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs the thread sent, each time."""
    sizes: list[int] = []
    counted = spy(postgres_access._write, sizes, lambda batch, *rest: len(batch))
    monkeypatch.setattr(postgres_access, "_write", counted)
    return sizes


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_what_is_alone_needs_no_thread_and_leaves_nothing_open(
    store: PostgresStore, by_thread: list[int]
) -> None:
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
async def test_what_is_alone_is_stored_as_what_is_not(
    store: PostgresStore, schema: str, effects: CommitEffects
) -> None:
    odd = "a\0b\x10"
    await store.append(record(odd, 0, workflow=odd))
    await store.write_log("r", 0, "k", b"1")
    columns = "number, workflow, status, iteration, at, frame, outputs, fleeting, body"
    one = record("r", 1, is_snapshot=False, outputs=True, status="wait\0", body={"é": '"'}, at=on(3))
    await store.append(one, effects)
    alone = ask(f"SELECT {columns} FROM {schema}.commits WHERE run_id = 'r' AND number = 1")
    run = ask(f"SELECT latest, status, wake FROM {schema}.runs WHERE run_id = 'r'")
    assert await logged(store, "r", 0) == ({"k": b"1"} if effects.drop_log_through is None else {})
    await store.rewrite("r", remove=[1], effects=NO_EFFECTS)
    await asyncio.gather(store.append(one, effects), store.append(record(odd, 1, workflow=odd)))
    assert ask(f"SELECT {columns} FROM {schema}.commits WHERE run_id = 'r' AND number = 1") == alone
    assert ask(f"SELECT latest, status, wake FROM {schema}.runs WHERE run_id = 'r'") == run
    await store.append(record(odd, 2, workflow=odd))
    assert numbers(await store.history(odd)) == [0, 1, 2]


async def test_what_is_refused_is_said_as_ever(store: PostgresStore, by_thread: list[int]) -> None:
    with pytest.raises(CommitConflict, match="is at commit 0"):
        await store.append(record("r", 7))
    assert by_thread == []


async def test_what_is_large_is_left_to_the_thread(store: PostgresStore, by_thread: list[int]) -> None:
    await store.append(record("r", 1, body="x" * postgres_direct.SMALL))
    assert by_thread == [1]


async def test_what_does_not_fit_on_the_line_at_once_is_waited_for_by_the_thread(
    store: PostgresStore, by_thread: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_direct, "SMALL", 2**30)
    for number in (1, 2, 3):
        await store.append(record("r", number, body="x" * 5_000_000))
    before = len(by_thread)  # how much fits is up to the machine
    while store._db._open_workers().direct._behind:  # noqa: ASYNC110 - the thread tells us before it is done
        await asyncio.sleep(0.001)
    await store.append(record("r", 4))
    assert len(by_thread) == before
    assert numbers(await store.history("r")) == list(range(5))


async def test_a_line_that_was_cut_while_nobody_used_it_is_noticed(
    store: PostgresStore, schema: str, by_thread: list[int]
) -> None:
    ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s", f"%{schema}%work%")
    await store.append(record("r", 1))
    assert by_thread == [1]
    await store.append(record("r", 2))
    assert by_thread == [1]


async def test_a_loop_that_is_busy_keeps_no_thread_waiting(store: PostgresStore, schema: str) -> None:
    fence = await store.acquire("s", this_process("mine"), seconds=60)
    renewed: list[Any] = []
    with nobody_moves("r", schema):
        appending = asyncio.ensure_future(store.append(record("r", 1)))
        await come_to_wait(schema)
        renewing = threading.Thread(target=lambda: renewed.append(store.renew({"s": fence}, seconds=60)))
        renewing.start()
    renewing.join()  # and so the event loop does nothing
    assert renewed == [[]]
    await appending


async def test_whoever_is_cancelled_is_so_at_once_and_nobody_is_harmed(store: PostgresStore, schema: str) -> None:
    with nobody_moves("r", schema):
        posting = asyncio.ensure_future(store.put(record("r", 1)))
        await come_to_wait(schema)
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting
    await store.append(record("s", 0))
    assert numbers(await store.history("r")) == [0, 1]


async def test_a_loop_that_looks_at_no_sockets_is_served_by_the_thread(
    store: PostgresStore, by_thread: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    before = open_files()
    for number in range(1, 5):
        await store.append(record("r", number))
    assert by_thread == [1] * 4
    assert open_files() == before


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
