"""Steps that write to the user's own tables in the transaction that remembers their result."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from stepwell import (
    Executor,
    FileCheckpointStorage,
    HandlerFailed,
    HandlerTimeout,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    RetryPolicy,
    Seal,
    SQLiteCheckpointStorage,
    StepOptions,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from stepwell.errors import CodecError, CommitConflict, StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import fill, logged
from tests.support.postgres_proxy import BreakingLine, Pooler
from tests.support.postgres_server import ask, dsn, fresh_schema
from tests.support.spies import first, spy

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PATIENT = 600.0
Db = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
def table() -> Iterator[str]:
    """A table of the user's own."""
    with fresh_schema() as name:
        ask(f"CREATE SCHEMA {name}")
        ask(f"CREATE TABLE {name}.orders (id serial PRIMARY KEY, what text NOT NULL)")
        yield f"{name}.orders"


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
    await fill(made, "r", 1)
    yield made
    await made.close()


def rows(table: str) -> list[Any]:
    return [row[0] for row in ask(f"SELECT what FROM {table} ORDER BY id")]


def writes(table: str, what: str = "it", result: bytes = b"1") -> Callable[[Db], bytes]:
    def work(db: Db) -> bytes:
        db.execute(f"INSERT INTO {table} (what) VALUES (%s)".encode(), [what])
        return result

    return work


async def done(store: PostgresStore, work: Callable[[Db], bytes], key: str = "k", fence: int | None = None) -> Any:
    return await asyncio.to_thread(store.transaction("r", 1, key, fence=fence).do, work)


# -------------------------------------------------------------------- both or neither


async def test_what_is_written_and_what_is_remembered_are_there_together(store: PostgresStore, table: str) -> None:
    assert await done(store, writes(table)) is None
    assert rows(table) == ["it"]
    assert await logged(store, "r", 1) == {"k": b"1"}


async def test_what_was_remembered_is_not_done_again(store: PostgresStore, table: str) -> None:
    await store.write_log("r", 1, "k", '"before é"'.encode())
    assert await done(store, writes(table)) == '"before é"'.encode()
    assert rows(table) == []


async def test_what_is_remembered_meanwhile_undoes_it(store: PostgresStore, table: str) -> None:
    def overtaken(db: Db) -> bytes:
        asyncio.run(store.write_log("r", 1, "k", b"2"))
        return writes(table)(db)

    assert await done(store, overtaken) == b"2"
    assert rows(table) == []


async def test_of_two_at_once_one_is_kept(store: PostgresStore, table: str) -> None:
    both = threading.Barrier(2)

    def at_once(name: str) -> Callable[[Db], bytes]:
        def work(db: Db) -> bytes:
            both.wait()
            return writes(table, name, b'"%s"' % name.encode())(db)

        return work

    outcomes = await asyncio.gather(done(store, at_once("a")), done(store, at_once("b")))
    (kept,) = rows(table)
    assert await logged(store, "r", 1) == {"k": b'"%s"' % kept.encode()}
    assert sorted(outcomes, key=str) == sorted([None, b'"%s"' % kept.encode()], key=str)


async def test_an_error_undoes_everything(store: PostgresStore, table: str) -> None:
    def fails(db: Db) -> bytes:
        writes(table)(db)
        raise LookupError("no")

    with pytest.raises(LookupError):
        await done(store, fails)
    assert rows(table) == []
    assert await logged(store, "r", 1) == {}


async def test_an_error_of_the_database_comes_out_as_it_is(store: PostgresStore, table: str) -> None:
    with pytest.raises(errors.NotNullViolation):
        await done(store, writes(table, None))  # type: ignore[arg-type]
    ask(f"ALTER TABLE {table} ADD UNIQUE (what) DEFERRABLE INITIALLY DEFERRED")

    def twice(db: Db) -> bytes:
        writes(table)(db)
        return writes(table)(db)

    with pytest.raises(errors.UniqueViolation):  # said by the COMMIT
        await done(store, twice)
    assert rows(table) == []
    assert await logged(store, "r", 1) == {}
    assert await done(store, writes(table)) is None


async def test_whoever_was_followed_by_somebody_else_writes_nothing(store: PostgresStore, table: str) -> None:
    first = await store.acquire("r", this_process("mine"), seconds=0)
    assert await done(store, writes(table), "a", fence=first) is None

    def overtaken(db: Db) -> bytes:
        asyncio.run(store.acquire("r", this_process("other"), seconds=60))
        return writes(table)(db)

    with pytest.raises(CommitConflict, match="acquired by another process"):
        await done(store, overtaken, "b", fence=first)
    assert rows(table) == ["it"]
    assert await logged(store, "r", 1) == {"a": b"1"}


