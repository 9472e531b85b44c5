"""What is special about the store in PostgreSQL."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from stepwell.errors import CommitConflict, RunBusy, StoreUnavailable
from stepwell.storage import clock
from stepwell.storage.lease import Owner, this_process
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.stores.postgres import values as postgres_values
from stepwell.stores.postgres import writer as postgres_writer
from stepwell.stores.postgres.connection import Connection
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.postgres.tables import FORMAT
from stepwell.testing import STORE_RULES, StoreRule
from stepwell.testing.store_rules.samples import (
    after,
    fill,
    head,
    logged,
    meaning,
    numbers,
    question,
    record,
    signals_of,
    text,
)
from tests.stores.postgres_samples import BEGIN, PATIENT, drive, nothing_is_lost
from tests.support.postgres_locks import come_to_wait, nobody_moves
from tests.support.postgres_proxy import BreakingLine, Pooler
from tests.support.postgres_server import Server, ask, dsn, fresh_schema, own_server
from tests.support.spies import spy

pytestmark = pytest.mark.process


RACE = """
async def main():
    won = []
    input()  # all at once
    for number in range({count}):
        try:
            await store.append(record("r", number, body={name!r}))
            won.append(number)
        except CommitConflict:
            newest = await head(store, "r")
            assert newest.entry.number >= number, (newest, number)
    await store.close()
    print(*won)

