"""What is special about the store in one SQLite file."""

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CheckpointCorrupt, CommitConflict, RunBusy, StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import LeaseReport, SignalRow
from stepwell.stores.sqlite import access as sqlite_access
from stepwell.stores.sqlite import connections as sqlite_connections
from stepwell.stores.sqlite.schema import FORMAT
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import after, fill, head, logged, meaning, numbers, record, text
from tests.support.spies import spy

RACE = """
import asyncio, sys, time
from stepwell.errors import CommitConflict
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import record

async def main():
    store, won = SQLiteStore({path!r}), []
    while time.time() < {start}: pass
    for number in range({count}):
        try:
            await store.append(record("r", number, body={name!r}))
            won.append(number)
        except CommitConflict:
            head = (await store.read("r"))[-1]
            assert head.entry.number >= number, (head, number)
    await store.close()
    print(*won)

asyncio.run(main())
"""

ENDLESS = """
import asyncio, sys
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import record

async def main():
    store = SQLiteStore({path!r})
    number = 0
    while True:
        await store.write_log("r", number, "k", b"1")
        await store.append(record("r", number, body="x" * 5000), CommitEffects(drop_log_through=number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(path)
    yield made
    await made.close()


def ask(path: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        rows = db.execute(query).fetchall()
    db.close()
    return rows


@pytest.mark.process
def test_processes_that_create_the_file_and_append_at_once_share_the_numbers(path: Path) -> None:
    for attempt in range(3):
        file = str(path.with_name(f"{attempt}.db"))
        start = time.time() + 0.6
        racers = [python(RACE.format(path=file, start=start, count=40, name=name)) for name in "abcd"]
        won = [racer.communicate()[0].split() for racer in racers]
        assert [racer.returncode for racer in racers] == [0, 0, 0, 0]
        assert sorted(int(number) for numbers in won for number in numbers) == list(range(40))
        for name, numbers_won in zip("abcd", won, strict=True):
            rows = ask(Path(file), f"SELECT number FROM commits WHERE body = '{text(name).decode()}' ORDER BY number")
            assert [row[0] for row in rows] == [int(number) for number in numbers_won]


@pytest.mark.process
async def test_a_killed_writer_loses_nothing_it_was_told_is_stored(path: Path) -> None:
    for _ in range(3):
        writer = python(ENDLESS.format(path=str(path)))
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().splitlines()
        writer.wait()
        writer.stdout.close()
        store = SQLiteStore(path)
        kept = numbers(await store.history("r"))
        assert kept == list(range(len(kept)))
        assert len(kept) >= len([line for line in told if line])
        assert await logged(store, "r", len(kept) - 1) == {}
        await store.append(record("r", len(kept)))
        await store.close()
        assert ask(path, "PRAGMA integrity_check") == [("ok",)]
        path.unlink()


async def test_concurrent_appends_of_many_runs_share_a_commit(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    counted = spy(sqlite_access._do_all, sizes, lambda batch, *rest: len(batch))
    monkeypatch.setattr(sqlite_access, "_do_all", counted)
    held, go_on = threading.Event(), threading.Event()

    def hold(db: sqlite3.Connection) -> None:
        held.set()
        go_on.wait(60)

    blocked = asyncio.ensure_future(store._db.write(hold))
    await asyncio.to_thread(held.wait, 60)
    waiting = asyncio.gather(*(store.append(record(f"r{n}", 0)) for n in range(200)))
    await asyncio.sleep(0.05)  # each has had its turn, and waits
    go_on.set()
    await asyncio.gather(blocked, waiting)
    assert sizes == [1, 200]
    assert len(await store.checkpoints()) == 200


async def test_a_conflict_in_a_group_spoils_only_itself(store: SQLiteStore) -> None:
    appends = [store.append(record(f"r{n}", n % 2)) for n in range(20)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), CommitConflict] * 10


async def test_a_failed_commit_fails_everyone_and_applies_nothing(path: Path) -> None:
    store = SQLiteStore(path)
    await fill(store, "r", 1)

    held, all_wait = threading.Event(), threading.Event()

    def fill_the_disk(db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0] + 1}")
        held.set()
        all_wait.wait(60)

    filling = asyncio.ensure_future(store._db.write(fill_the_disk))
    await asyncio.to_thread(held.wait, 60)
    appends = [store.append(record(f"r{n}", 0, body="x" * 100_000)) for n in range(3)]
    together = asyncio.gather(*appends, return_exceptions=True)
    await asyncio.sleep(0.05)
    all_wait.set()  # now they are one group
    await filling
    outcomes = await together
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert "full" in str(outcomes[0])
    assert str(path) in str(outcomes[0])
    assert len(await store.checkpoints()) == 1
    await store.append(record("r", 1))  # with a new connection, which knows of no such limit
    await store.close()


async def test_a_lock_that_is_never_given_back_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connections, "PATIENCE", 0.2)
    store = SQLiteStore(path)
    await fill(store, "r", 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0]  # readers do not mind
    other.execute("ROLLBACK")
    other.close()
    await store.append(record("r", 1))
    await store.close()


async def test_a_reader_does_not_wait_for_the_writer(store: SQLiteStore) -> None:
    await fill(store, "r", 1)
    go_on = threading.Event()
    writing = asyncio.ensure_future(store._db.write(lambda db: go_on.wait(60)))
    await asyncio.sleep(0.02)
    assert numbers(await asyncio.wait_for(store.history("r"), 30)) == [0]
    assert not writing.done()
    go_on.set()
    await writing


@pytest.mark.long
def test_a_loop_that_was_closed_while_it_waited_harms_nobody(path: Path) -> None:
    store, go_on = SQLiteStore(path), threading.Event()

    async def leave_early() -> None:
        blocked = asyncio.ensure_future(store._db.write(lambda db: go_on.wait(5)))
        task = asyncio.ensure_future(store.append(record("r", 0)))
        await asyncio.sleep(0.02)
        assert not blocked.done()
        assert not task.done()

    asyncio.run(leave_early())
    go_on.set()

    async def come_back() -> None:
        await fill(store, "s", 2)
        assert numbers(await store.history("s")) == [0, 1]
        await store.close()

    asyncio.run(come_back())


def test_a_store_that_nobody_closed_leaves_no_thread_behind(path: Path) -> None:
    others = set(threading.enumerate())
    store = SQLiteStore(path)
    asyncio.run(fill(store, "r", 1))
    del store
    until = time.monotonic() + 60
    while any(thread.name.startswith("stepwell-sqlite") for thread in set(threading.enumerate()) - others):
        assert time.monotonic() < until
        time.sleep(0.01)


def fill_in_child(store: SQLiteStore, parent_is_done: str) -> None:
    asyncio.run(fill(store, "child", 5))
    while not os.path.exists(parent_is_done):
        time.sleep(0.01)
    asyncio.run(store.append(record("child", 5)))  # after the parent has closed its connections
    asyncio.run(store.close())


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_uses_the_store_beside_its_parent(store: SQLiteStore, path: Path) -> None:
    await fill(store, "parent", 3)
    done = path.with_name("done")
    child = multiprocessing.get_context("fork").Process(target=fill_in_child, args=(store, str(done)))
    child.start()
    for number in range(3, 10):
        await store.append(record("parent", number))
    await store.close()
    done.touch()
    await asyncio.to_thread(child.join, 60)
    assert child.exitcode == 0
    assert numbers(await store.history("parent")) == list(range(10))
    assert numbers(await store.history("child")) == list(range(6))


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_fork_in_the_midst_of_writing_waits_for_the_writer(store: SQLiteStore) -> None:
    writing = asyncio.gather(*(fill(store, f"r{n}", 20) for n in range(5)))
    for _ in range(10):
        await asyncio.sleep(0.005)
        child = os.fork()
        if child == 0:
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
    await writing
    assert len(await store.checkpoints()) == 100


@pytest.mark.parametrize("content", [b"hello", b"x" * 10_000, b"SQLite format 3\0" + b"x" * 4080])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    store = SQLiteStore(path)
    with pytest.raises((StoreUnavailable, CheckpointCorrupt), match=str(path)):
        await store.append(record("r", 0))
    with pytest.raises((StoreUnavailable, CheckpointCorrupt), match=str(path)):
        await store.read("r")
    await store.close()
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == [path.name]


async def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    ask(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="another program"):
        await store.append(record("r", 0))
    await store.close()
    assert path.read_bytes() == before


async def test_a_newer_format_is_refused_and_left_alone(store: SQLiteStore, path: Path) -> None:
    await fill(store, "r", 1)
    await store.close()
    ask(path, f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="newer"):
        await store.append(record("r", 1))
    with pytest.raises(StoreUnavailable, match="newer"):
        await store.history("r")
    await store.close()
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    store = SQLiteStore(path)
    await fill(store, "r", 1)
    assert len(await store.checkpoints()) == 1
    await store.close()


async def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "store.db"):
        store = SQLiteStore(path)
        with pytest.raises(StoreUnavailable, match=str(path)):
            await store.append(record("r", 0))
        await store.close()


async def test_a_damaged_database_is_reported_as_damaged(store: SQLiteStore, path: Path) -> None:
    for number in range(50):
        await store.append(record("r", number, body="x" * 3000))
    await store.close()
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(CheckpointCorrupt, match=str(path)):
        await store.history("r")
    with pytest.raises(CheckpointCorrupt, match=str(path)):
        await store.append(record("r", 50))


async def test_a_person_reads_the_file_with_sqlite(store: SQLiteStore, path: Path) -> None:
    await store.append(record("r", 0, body={"answer": 42}))
    assert ask(path, "SELECT run_id, json_extract(body, '$.answer') FROM commits JOIN runs USING (run)") == [("r", 42)]
    assert ask(path, "PRAGMA user_version") == [(FORMAT,)]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]


async def test_entries_are_read_without_bodies(store: SQLiteStore, path: Path) -> None:
    await store.append(record("r", 0, body="x" * 3_000_000, latest_only=True))
    await store.close()
    with open(path, "r+b") as file:  # the pages of the body lie at the end
        file.seek(-1_000_000, os.SEEK_END)
        file.write(b"\xa5" * 1_000_000)
    assert await store.checkpoints() == [record("r", 0, latest_only=True).entry]
    assert [run.run_id for run in await store.runs()] == ["r"]
    with pytest.raises(CheckpointCorrupt):
        await store.history("r")


async def test_a_path_is_fixed_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("here.db")
    monkeypatch.chdir("/")
    await fill(store, "r", 1)
    await store.close()
    assert (tmp_path / "here.db").exists()


async def test_two_stores_on_one_file_see_each_other(store: SQLiteStore, path: Path) -> None:
    other = SQLiteStore(path)
    for number in range(10):
        await (store, other)[number % 2].append(record("r", number))
        assert meaning(await head((other, store)[number % 2], "r")) == meaning(record("r", number))
    await other.close()


def test_renewing_and_asking_for_signals_need_no_event_loop(path: Path) -> None:
    store = SQLiteStore(path)
    fence = asyncio.run(store.acquire("r", this_process("mine"), seconds=60))
    assert store.renew({"r": fence}, seconds=600) == LeaseReport([], [])
    with after(minutes=2), pytest.raises(RunBusy):
        asyncio.run(store.acquire("r", this_process("other"), seconds=60))
    asyncio.run(store.send("r", "k", b"1"))
    assert store.renew({"r": fence, "s": 1}, seconds=None) == LeaseReport([], ["r"])
    asyncio.run(store.close())


async def test_the_database_is_never_touched_on_the_event_loop(store: SQLiteStore) -> None:
    writing = await store._db.write(lambda db: threading.get_ident())
    reading = await store._db.read(lambda db: threading.get_ident())
    assert threading.get_ident() not in (writing, reading)


async def test_a_compacted_file_is_smaller_and_others_that_have_it_open_go_on(store: SQLiteStore, path: Path) -> None:
    other = SQLiteStore(path)
    await fill(other, "s", 1)
    for number in range(50):
        await store.append(record("r", number, body="x" * 100_000))
    await store.rewrite("r", remove=range(49))
    before = path.stat().st_size
    freed, *_ = await asyncio.gather(store.compact(), *(other.append(record("s", number)) for number in (1, 2, 3)))
    assert freed is not None
    assert freed > 4_000_000
    assert path.stat().st_size < before / 10
    assert numbers(await other.history("s")) == [0, 1, 2, 3]
    assert numbers(await other.history("r")) == [49]
    await other.close()


def test_without_an_event_loop_what_is_awaited_is_there_at_once(tmp_path: Path) -> None:
    def at_once(work: Coroutine[Any, Any, Any]) -> Any:
        with pytest.raises(StopIteration) as done:
            work.send(None)
        return done.value.value

    store = SQLiteStore(tmp_path / "runs.db")
    assert at_once(store.send("r", "k", b"{}")) is True
    assert at_once(store.pending_signals("r")) == [SignalRow("k", b"{}")]
    at_once(store.close())
    assert asyncio.run(store.pending_signals("r")) == [SignalRow("k", b"{}")]
    at_once(store.close())
