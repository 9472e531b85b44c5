"""A server that is silent, not dead: its lines stay open, and nothing comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from stepwell import PostgresCheckpointStorage, StepOptions, WorkflowBuilder, WorkflowContext, executor
from stepwell.errors import StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.postgres import writer as postgres_writer
from stepwell.stores.postgres.pool import ConnectionPool
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import fill, head, numbers, record
from tests.support.postgres_locks import come_to_wait, nobody_moves
from tests.support.postgres_proxy import Pooler, SilentLine, writes
from tests.support.postgres_server import Server, ask, dsn, fresh_schema, own_server

pytestmark = pytest.mark.process

TIMEOUT = 1.0
PROMISED = TIMEOUT + 2.0
PATIENT = 600.0


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
def line() -> Iterator[SilentLine]:
    with SilentLine(dsn()) as made:
        yield made


async def refused(call: Awaitable[object]) -> float:
    """How many seconds it took to be told that there is no server."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="start the server again, or check the network"):
        await call
    return time.monotonic() - began


# -------------------------------------------------------------------- every wait has an end


def renewing(store: PostgresStore) -> Awaitable[object]:
    return asyncio.to_thread(store.renew, {"r": 1}, seconds=60)


MOMENTS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "a commit": lambda store: store.append(record("r", 1)),
    "a large commit": lambda store: store.append(record("r", 1, body="x" * 5_000_000)),
    "commits together": lambda store: asyncio.gather(*(store.append(record(f"r{n}", 0)) for n in range(20))),
    "a read": lambda store: store.history("r"),
    "more reads than connections": lambda store: asyncio.gather(*(head(store, "r") for _ in range(20))),
    "a list": lambda store: store.runs(limit=10),
    "a claim": lambda store: store.acquire("r", this_process("mine"), seconds=60),
    "the renewal of a lease": renewing,
    "a look for signals": lambda store: asyncio.to_thread(store.renew, {"r": 1}, seconds=None),
    "opening a run": lambda store: store.open("r", owner=this_process("mine"), seconds=60),
    "letting go": lambda store: store.release("r", this_process("mine")),
    "tidying up": lambda store: store.compact(),
}


async def test_a_silent_line_is_given_up_when_the_timeout_ends_wherever_somebody_waits(
    line: SilentLine, schema: str
) -> None:
    stores = {name: PostgresStore(line.dsn, schema=schema, timeout=TIMEOUT, connections=3) for name in MOMENTS}
    fresh = PostgresStore(line.dsn, schema=schema, timeout=TIMEOUT)  # has no connection yet
    await fill(stores["a commit"], "r", 1)
    for store in stores.values():
        await store.write_log("r", 0, "k", b"1")  # the writer's connection is open
        await head(store, "r")
    line.fall_silent()
    calls = [refused(call(stores[name])) for name, call in MOMENTS.items()]
    took = await asyncio.gather(*calls, refused(head(fresh, "r")))
    assert {
        name: seconds for name, seconds in zip([*MOMENTS, "opening"], took, strict=True) if seconds > PROMISED
    } == {}
    assert min(took) > TIMEOUT * 0.9
    began = time.monotonic()
    for store in (*stores.values(), fresh):
        await store.close()
    assert time.monotonic() - began < TIMEOUT * len(stores)  # nobody waits again


async def test_closing_ends_with_the_timeout_of_what_is_under_way(line: SilentLine, schema: str) -> None:
    store = PostgresStore(line.dsn, schema=schema, timeout=TIMEOUT)
    await fill(store, "r", 1)
    await head(store, "r")
    line.fall_silent()
    writing, reading = asyncio.ensure_future(store.append(record("r", 1))), asyncio.ensure_future(head(store, "r"))
    await asyncio.sleep(0)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < PROMISED
    for waiting in (writing, reading):
        with pytest.raises(StoreUnavailable):
            await waiting


