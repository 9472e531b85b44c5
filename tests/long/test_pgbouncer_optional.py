"""The store behind a real PgBouncer in transaction mode. Optional: skipped where there is none and none can be had."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import PostgresCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from stepwell.errors import CommitConflict, StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing import STORE_RULES, Ledger, StoreRule, crash_everywhere
from stepwell.testing.store_rules.samples import fill, numbers, record
from tests.support import figures
from tests.support.pgbouncer import PgBouncer, bouncer, installed
from tests.support.postgres_proxy import SilentLine
from tests.support.postgres_server import Server, ask, fresh_schema, own_server
from tests.testing.test_crash_everywhere import Order, shop

pytestmark = pytest.mark.skipif(installed() is None, reason="there is no PgBouncer here, and it cannot be installed")

PATIENT = 600.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_server() as made:
        yield made


@pytest.fixture(scope="module")
def pooler(server: Server) -> Iterator[PgBouncer]:
    with bouncer(server.dsn) as made:
        yield made


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    with fresh_schema(server.dsn) as name:
        yield name


def test_each_transaction_may_have_another_session(pooler: PgBouncer) -> None:
    clients = [psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) for _ in range(3)]
    served = [client.execute("BEGIN; SELECT pg_backend_pid()").nextset() for client in clients]
    assert served == [True] * 3  # three transactions at once, so there are three sessions
    for client in clients:
        client.execute("COMMIT")
    sessions = {clients[n % 3].execute("SELECT pg_backend_pid()").fetchone() for n in range(30)}
    for client in clients:
        client.close()
    assert len(sessions) < 3  # and one or two of them serve all three


@pytest.mark.parametrize("rule", [rule for rule in STORE_RULES if rule.manner == "plain"], ids=str)
async def test_rules_are_true_behind_it(rule: StoreRule, pooler: PgBouncer, schema: str) -> None:
    await rule.check(lambda: PostgresStore(pooler.dsn, schema=schema, timeout=PATIENT))
    figures.note("store rules", 1)


async def test_the_server_has_nothing_to_complain_of(server: Server, pooler: PgBouncer, schema: str) -> None:
    stores = [PostgresStore(pooler.dsn, schema=schema, timeout=PATIENT) for _ in range(3)]
    await stores[0].read("r")  # the schema is made

    async def drive(store: PostgresStore, run_id: str) -> None:
        for number in range(20):
            await store.append(record(run_id, number))
            await asyncio.gather(store.read(run_id), store.history(run_id))

    before = len(server.log())
    await asyncio.gather(*(drive(store, f"{n}-{i}") for n, store in enumerate(stores) for i in range(5)))
    assert "ERROR" not in server.log()[before:]
    for store in stores:
        await store.close()


async def test_a_workflow_dies_anywhere_and_goes_on(pooler: PgBouncer, server: Server) -> None:
    made: list[str] = []

    def store() -> PostgresStore:
        made.append(f"crash_{os.getpid()}_{len(made)}")
        return PostgresStore(pooler.dsn, schema=made[-1], timeout=PATIENT)

    ledger = Ledger()
    trial = await crash_everywhere(shop(ledger), Order("tea", 3), answer=lambda _: True, ledger=ledger, store=store)
    assert trial.crashes > 10
    figures.note("crash points", trial.crashes)
    for name in made:
        ask(f"DROP SCHEMA IF EXISTS {name} CASCADE", where=server.dsn)


async def test_whoever_was_followed_by_somebody_else_writes_nothing(
    server: Server, pooler: PgBouncer, schema: str
) -> None:
    ask(
        f"CREATE SCHEMA {schema}; CREATE SCHEMA {schema}_own; CREATE TABLE {schema}_own.orders (w text)",
        where=server.dsn,
    )
    one, two = (PostgresStore(pooler.dsn, schema=schema, timeout=PATIENT) for _ in range(2))
    await fill(one, "r", 1)
    first = await one.acquire("r", this_process("one"), seconds=0)

    def overtaken(db: Any) -> bytes:
        db.execute(f"INSERT INTO {schema}_own.orders VALUES ('x')".encode())
        asyncio.run(two.acquire("r", this_process("two"), seconds=60))
        return b"1"

    with pytest.raises(CommitConflict):
        await asyncio.to_thread(one.transaction("r", 1, "k", fence=first).do, overtaken)
    with pytest.raises(CommitConflict):
        await one.append(record("r", 1), CommitEffects(fence=first))
    with pytest.raises(CommitConflict):
        await one.write_log("r", 1, "k", b"1", fence=first)
    assert ask(f"SELECT * FROM {schema}_own.orders", where=server.dsn) == []
    assert numbers(await two.history("r")) == [0]
    for store in (one, two):
        await store.close()
    ask(f"DROP SCHEMA {schema}_own CASCADE", where=server.dsn)


LIFE = """
import asyncio, sys
sys.path.insert(0, {root!r})
from tests.crash import worker
from stepwell import PostgresCheckpointStorage

