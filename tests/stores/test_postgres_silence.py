"""A server that is silent, not dead: its lines stay open, and nothing comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from stepwell.stores.postgres.patience import Patience
from stepwell.stores.postgres.silence import ANSWERED, Session, is_at_work

from stepwell import PostgresCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from stepwell.errors import StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import fill, numbers, record
from tests.support.postgres_locks import come_to_wait, nobody_moves
from tests.support.postgres_proxy import Pooler, SilentLine, writes
from tests.support.postgres_server import Server, ask, dsn, fresh_schema, own_server

pytestmark = pytest.mark.process

PATIENCE = 1.0
PROMISED = PATIENCE + 2.0
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
    "a look for mail": lambda store: asyncio.to_thread(store.runs_with_signals, ["r"]),
    "letting go": lambda store: store.release("r", this_process("mine")),
    "tidying up": lambda store: store.compact(),
}


async def test_a_silent_line_is_given_up_when_the_patience_ends_wherever_somebody_waits(
    line: SilentLine, schema: str
) -> None:
    stores = {name: PostgresStore(line.dsn, schema=schema, timeout=PATIENCE, connections=3) for name in MOMENTS}
    fresh = PostgresStore(line.dsn, schema=schema, timeout=PATIENCE)  # has no connection yet
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
    assert min(took) > PATIENCE * 0.9
    began = time.monotonic()
    for store in (*stores.values(), fresh):
        await store.close()
    assert time.monotonic() - began < PATIENCE * len(stores)  # nobody waits again


async def test_closing_ends_with_the_patience_of_what_is_under_way(line: SilentLine, schema: str) -> None:
    store = PostgresStore(line.dsn, schema=schema, timeout=PATIENCE)
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

    async with PostgresCheckpointStorage(line.dsn, schema=schema, timeout=PATIENCE) as storage:
        yield WorkflowBuilder(name="shop", start_executor=seller, checkpoint_storage=storage).build()


async def test_a_run_on_a_silent_line_ends_with_the_patience_and_goes_on_when_the_server_speaks(
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


@pytest.mark.parametrize("when", ["SET LOCAL stepwell.step", "INSERT INTO test_", "::text[]); COMMIT"])
async def test_a_step_in_a_transaction_ends_with_the_patience_and_is_done_once(
    orders: str, line: SilentLine, schema: str, when: str
) -> None:
    def order(db: Any) -> str:
        db.execute(f"INSERT INTO {orders} VALUES ('tea')".encode())
        return "ordered"

    async def act(ctx: Any) -> Any:
        return await ctx.step("order", order, transaction=True)

    line.fall_silent_at("after", lambda request: when.encode() in request)
    async with shop(line, schema, act) as workflow:
        assert await refused(workflow.run("tea", run_id="r")) < PROMISED
        line.speak_again()
        assert (await workflow.run(run_id="r")).get_outputs() == ["ordered"]
    assert ask(f"SELECT what FROM {orders}") == [("tea",)]


# -------------------------------------------------------------------- a server that works is not given up


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_statement_may_take_longer_than_the_patience_while_the_server_works_on_it(
    schema: str, pooled: bool
) -> None:
    with Pooler(dsn()) as pooler:
        store = PostgresStore(pooler.dsn if pooled else dsn(), schema=schema, timeout=0.3)
        await fill(store, "r", 1)
        began = time.monotonic()
        with nobody_moves("r", schema):
            writing = asyncio.ensure_future(store.append(record("r", 1)))
            await store._db.read(b"SELECT pg_sleep(2.2)")
            assert not writing.done()
        await writing
        assert time.monotonic() - began > 2
        assert numbers(await store.history("r")) == [0, 1]
        await store.close()


async def test_a_loop_that_is_busy_for_longer_than_the_patience_finds_its_answer(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema, timeout=0.3)
    await fill(store, "r", 1)
    appending = asyncio.ensure_future(store.append(record("r", 1)))
    await asyncio.sleep(0)
    lines = [line for line in store._db._open_workers().link._watch._lines if line.since is not None]
    assert len(lines) == 1
    time.sleep(1.5)  # a handler that blocks its loop
    assert lines[0].lost is None
    await appending
    await store.close()


def test_a_session_is_known_by_its_process_or_behind_a_pooler_by_the_age_of_its_statement() -> None:
    working, waiting = Session(7, 10.0, True), Session(7, 10.0, False)
    assert is_at_work([working], 7, waited=10.0)
    assert is_at_work([working], 7, waited=60.0)  # the second of two statements
    assert not is_at_work([working], 7, waited=5.0)  # another one that had the same number before
    assert not is_at_work([working], 8, waited=10.0)
    assert not is_at_work([waiting], 7, waited=10.0)
    assert is_at_work([working], None, waited=10.4)
    assert not is_at_work([working], None, waited=60.0)
    assert is_at_work([Session(7, None, True)], 7, waited=10.0)  # a server that keeps no track
    assert is_at_work(ANSWERED, 8, waited=10.0)
    assert not is_at_work([], 7, waited=10.0)


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

    async with PostgresCheckpointStorage(line.dsn, schema=schema, timeout=PATIENCE) as storage:
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


async def test_an_outage_that_was_too_long_takes_no_patience_from_the_next_one(server: Server, schema: str) -> None:
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


def test_how_long_a_server_was_away_is_counted_from_the_first_who_missed_it() -> None:
    patience, gone = Patience(10.0), ConnectionError("gone")
    began = time.monotonic()
    assert patience.find_outage(began, best_effort=False) is None
    assert patience.note_failure(gone, began - 4) is None
    assert patience.deadline(began) == pytest.approx(began + 6)
    lasted = patience.note_failure(gone, began - 12)
    assert lasted is not None
    assert 12 <= lasted < 13
    assert patience.deadline(began) == pytest.approx(began + 1)  # an answer takes a moment
    assert patience.find_outage(began - 3, best_effort=False) is not None  # it was asked for while there was hope
    assert patience.find_outage(began, best_effort=True) is not None  # somebody has just tried
    patience._last_failure -= 2
    assert patience.find_outage(began, best_effort=True) is None
    assert patience.note_failure(gone, time.monotonic()) is not None  # tried once
    assert patience.find_outage(began, best_effort=False) is None
    assert patience.note_failure(gone, time.monotonic()) is None  # waited for anew
    assert patience.note_failure(gone, began - 12) is not None
    patience.note_answer()
    assert patience.note_failure(gone, time.monotonic()) is None


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
    from stepwell.stores.postgres.link import DEFAULT_OPTIONS, Link

    names = {"connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"}
    assert {*names, "tcp_user_timeout"} <= set(DEFAULT_OPTIONS)
    known = conninfo_to_dict(Link("host=a keepalives_idle=77 tcp_user_timeout=1", "s", 30)._dsn)
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