@asynccontextmanager
async def shop(line: SilentLine, schema: str, act: Callable[[Any], Awaitable[Any]]) -> AsyncIterator[Any]:
    @executor
    async def seller(order: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(str(await act(ctx)))

    async with PostgresCheckpointStorage(line.dsn, schema=schema, timeout=TIMEOUT) as storage:
        yield WorkflowBuilder(name="shop", start_executor=seller, checkpoint_storage=storage).build()


async def test_a_run_on_a_silent_line_ends_with_the_timeout_and_goes_on_when_the_server_speaks(
    line: SilentLine, schema: str
) -> None:
    calls: list[str] = []

    async def act(ctx: Any) -> str:
        calls.append("called")
        if len(calls) == 1:
            line.fall_silent()
        return "sold"

    async with shop(line, schema, act) as workflow:
        assert await refused(workflow.run("tea", run_id="r")) < PROMISED
        line.speak_again()
        assert (await workflow.run(run_id="r")).get_outputs() == ["sold"]
    assert len(calls) == 2


@pytest.fixture
def orders() -> Iterator[str]:
    """A table of the user's own."""
    with fresh_schema() as name:
        ask(f"CREATE SCHEMA {name}; CREATE TABLE {name}.orders (what text)")
        yield f"{name}.orders"


@pytest.mark.parametrize("when", ["SET LOCAL stepwell.step", "INSERT INTO test_", "finish_step(1,"])
async def test_a_step_in_a_transaction_ends_with_the_timeout_and_is_done_once(
    orders: str, line: SilentLine, schema: str, when: str
) -> None:
    def order(db: Any) -> str:
        db.execute(f"INSERT INTO {orders} VALUES ('tea')".encode())
        return "ordered"

    async def act(ctx: Any) -> Any:
        return await ctx.step(StepOptions("order", transaction=True), order)

    line.fall_silent_at("after", lambda request: when.encode() in request)
    async with shop(line, schema, act) as workflow:
        # The step, and then the release of the run, each wait for the server.
        assert await refused(workflow.run("tea", run_id="r")) < 3 * PROMISED
        line.speak_again()
        assert (await workflow.run(run_id="r")).get_outputs() == ["ordered"]
    assert ask(f"SELECT what FROM {orders}") == [("tea",)]


# -------------------------------------------------------------------- a server that works is not given up


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_statement_may_take_longer_than_the_timeout_while_the_server_works_on_it(
    schema: str, pooled: bool
) -> None:
    with Pooler(dsn()) as pooler:
        store = PostgresStore(pooler.dsn if pooled else dsn(), schema=schema, timeout=0.3)
        await fill(store, "r", 1)
        began = time.monotonic()
        with nobody_moves("r", schema):
            writing = asyncio.ensure_future(store.append(record("r", 1)))
            await store._db.read("SELECT pg_sleep(2.2)")
            assert not writing.done()
        await writing
        assert time.monotonic() - began > 2
        assert numbers(await store.history("r")) == [0, 1]
        await store.close()


async def test_a_loop_that_is_busy_for_longer_than_the_timeout_finds_its_answer(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(dsn(), schema=schema, timeout=0.3)
    await fill(store, "r", 1)
    appending = asyncio.ensure_future(store.append(record("r", 1)))
    await asyncio.sleep(0)
    time.sleep(1.5)  # a handler that blocks its loop
    with monkeypatch.context() as nobody_writes_again:
        nobody_writes_again.setattr(postgres_writer, "write_batch", None)
        await appending
    await store.close()


@contextmanager
def sleeping_session() -> Iterator[int]:
    """The process id of a session that works."""
    with psycopg.connect(dsn(), autocommit=True) as db, ThreadPoolExecutor() as threads:

        def sleep() -> None:
            with pytest.raises(errors.QueryCanceled):
                db.execute("SELECT pg_sleep(60)")

        done = threads.submit(sleep)
        while not ask("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'", db.info.backend_pid):
            time.sleep(0.005)
        yield db.info.backend_pid
        db.cancel_safe()
        done.result()


def test_a_session_is_known_by_its_process_or_behind_a_pooler_by_the_age_of_its_statement() -> None:
    pool = ConnectionPool(dsn(), "s", 30.0, 2)
    with sleeping_session() as working, psycopg.connect(dsn()) as waiting:
        now = time.monotonic()
        assert pool.probe(working, now, 5)
        assert pool.probe(working, now - 60, 5)  # the second of two statements
        time.sleep(3)
        assert not pool.probe(working, time.monotonic(), 5)  # another one that had the same number before
        assert not pool.probe(waiting.info.backend_pid, now, 5)
        assert not pool.probe(4_000_000, now, 5)
        assert pool.probe(None, now, 5)
        assert not pool.probe(None, now - 60, 5)


def test_a_server_that_refuses_a_probe_is_alive_and_none_that_is_not_there() -> None:
    refusing = ConnectionPool(make_conninfo(dsn(), dbname="nowhere"), "s", 30.0, 2)
    assert refusing.probe(None, time.monotonic(), 5) is True
    nowhere = ConnectionPool(make_conninfo(dsn(), host="/nowhere"), "s", 30.0, 2)
    assert nowhere.probe(None, time.monotonic(), 5) is None


# -------------------------------------------------------------------- answers that were lost in silence


@pytest.mark.parametrize("when", ["before", "after"])
async def test_lines_that_a_failover_left_silent_are_replaced_and_nothing_is_doubled(
    line: SilentLine, schema: str, when: str
) -> None:
    store = PostgresStore(line.dsn, schema=schema, timeout=6.0)
    await fill(store, "r", 1)
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    line.fall_silent_at(when, writes)
    appending = asyncio.ensure_future(store.append(record("r", 1), CommitEffects(fence=fence)))
    await asyncio.to_thread(line.fell_silent.wait)
    line.speak_again()
    began = time.monotonic()
    await appending  # on another line: the server says that it does not work for this one
    assert time.monotonic() - began < 6.0
    assert await store.write_log("r", 2, "k", b"1", fence=fence)
    assert numbers(await store.history("r")) == [0, 1]
    await store.close()


async def test_a_commit_whose_answer_was_lost_in_silence_is_found_by_the_next_run(
    line: SilentLine, schema: str
) -> None:
    done: list[int] = []

    @executor
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        done.append(number)
        if number == 2:
            line.fall_silent_at("after", lambda request: writes(request) and b"running" not in request)
        await (ctx.send_message(number + 1) if number < 4 else ctx.yield_output(number))

    async with PostgresCheckpointStorage(line.dsn, schema=schema, timeout=TIMEOUT) as storage:
        workflow = (
            WorkflowBuilder(name="count", start_executor=count, checkpoint_storage=storage)
            .add_edge(count, count)
            .build()
        )
        with pytest.raises(StoreUnavailable, match="is not known, a resumed run finds out"):
            await workflow.run(0, run_id="r")
        line.speak_again()
        assert (await workflow.run(run_id="r")).get_outputs() == [4]
        assert [seen.number for seen in await storage.list_checkpoints(run_id="r")] == list(range(6))
    assert done == [0, 1, 2, 3, 4]  # what was committed in silence is not run again


# -------------------------------------------------------------------- one outage after the other


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that may be stopped."""
    with own_server() as made:
        yield made


async def test_an_outage_that_was_too_long_takes_no_time_from_the_next_one(server: Server, schema: str) -> None:
    store = PostgresStore(server.dsn, schema=schema, timeout=3.0)
    await fill(store, "r", 1)
    server.stop()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"could not be reached for (3|4)\.\d s"):
        await store.append(record("r", 1))
    assert 3.0 <= time.monotonic() - began < 5.0
    with pytest.raises(StoreUnavailable):  # nobody has seen the server since
        await asyncio.wait_for(store.release("r", this_process("mine")), 2)
    server.start()
    server.stop()
    appending = asyncio.ensure_future(store.append(record("r", 1)))
    assert await asyncio.wait([appending], timeout=1.0) == (set(), {appending})
    server.start()
    await appending
    assert numbers(await store.history("r")) == [0, 1]
    await store.close()


async def test_calls_that_waited_through_an_outage_are_not_tried_one_after_the_other(
    server: Server, schema: str
) -> None:
    store = PostgresStore(server.dsn, schema=schema, timeout=1.0, connections=2)
    await fill(store, "r", 1)
    server.stop()
    began = time.monotonic()
    outcomes = await asyncio.gather(*(store.read("r") for _ in range(30)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert time.monotonic() - began < 3.0
    with pytest.raises(StoreUnavailable):  # best effort: somebody has just tried
        store.renew({"r": 1}, seconds=60)
    server.start()
    assert await store.read("r")  # and others get the whole time anew
    await store.close()


# -------------------------------------------------------------------- what the server has to say about it


async def test_the_server_has_nothing_to_complain_of_when_a_process_reads_while_it_writes(
    server: Server, schema: str
) -> None:
    store = PostgresStore(server.dsn, schema=schema, timeout=PATIENT)

    async def drive(run_id: str) -> None:
        for number in range(15):
            await store.append(record(run_id, number))
            await asyncio.gather(head(store, run_id), store.history(run_id), store.pending_signals(run_id))

    before = len(server.log())
    await asyncio.gather(*(drive(f"r{n}") for n in range(10)))
    await store.close()
    complaints = [said for said in server.log()[before:].splitlines() if "ERROR" in said]
    assert [said for said in complaints if schema not in said] == []  # the schema was looked for, and was not there


async def test_what_a_connection_needs_to_notice_a_dead_line_is_set_unless_the_dsn_says_otherwise(schema: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    from stepwell.stores.postgres.pool import DEFAULT_OPTIONS

    names = {"connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"}
    assert {*names, "tcp_user_timeout"} <= set(DEFAULT_OPTIONS)
    known = conninfo_to_dict(ConnectionPool("host=a keepalives_idle=77 tcp_user_timeout=1", "s", 30, 2).dsn)
    assert (known["keepalives_idle"], known["tcp_user_timeout"], known["keepalives"]) == ("77", "1", "1")
    assert known["connect_timeout"] == "10"


async def test_somebody_waits_for_a_lock_on_a_line_that_is_lost_all_the_same(line: SilentLine, schema: str) -> None:
    store = PostgresStore(line.dsn, schema=schema, timeout=6.0)
    await fill(store, "r", 1)
    with nobody_moves("r", schema):
        appending = asyncio.ensure_future(store.append(record("r", 1)))
        await come_to_wait(schema)
        line.fall_silent()  # the answer will not arrive
        line.speak_again()
    await appending
    assert numbers(await store.history("r")) == [0, 1]
    await store.close()