async def test_others_of_the_run_are_not_kept_waiting(store: PostgresStore, table: str) -> None:
    fence = await store.acquire("r", this_process("mine"), seconds=60)

    def slow(db: Db) -> bytes:
        writes(table)(db)
        assert asyncio.run(store.write_log("r", 1, "sibling", b"2", fence=fence))
        assert list(store.renew({"r": fence}, seconds=60).lost) == []
        return b"1"

    assert await done(store, slow, fence=fence) is None
    assert await logged(store, "r", 1) == {"k": b"1", "sibling": b"2"}


# -------------------------------------------------------------------- what a function may do with the connection


async def test_the_connection_is_one_as_any(store: PostgresStore, table: str) -> None:
    def usual(db: Db) -> bytes:
        db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")  # nothing was asked before
        with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            found = cursor.execute("SELECT %s::int AS n, %s::text[] AS words", [1, ["a", "b"]]).fetchone()
        assert found == {"n": 1, "words": ["a", "b"]}
        with pytest.raises(errors.NotNullViolation), db.transaction():
            db.execute(f"INSERT INTO {table} (what) VALUES (NULL)".encode())
        with db.transaction():
            writes(table)(db)
        db.execute("SET LOCAL client_encoding = 'LATIN1'")
        return '"日本 \\" \' é"'.encode()

    assert await done(store, usual) is None
    assert rows(table) == ["it"]
    assert await logged(store, "r", 1) == {"k": '"日本 \\" \' é"'.encode()}


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_the_transaction_is_not_ended_by_the_function(store: PostgresStore, table: str, end: str) -> None:
    def ends(db: Db) -> bytes:
        writes(table)(db)
        getattr(db, end)()
        return b"1"

    with pytest.raises(RuntimeError, match="its writes are"):
        await done(store, ends)
    assert rows(table) == []


@pytest.mark.parametrize("begun", ["", "; BEGIN"])
async def test_a_function_that_ends_it_in_words_is_told(store: PostgresStore, table: str, begun: str) -> None:
    def ends(db: Db) -> bytes:
        writes(table)(db)
        db.execute(f"COMMIT{begun}".encode())
        return b"1"

    with pytest.raises(RuntimeError, match="ended its transaction by itself"):
        await done(store, ends)
    assert await logged(store, "r", 1) == {}


async def test_a_function_that_goes_on_after_an_error_is_told(store: PostgresStore, table: str) -> None:
    def goes_on(db: Db) -> bytes:
        writes(table)(db)
        with pytest.raises(errors.UndefinedTable):
            db.execute("SELECT FROM nowhere")
        return b"1"

    with pytest.raises(RuntimeError, match="continued after a statement had failed"):
        await done(store, goes_on)
    assert rows(table) == []


async def test_a_connection_ends_with_its_step(store: PostgresStore, table: str) -> None:
    kept: list[Db] = []
    await done(store, spy(writes(table), kept, first))
    assert kept[0].closed
    with pytest.raises(psycopg.OperationalError):
        kept[0].execute("SELECT 1")


async def test_as_many_at_a_time_as_there_are_connections(schema: str, table: str) -> None:
    store = PostgresStore(make_conninfo(dsn(), application_name=schema), schema=schema, connections=2)
    await fill(store, "r", 1)
    most: list[int] = []
    # Those at work: a session that was closed is listed for a moment, as idle.
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state <> 'idle'"

    def counted(db: Db) -> bytes:
        most.append(ask(query, schema)[0][0])
        return writes(table)(db)

    await asyncio.gather(*(done(store, counted, f"k{n}") for n in range(8)))
    assert len(rows(table)) == 8
    assert max(most) <= 2
    await store.close()


async def test_what_is_given_up_is_stopped_and_undone(store: PostgresStore, table: str) -> None:
    transaction = store.transaction("r", 1, "k")

    def endless(db: Db) -> bytes:
        writes(table)(db)
        started.set()
        db.execute("SELECT pg_sleep(600)")
        return b"1"

    started = threading.Event()
    doing = asyncio.ensure_future(asyncio.to_thread(transaction.do, endless))
    await asyncio.to_thread(started.wait)
    while not ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    transaction.give_up()
    with pytest.raises(errors.QueryCanceled):
        await doing
    assert rows(table) == []
    assert await logged(store, "r", 1) == {}