worker.SQLiteCheckpointStorage = lambda path: PostgresCheckpointStorage({dsn!r}, schema={schema!r}, timeout=600)
asyncio.run(worker.main("sqlite", "", "run-1"))
"""


def test_killed_workers_and_a_killed_pooler_lose_nothing(pooler: PgBouncer, schema: str, tmp_path: Path) -> None:
    chance, ledger = random.Random(), tmp_path / "ledger"
    ledger.touch()

    def born() -> subprocess.Popen[bytes]:
        life = LIFE.format(root=str(ROOT), dsn=pooler.dsn, schema=schema)
        return subprocess.Popen([sys.executable, "-c", life], env={**os.environ, "LEDGER": str(ledger)})

    def has_written(worker: subprocess.Popen[bytes], lines: int) -> None:
        before = ledger.stat().st_size
        while worker.poll() is None and ledger.read_bytes()[before:].count(b"\n") < lines:
            time.sleep(0.0005)

    for kill in range(8):
        worker = born()
        has_written(worker, chance.randint(1, 14))
        if kill % 2:
            pooler.stop()
            pooler.start()
            has_written(worker, chance.randint(1, 5))
        worker.send_signal(signal.SIGKILL)
        assert worker.wait() == -signal.SIGKILL
    assert born().wait() == 0
    figures.note("killed processes", 8)
    told = 0
    for line in [line.split(maxsplit=2) for line in ledger.read_text().splitlines()]:
        if line[0] == "told":
            told = max(told, int(line[1]))
        elif line[0] == "ran":
            superstep = {"split": 1, "join": 3}.get(line[2], 2) + int(line[1]) * 3
            assert superstep > told, f"{line} ran after superstep {told} had been told"


async def refused(call: Any) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await call
    return time.monotonic() - began


async def test_a_pooler_that_hangs_is_given_up_when_the_patience_ends(pooler: PgBouncer, schema: str) -> None:
    store = PostgresStore(pooler.dsn, schema=schema, timeout=1.0)
    await fill(store, "r", 1)
    pooler.signal(signal.SIGSTOP)
    try:
        assert max(await asyncio.gather(refused(store.append(record("r", 1))), refused(store.read("r")))) < 3
    finally:
        pooler.signal(signal.SIGCONT)
    await store.close()


async def test_a_server_that_is_silent_behind_it_is_given_up_when_the_patience_ends(
    server: Server, schema: str
) -> None:
    with SilentLine(server.dsn) as line, bouncer(line.dsn) as pooler:
        done: list[int] = []

        @executor
        async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
            done.append(number)
            if done == [0, 1, 2]:
                line.fall_silent()
            await (ctx.send_message(number + 1) if number < 4 else ctx.yield_output(number))

        async with PostgresCheckpointStorage(pooler.dsn, schema=schema, timeout=1.0) as storage:
            workflow = (
                WorkflowBuilder(name="count", start_executor=count, checkpoint_storage=storage)
                .add_edge(count, count)
                .build()
            )
            assert await refused(workflow.run(0, run_id="r")) < 3
            line.speak_again()
            pooler.stop()  # it has no idea that its lines are dead
            pooler.start()
            assert (await workflow.run(run_id="r")).get_outputs() == [4]
    assert done == [0, 1, 2, 2, 3, 4]


async def test_a_statement_may_take_longer_than_the_patience(server: Server, pooler: PgBouncer, schema: str) -> None:
    store = PostgresStore(pooler.dsn, schema=schema, timeout=0.3)
    await fill(store, "r", 1)
    with psycopg.connect(server.dsn) as db:
        db.execute(f"SELECT FROM {schema}.runs WHERE run_id = 'r' FOR UPDATE".encode())
        writing = asyncio.ensure_future(store.append(record("r", 1)))
        await store._db.read("SELECT pg_sleep(3)")
        assert not writing.done()
    await writing
    assert numbers(await store.history("r")) == [0, 1]
    await store.close()