asyncio.run(main())
"""


ENDLESS = """
async def main():
    number = 0
    while True:
        await store.write_log("r", number, "k", b"1")
        await store.append(record("r", number, body="x" * 5000), CommitEffects(drop_log_through=number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def python(code: str, schema: str, **values: object) -> subprocess.Popen[str]:
    told = {"dsn": dsn(), "schema": schema, **values}
    return subprocess.Popen(
        [sys.executable, "-c", (BEGIN + code).format(**told)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that may be stopped."""
    with own_server() as made:
        yield made


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
    yield made
    await made.close()


# -------------------------------------------------------------------- several processes


def test_processes_that_create_the_schema_and_append_at_once_share_the_numbers(schema: str) -> None:
    racers = [python(RACE, schema, count=30, name=name) for name in "abc"]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    won = [racer.communicate()[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(30))
    for name, numbers_won in zip("abc", won, strict=True):
        rows = ask(f"SELECT number FROM {schema}.commits WHERE body = %s ORDER BY number", text(name).decode())
        assert [row[0] for row in rows] == [int(number) for number in numbers_won]


async def test_a_killed_writer_loses_nothing_it_was_told_is_stored(store: PostgresStore, schema: str) -> None:
    for _ in range(2):
        writer = python(ENDLESS, schema)
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().splitlines()
        writer.communicate()
        kept = numbers(await store.history("r"))
        assert kept == list(range(len(kept)))
        assert len(kept) >= len([line for line in told if line])
        await store.append(record("r", len(kept)))
        assert await store.drop("r")


async def test_a_dead_owner_is_replaced_by_one_of_many(store: PostgresStore) -> None:
    dead = Owner("here", this_process("x").machine, 4_000_000_000, "never", "dead")
    await store.acquire("r", dead, seconds=60)
    rivals = [this_process(f"rival {n}") for n in range(10)]
    outcomes = await asyncio.gather(*(store.acquire("r", one, seconds=60) for one in rivals), return_exceptions=True)
    assert len([outcome for outcome in outcomes if isinstance(outcome, int)]) == 1
    assert [type(outcome) for outcome in outcomes].count(RunBusy) == 9


async def test_machines_with_different_clocks_agree_on_claims(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    wrong = SimpleNamespace(time=lambda: time.time() + 3600)  # another machine, an hour ahead
    monkeypatch.setattr(postgres_values, "time", wrong)
    clock.set_source(wrong.time)
    try:
        with pytest.raises(RunBusy):
            await store.acquire("r", this_process("other"), seconds=60)
    finally:
        clock.set_source()


async def test_whoever_claims_a_run_sees_everything_written_under_the_claim_before(
    store: PostgresStore, schema: str
) -> None:
    fence = await store.acquire("r", this_process("mine"), seconds=0)
    await store.append(record("r", 0), CommitEffects(fence=fence))
    other = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
    with psycopg.connect(dsn()) as db:  # somebody is about to use that key, or not
        db.execute(f"INSERT INTO {schema}.superstep_log SELECT key, 1, 'k', '2' FROM {schema}.runs".encode())
        remembering = asyncio.ensure_future(store.write_log("r", 1, "k", b"1", fence=fence))
        await come_to_wait(schema)
        claiming = asyncio.ensure_future(other.acquire("r", this_process("other"), seconds=60))
        await asyncio.wait([claiming, asyncio.ensure_future(come_to_wait(schema, 2))], return_when="FIRST_COMPLETED")
        assert not claiming.done()
        db.rollback()
    assert await claiming > fence
    assert await logged(other, "r", 1) == {"k": b"1"}
    assert await remembering
    await other.close()


def test_renewing_needs_no_event_loop(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema)
    fence = asyncio.run(store.acquire("r", this_process("mine"), seconds=60))
    assert list(store.renew({"r": fence}, seconds=600).lost) == []
    with after(minutes=2), pytest.raises(RunBusy):
        asyncio.run(store.acquire("r", this_process("other"), seconds=60))
    asyncio.run(store.send("r", "k", b"1"))
    assert list(store.renew({"r": fence, "s": 1}, seconds=None).signalled) == ["r"]
    asyncio.run(store.close())


# -------------------------------------------------------------------- one statement for all who wait


async def test_concurrent_appends_of_many_runs_share_a_statement(
    store: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    exchange = Connection.exchange
    monkeypatch.setattr(Connection, "exchange", spy(exchange, sizes, lambda db, calls: len(calls)))
    await fill(store, "held", 1)
    sizes.clear()
    with nobody_moves("held", schema):
        held = asyncio.ensure_future(store.append(record("held", 1)))
        await come_to_wait(schema)
        waiting: list[asyncio.Future[Any]] = []
        waiting += [asyncio.ensure_future(store.append(record(f"r{n}", 0))) for n in range(200)]
        waiting += [asyncio.ensure_future(store.write_log("held", 1, f"k{n}", b"1")) for n in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(held, *waiting)
    assert sizes == [1, 250]
    assert len(await store.checkpoints()) == 202


async def test_what_one_run_asks_for_is_done_in_that_order(store: PostgresStore, schema: str) -> None:
    await fill(store, "held", 1)
    with nobody_moves("held", schema):
        held = asyncio.ensure_future(store.append(record("held", 1)))
        await come_to_wait(schema)
        jobs = [
            asyncio.ensure_future(job)
            for job in (
                store.write_log("r", 0, "k", b"1"),
                store.append(record("r", 0), CommitEffects(drop_log_through=0)),
                store.append(record("r", 1)),
                store.append(record("r", 1)),
                store.send("r", "k", b"1"),
                store.append(record("r", 2), CommitEffects(consumed=("k",))),
                store.write_log("r", 0, "k", b"2"),
            )
        ]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    await held
    assert isinstance(outcomes.pop(3), CommitConflict)
    assert outcomes == [True, None, None, True, None, True]
    assert await logged(store, "r", 0) == {"k": b"2"}
    assert await store.pending_signals("r") == []


async def test_a_statement_is_bounded(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_writer, "BATCH", 7)
    monkeypatch.setattr(postgres_writer, "LARGE", 5000)
    await asyncio.gather(*(store.append(record(f"r{n}", 0, body="x" * 1000)) for n in range(40)))
    assert len(await store.checkpoints()) == 40


async def test_a_conflict_in_a_group_spoils_only_itself(store: PostgresStore) -> None:
    appends = [store.append(record(f"r{n}", n % 2)) for n in range(20)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), CommitConflict] * 10


async def test_a_job_that_the_server_cannot_do_spoils_only_itself(store: PostgresStore) -> None:
    chance = random.Random(1)
    endless = "".join(chr(chance.randrange(33, 0x2000)) for _ in range(9000))  # nothing that can be compressed
    appends = [store.append(record(f"r{n}" if n != 5 else endless, 0)) for n in range(10)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    refused = outcomes.pop(5)
    assert isinstance(refused, StoreUnavailable)
    assert "too long" in str(refused)
    assert outcomes == [None] * 9
    assert len(await store.checkpoints()) == 9


async def test_what_cannot_be_written_at_all_harms_nobody(store: PostgresStore) -> None:
    outcomes = await asyncio.gather(
        store.append(record("r", 0)), store.append(record("s", 0, status="\ud800")), store.send("s", "k", b"\xff"),
        return_exceptions=True,
    )  # fmt: skip
    assert [type(outcome) for outcome in outcomes] == [type(None), UnicodeEncodeError, StoreUnavailable]
    assert len(await store.checkpoints()) == 1


async def test_a_deadlock_is_sorted_out(schema: str) -> None:
    store = PostgresStore(make_conninfo(dsn(), options="-c deadlock_timeout=500ms"), schema=schema, timeout=PATIENT)
    for run_id in ("a", "b", "held"):
        await fill(store, run_id, 1)

    def lock_b_then_a() -> None:
        with psycopg.connect(dsn()) as db, contextlib.suppress(errors.DeadlockDetected):
            db.execute(f"SELECT FROM {schema}.runs WHERE run_id = 'b' FOR UPDATE".encode())
            holds_b.set()
            all_wait.wait()
            db.execute(f"SELECT FROM {schema}.runs WHERE run_id = 'a' FOR UPDATE".encode())

    holds_b, all_wait = threading.Event(), threading.Event()
    with nobody_moves("held", schema):
        other = asyncio.ensure_future(asyncio.to_thread(lock_b_then_a))
        held = asyncio.ensure_future(store.append(record("held", 1)))
        await asyncio.to_thread(holds_b.wait)
        await come_to_wait(schema)
        both = [asyncio.ensure_future(store.append(record(run_id, 1))) for run_id in ("a", "b")]
        await asyncio.sleep(0)
    await held
    await come_to_wait(schema)  # for b, with a in hand
    all_wait.set()
    await asyncio.gather(other, *both)
    assert numbers(await store.history("a")) == numbers(await store.history("b")) == [0, 1]
    await store.close()


async def test_a_stricter_isolation_changes_nothing(schema: str) -> None:
    strict = make_conninfo(dsn(), options="-c default_transaction_isolation=serializable")
    one, two = (PostgresStore(strict, schema=schema, timeout=PATIENT) for _ in range(2))
    for number in range(20):
        rivals = [each.append(record("r", number, body=n)) for n, each in enumerate((one, two))]
        others = [each.append(record(f"{n}-{number}", 0)) for n, each in enumerate((one, two))]
        outcomes = await asyncio.gather(*rivals, *others, return_exceptions=True)
        assert sorted(str(type(outcome).__name__) for outcome in outcomes) == ["CommitConflict", *["NoneType"] * 3]
    assert numbers(await one.history("r")) == list(range(20))
    await one.close()
    await two.close()


async def test_a_commit_waits_for_the_disk_whatever_the_server_is_set_to(store: PostgresStore, schema: str) -> None:
    await fill(store, "r", 1)
    hasty = make_conninfo(dsn(), options="-c synchronous_commit=off")
    with psycopg.connect(hasty) as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == ("off",)
        db.execute(f"SELECT {schema}.renew({FORMAT}, false, '{{}}', NULL, 0)".encode())
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
        db.commit()
        assert db.execute("SHOW synchronous_commit").fetchone() == ("off",)


# -------------------------------------------------------------------- lost answers


@contextlib.asynccontextmanager
async def on_a_breaking_line(schema: str) -> AsyncIterator[tuple[PostgresStore, BreakingLine]]:
    with BreakingLine(dsn()) as line:
        store = PostgresStore(line.dsn, schema=schema, timeout=PATIENT)
        await fill(store, "r", 1)
        yield store, line
        await store.close()


@pytest.mark.parametrize("plans", [["after"], ["before"], ["after", "after", "before"], ["before", "after"]])
async def test_what_was_done_and_not_answered_is_not_done_twice(schema: str, plans: list[str]) -> None:
    async with on_a_breaking_line(schema) as (store, line):
        mine = this_process("mine")
        everything = CommitEffects(drop_log_through=1, consumed=("m",), asked=(question("r", "q"),), wake="2026")
        for job, answer in [
            (store.write_log("r", 1, "k", b"1"), True),
            (store.send("r", "m", b"1"), True),
            (store.send("r", "n", b"1"), True),
            (store.append(record("r", 1), everything), None),
            (store.append(record("r", 2), CommitEffects(closed=("q",))), None),
            (store.rewrite("r", insert=record("r", 5), effects=CommitEffects(asked=(question("r", "q"),))), 0),
            (store.rewrite("r", remove=[5], effects=NO_EFFECTS), 1),
            (store.release("r", mine), None),
            (store.append(record("s", 0)), None),
            (store.drop("s"), True),
        ]:
            line.break_next(*plans)
            assert await job == answer
        line.break_next(*plans)
        first = await store.acquire("r", mine, seconds=60)
        line.break_next(*plans)
        second = await store.acquire("r", mine, seconds=60)
        assert second > first
        line.break_next(*plans)
        assert list(store.renew({"r": first}, seconds=60).lost) == ["r"]
        assert [line.broke.acquire(blocking=False) for _ in range(13 * len(plans) + 1)][-2:] == [True, False]
        assert meaning(await head(store, "r")) == meaning(record("r", 2))
        assert numbers(await store.history("r")) == [0, 1, 2]
        assert await signals_of(store, "r") == [("n", b"1")]
        assert await logged(store, "r", 1) == {}
        assert await store.requests() == []


@pytest.mark.parametrize("what", ["append", "remember"])
async def test_what_was_done_before_somebody_else_claimed_the_run_was_done(schema: str, what: str) -> None:
    async with on_a_breaking_line(schema) as (store, line):
        fence = await store.acquire("r", this_process("mine"), seconds=0)
        writes: dict[str, Callable[[int], Coroutine[Any, Any, Any]]] = {
            "append": lambda number: store.append(record("r", number), CommitEffects(fence=fence)),
            "remember": lambda number: store.write_log("r", number, "k", b"1", fence=fence),
        }
        write = writes[what]
        line.break_next("after", "hold")
        writing = asyncio.ensure_future(write(1))
        await asyncio.to_thread(line.held.acquire)  # it was done, the answer was lost, and it is being sent again
        other = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
        await other.acquire("r", this_process("other"), seconds=0)
        line.go_on.release()
        assert await writing in (None, True)
        with pytest.raises(CommitConflict, match="acquired by another process"):
            await write(2)
        await other.close()


async def test_a_lost_answer_is_not_taken_for_that_of_somebody_else(schema: str) -> None:
    async with on_a_breaking_line(schema) as (store, line):
        other = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
        await other.append(record("r", 1, body="theirs"))
        await other.write_log("r", 2, "k", b"2")
        await other.send("r", "k", b"1")
        line.break_next("after")
        with pytest.raises(CommitConflict, match="is at commit 1"):
            await store.append(record("r", 1))
        line.break_next("after")
        assert not await store.write_log("r", 2, "k", b"1")
        line.break_next("after")
        assert not await store.send("r", "k", b"1")  # the same words, from somebody else
        await other.close()


async def test_a_statement_that_outlives_its_line_counts(schema: str) -> None:
    async with on_a_breaking_line(schema) as (store, line):
        with nobody_moves("r", schema):
            line.break_next("meanwhile")
            appending = asyncio.ensure_future(store.append(record("r", 1), CommitEffects(asked=(question("r", "q"),))))
            await asyncio.to_thread(line.broke.acquire)  # the first statement waits for the lock, alone
            await come_to_wait(schema, 2)  # and now the second one does
        await appending
        assert numbers(await store.history("r")) == [0, 1]
        assert len(await store.requests()) == 1


async def test_a_group_whose_answer_is_lost_is_done_once(schema: str) -> None:
    async with on_a_breaking_line(schema) as (store, line):
        with nobody_moves("r", schema):
            held = asyncio.ensure_future(store.append(record("r", 1)))
            await come_to_wait(schema)
            line.break_next("after", "after")
            jobs = [asyncio.ensure_future(store.append(record(f"r{n}", n % 2))) for n in range(40)]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        await held
        assert [type(outcome) for outcome in outcomes] == [type(None), CommitConflict] * 20
        assert len(await store.checkpoints()) == 22


async def until_moved(done: asyncio.Future[Any], where: str, schema: str) -> None:
    """Until something more is stored, or all is done."""
    query = f"SELECT count(*) FROM {schema}.commits"
    before = ask(query, where=where)
    while not done.done() and ask(query, where=where) == before:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_a_server_that_is_restarted_in_the_midst_of_commits_loses_nothing(server: Server, schema: str) -> None:
    store = PostgresStore(server.dsn, schema=schema, timeout=PATIENT)
    await fill(store, "warm", 1)
    await store.drop("warm")
    driving = asyncio.gather(*(drive(store, f"r{n}", 15) for n in range(8)))
    for how in ("fast", "immediate", "fast", "immediate"):
        await until_moved(driving, server.dsn, schema)
        await asyncio.to_thread(server.stop, how)
        server.start()
    await driving
    await nothing_is_lost(store, 15, 8)
    await store.close()


async def test_connections_that_are_ended_at_any_moment_lose_nothing(schema: str) -> None:
    named = make_conninfo(dsn(), application_name=schema)
    store = PostgresStore(named, schema=schema, timeout=PATIENT)
    await fill(store, "warm", 1)
    await store.drop("warm")
    driving = asyncio.gather(*(drive(store, f"r{n}", 15) for n in range(8)))
    chance = random.Random()
    while not driving.done():
        await until_moved(driving, dsn(), schema)
        alive = [row[0] for row in ask("SELECT pid FROM pg_stat_activity WHERE application_name = %s", schema)]
        for pid in chance.sample(alive, chance.randint(0, len(alive))):
            ask("SELECT pg_terminate_backend(%s)", pid)
    await driving
    await nothing_is_lost(store, 15, 8)
    await store.close()


async def test_a_server_that_stays_away_is_reported_and_found_again(server: Server, schema: str) -> None:
    store = PostgresStore(server.dsn, schema=schema, timeout=0)
    await fill(store, "r", 1)
    server.stop()
    outcomes = await asyncio.gather(
        *(store.append(record(f"r{n}", 0)) for n in range(5)), head(store, "r"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 6
    assert len({id(outcome) for outcome in outcomes}) == 6
    for outcome in outcomes:
        assert f"schema '{schema}'" in str(outcome)
        assert "start the server again" in str(outcome)
    server.start()
    await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0, 1]
    await store.close()


async def test_a_pooler_may_give_each_statement_another_connection(schema: str) -> None:
    with Pooler(dsn()) as pooler:
        store = PostgresStore(pooler.dsn, schema=schema, timeout=PATIENT)
        await asyncio.gather(*(drive(store, f"r{n}", 10) for n in range(5)))
        await nothing_is_lost(store, 10, 5)
        await store.close()
        with psycopg.connect(pooler.dsn, autocommit=True) as db:
            assert len({db.execute("SELECT pg_backend_pid()").fetchone() for _ in range(4)}) == 3


@pytest.mark.parametrize("rule", [rule for rule in STORE_RULES if rule.manner == "plain"][::3], ids=str)
async def test_rules_are_true_behind_a_pooler(rule: StoreRule, schema: str) -> None:
    with Pooler(dsn()) as pooler:
        await rule.check(lambda: PostgresStore(pooler.dsn, schema=schema, timeout=PATIENT))