async def test_what_was_given_up_is_not_begun_and_not_committed(store: PostgresStore, table: str) -> None:
    late = store.transaction("r", 1, "k")

    def gives_up(db: Db) -> bytes:
        late.give_up()
        return writes(table)(db)

    with pytest.raises((StoreUnavailable, errors.QueryCanceled)):
        await asyncio.to_thread(late.do, gives_up)
    early = store.transaction("r", 1, "k")
    early.give_up()
    with pytest.raises(StoreUnavailable, match="given up"):
        await asyncio.to_thread(early.do, writes(table))
    assert rows(table) == []
    assert await logged(store, "r", 1) == {}


# -------------------------------------------------------------------- lost answers, and death


@pytest.mark.parametrize("plan", ["after", "before"])
async def test_a_commit_whose_answer_is_lost_is_recognised(
    store: PostgresStore, schema: str, table: str, plan: str
) -> None:
    with BreakingLine(dsn()) as line:
        broken = PostgresStore(line.dsn, schema=schema, timeout=PATIENT)
        assert await logged(broken, "r", 1) == {}
        line.break_next(plan)
        if plan == "after":
            assert await done(broken, writes(table)) is None
        else:
            with pytest.raises(StoreUnavailable, match="undone, or the next attempt finds it"):
                await done(broken, writes(table))
            assert rows(table) == []
            assert await done(broken, writes(table)) is None
        assert rows(table) == ["it"]
        assert await logged(store, "r", 1) == {"k": b"1"}
        await broken.close()


async def test_a_commit_that_outlives_its_line_counts(store: PostgresStore, schema: str, table: str) -> None:
    with BreakingLine(dsn()) as line, psycopg.connect(dsn()) as db:
        broken = PostgresStore(line.dsn, schema=schema, timeout=PATIENT)
        fence = await broken.acquire("r", this_process("mine"), seconds=60)
        db.execute(f"SELECT FROM {schema}.runs WHERE run_id = 'r' FOR UPDATE".encode())
        line.break_next("meanwhile")
        with pytest.raises(StoreUnavailable, match="the next attempt finds it"):
            await done(broken, writes(table, result=b"first"), fence=fence)  # its last statement waits, alone
        again = asyncio.ensure_future(done(broken, writes(table, result=b"second"), fence=fence))
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        while ask(query, f"%{schema}%finish_step%") < [(2,)]:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.005)
        db.rollback()
        assert await again in (None, b"first")  # whichever was let in
        assert rows(table) == ["it"]
        await broken.close()


async def test_a_pooler_may_stand_in_between(schema: str, table: str) -> None:
    with Pooler(dsn()) as pooler:
        store = PostgresStore(pooler.dsn, schema=schema, timeout=PATIENT)
        await fill(store, "r", 1)
        for n in range(4):
            assert await done(store, writes(table, str(n)), f"k{n}") is None
        assert rows(table) == ["0", "1", "2", "3"]
        await store.close()


WORKFLOW = """
import asyncio, os, signal, sys
sys.path.insert(0, {root!r})
from stepwell import PostgresCheckpointStorage, StepOptions, WorkflowBuilder, WorkflowContext, executor
from stepwell.stores.postgres import transaction as postgres_transaction

def order(db, n):
    print("called", n, flush=True)
    db.execute("INSERT INTO {table} (what) VALUES (%s)", [str(n)])
    if {die!r} == "before" and n == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return n * 10

@executor
async def seller(count: int, ctx: WorkflowContext[None, list]) -> None:
    done = []
    for n in range(count):
        done.append(await ctx.step(StepOptions("order", transaction=True), order, n))
        if {die!r} == "after" and n == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    await ctx.yield_output(done)

finish = postgres_transaction.PostgresTransaction._finish
finished = []
def dying(self, db, step, body):
    found = finish(self, db, step, body)
    finished.append(step)
    if {die!r} == "committed" and len(finished) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
postgres_transaction.PostgresTransaction._finish = dying

async def main():
    async with PostgresCheckpointStorage({dsn!r}, schema={schema!r}) as storage:
        workflow = WorkflowBuilder(name="shop", start_executor=seller, checkpoint_storage=storage).build()
        given = (3,) if {fresh!r} else ()
        print((await workflow.run(*given, run_id="r")).get_outputs(), flush=True)

asyncio.run(main())
"""


def program(schema: str, table: str, die: str, *, fresh: bool) -> subprocess.CompletedProcess[str]:
    told = {"root": str(ROOT), "dsn": dsn(), "schema": schema, "table": table, "die": die, "fresh": fresh}
    return subprocess.run([sys.executable, "-c", WORKFLOW.format(**told)], capture_output=True, text=True)


@pytest.mark.parametrize(("die", "kept"), [("before", ["0"]), ("committed", ["0", "1"]), ("after", ["0", "1"])])
def test_a_killed_program_has_done_both_or_neither(schema: str, table: str, die: str, kept: list[str]) -> None:
    killed = program(schema, table, die, fresh=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.splitlines() == ["called 0", "called 1"]
    assert rows(table) == kept
    assert ask(f"SELECT count(*) FROM {schema}.superstep_log WHERE key LIKE %s", "%order%") == [(len(kept),)]
    resumed = program(schema, table, "", fresh=False)
    assert resumed.returncode == 0, resumed.stderr
    called = [f"called {n}" for n in range(len(kept), 3)]
    assert resumed.stdout.splitlines() == [*called, "[[0, 10, 20]]"]
    assert rows(table) == ["0", "1", "2"]


# -------------------------------------------------------------------- as steps


class Seller(Executor):
    """Does what a test gives it to do."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        super().__init__("seller")
        self.body = body

    @handler
    async def sell(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output(await self.body(ctx))


class PlainSeller(Executor):
    def __init__(self, body: Callable[[Any], Any]) -> None:
        super().__init__("seller")
        self.body = body

    @handler
    def sell(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        ctx.yield_output(self.body(ctx))


def shop(storage: Any, body: Callable[[Any], Any], kind: Any = Seller) -> Workflow:
    return WorkflowBuilder(name="shop", start_executor=kind(body), checkpoint_storage=storage).build()


@pytest.fixture
async def storage(schema: str) -> AsyncIterator[PostgresCheckpointStorage]:
    async with PostgresCheckpointStorage(dsn(), schema=schema, timeout=PATIENT) as made:
        yield made


def order(db: Db, table: str, what: str) -> str:
    db.execute(f"INSERT INTO {table} (what) VALUES (%s)".encode(), [what])
    return f"ordered {what}"


@pytest.mark.parametrize("kind", [Seller, PlainSeller])
async def test_a_step_in_a_transaction_is_done_once(storage: PostgresCheckpointStorage, table: str, kind: Any) -> None:
    trouble = ["out of paper"]

    def plain(ctx: Any) -> list[str]:
        found = [ctx.step_sync(StepOptions("order", transaction=True), order, table, what=what) for what in "ab"]
        if trouble:
            raise OSError(trouble.pop())
        return found

    async def waiting(ctx: Any) -> list[str]:
        found = [await ctx.step(StepOptions("order", transaction=True), order, table, what=what) for what in "ab"]
        if trouble:
            raise OSError(trouble.pop())
        return found

    workflow = shop(storage, waiting if kind is Seller else plain, kind)
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    result = await workflow.run(run_id="r")
    assert result.get_outputs() == [["ordered a", "ordered b"]]
    assert rows(table) == ["a", "b"]


async def test_a_step_in_a_transaction_is_sealed_with_its_storage(schema: str, table: str) -> None:
    seal = Seal({"key": bytes(32)}, "key")
    trouble = ["out of paper"]

    async def body(ctx: Any) -> Any:
        found = await ctx.step(StepOptions("order", transaction=True), order, table, "secret")
        if trouble:
            raise OSError(trouble.pop())
        return found

    async with PostgresCheckpointStorage(dsn(), schema=schema, seal=seal) as storage:
        with pytest.raises(HandlerFailed):
            await shop(storage, body).run("go", run_id="r")
        (kept,) = [row[0] for row in ask(f"SELECT body FROM {schema}.superstep_log WHERE key LIKE %s", "%order%")]
        assert "sealed" in kept
        assert "secret" not in kept
        assert (await shop(storage, body).run(run_id="r")).get_outputs() == ["ordered secret"]
    assert rows(table) == ["secret"]


@pytest.mark.parametrize("level", ["async", "exit"])
async def test_what_led_to_a_transaction_is_stored_before_it(
    storage: PostgresCheckpointStorage, schema: str, table: str, level: Any
) -> None:
    class First(Executor):
        @handler
        async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(text)

    seen: list[Any] = []

    async def body(ctx: Any) -> Any:
        def look(db: Db) -> str:
            seen.append(ask(f"SELECT number FROM {schema}.runs WHERE run_id = 'r'"))
            return order(db, table, "a")

        return await ctx.step(StepOptions("order", transaction=True), look)

    first, seller = First("first"), Seller(body)
    builder = WorkflowBuilder(name="shop", start_executor=first, checkpoint_storage=storage)
    await builder.add_edge(first, seller).build().run("go", run_id="r", durability=level)
    assert seen == [[(1,)]]


async def test_attempts_that_failed_are_undone(storage: PostgresCheckpointStorage, table: str) -> None:
    keys: list[str] = []

    def flaky(db: Db, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        found = order(db, table, str(len(keys)))
        if len(keys) < 3:
            raise ConnectionError("not now")
        return found

    async def body(ctx: Any) -> Any:
        retry = RetryPolicy(max_attempts=3, initial_interval=0)
        return await ctx.step(StepOptions("order", retry=retry, transaction=True), flaky)

    assert (await shop(storage, body).run("go")).get_outputs() == ["ordered 3"]
    assert rows(table) == ["3"]
    assert len(set(keys)) == 1


async def test_an_error_that_is_a_result_is_remembered_and_its_writes_are_not(
    storage: PostgresCheckpointStorage, table: str
) -> None:
    calls: list[str] = []

    def fails(db: Db) -> str:
        calls.append(order(db, table, "a"))
        raise LookupError("sold out")

    async def body(ctx: Any) -> Any:
        try:
            await ctx.step(StepOptions("order", remember=LookupError, transaction=True), fails)
        except LookupError as error:
            if len(calls) == 1:
                calls.append("again")
                raise OSError("not now") from error
            return str(error)
        return ""

    with pytest.raises(HandlerFailed):
        await shop(storage, body).run("go", run_id="r")
    assert (await shop(storage, body).run(run_id="r")).get_outputs() == ["sold out"]
    assert calls == ["ordered a", "again"]
    assert rows(table) == []


async def test_a_result_that_cannot_be_stored_undoes_it(storage: PostgresCheckpointStorage, table: str) -> None:
    calls: list[str] = []

    def odd(db: Db) -> object:
        calls.append(order(db, table, "a"))
        return lambda: None

    async def body(ctx: Any) -> Any:
        return await ctx.step(
            StepOptions("order", retry=RetryPolicy(max_attempts=3, initial_interval=0), transaction=True), odd
        )

    with pytest.raises(CodecError, match="cannot be stored"):
        await shop(storage, body).run("go")
    assert calls == ["ordered a"]
    assert rows(table) == []


async def test_a_step_that_takes_too_long_is_undone_and_holds_nothing(
    storage: PostgresCheckpointStorage, table: str
) -> None:
    def slow(db: Db) -> str:
        found = order(db, table, "slow")
        db.execute("SELECT pg_sleep(600)")
        return found

    async def body(ctx: Any) -> Any:
        with pytest.raises(HandlerTimeout, match="step 'slow'"):
            await ctx.step(StepOptions("slow", timeout=0.2, transaction=True), slow)
        while ask("SELECT 1 FROM pg_locks WHERE relation = %s::regclass", table):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return await ctx.step(StepOptions("order", transaction=True), order, table, "fast")

    assert (await shop(storage, body).run("go")).get_outputs() == ["ordered fast"]
    assert rows(table) == ["fast"]


async def test_an_async_function_is_refused_at_the_call(storage: PostgresCheckpointStorage) -> None:
    async def too_clever(db: Db) -> None: ...

    async def body(ctx: Any) -> Any:
        with pytest.raises(TypeError, match=r"'order' .* must be a plain one: .* psycopg.Connection"):
            ctx.step(StepOptions("order", transaction=True), too_clever)
        return "told"

    assert (await shop(storage, body).run("go")).get_outputs() == ["told"]


async def test_where_there_is_no_transaction_the_step_is_refused_at_the_call(tmp_path: Path) -> None:
    async def body(ctx: Any) -> Any:
        with pytest.raises(RuntimeError, match=r"'order' of 'seller' .* use PostgresCheckpointStorage, or"):
            ctx.step(StepOptions("order", transaction=True), order, "t", "a")
        return "told"

    for storage in (
        None,
        InMemoryCheckpointStorage(),
        SQLiteCheckpointStorage(tmp_path / "runs.db"),
        FileCheckpointStorage(tmp_path / "runs"),
    ):
        assert (await shop(storage, body).run("go")).get_outputs() == ["told"]
