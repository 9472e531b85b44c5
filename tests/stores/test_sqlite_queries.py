"""What the statements of the SQLite store cost: which index they read, what they look at and what they write."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.storage.filters import CheckpointFilter, ReadyFilter, RequestFilter, RunFilter
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import CommitEffects, Entry
from stepwell.stores.sqlite import lists
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import fill, id_of, numbers, on, places, question, record, run_metadata


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(path)
    yield made
    await made.close()


async def plans_of(store: SQLiteStore, work: Any, *, sorts: bool = False, scans: bool = False) -> str:
    """How SQLite finds the rows for the statements of a call."""
    statements: list[str] = []
    for run in (store._db.read, store._db.write):
        await run(lambda db: db.set_trace_callback(statements.append))
    await work
    for run in (store._db.read, store._db.write):
        await run(lambda db: db.set_trace_callback(None))
    asked = [one for one in statements if one.lstrip().startswith(("SELECT", "WITH", "DELETE"))]
    assert asked

    def explain(db: sqlite3.Connection) -> str:
        return str([db.execute(f"EXPLAIN QUERY PLAN {one}").fetchall() for one in asked])

    plan = await store._db.read(explain)
    assert sorts or "TEMP B-TREE" not in plan
    assert scans or "SCAN" not in plan
    return plan


async def steps_of(store: SQLiteStore, work: Any) -> int:
    """How many instructions SQLite's machine executes for a write."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await store._db.write(lambda db: db.set_progress_handler(count, 1))
    await work
    await store._db.write(lambda db: db.set_progress_handler(None, 1))
    return steps


# -------------------------------------------------------------------- plans


async def test_what_concerns_one_run_is_found_by_an_index(store: SQLiteStore) -> None:
    await fill(store, "r", 3)
    by_number = "sqlite_autoindex_commits_1 (run=? AND number"
    mine = this_process("mine")
    for work, indexes in [
        (
            store.append(record("r", 3), CommitEffects(drop_below=2)),
            [f"{by_number}=?)", f"{by_number}>? AND number<?)"],
        ),
        (store.open("r", owner=mine, seconds=60), [f"{by_number}<?)", "pending_signals (run=? AND position>?)"]),
        (store.open("r"), [f"{by_number}<?)", "sqlite_autoindex_superstep_log_1 (run=?)"]),
        (store.read("r", 2), [f"{by_number}<?)"]),
        (store.history("r", after=0, upto=9), [f"{by_number}>? AND number<?)"]),
        (store.history("r", outputs_only=True), ["commits_with_outputs (run=? AND number>? AND number<?)"]),
        (store.run("r"), [f"{by_number}=?)"]),
        (store.numbers("r"), ["COVERING INDEX sqlite_autoindex_commits_1 (run=?)"]),
        (store.checkpoints(CheckpointFilter(run_id="r", workflow="w"), limit=5), [f"{by_number}<?)"]),
        (asyncio.to_thread(store.renew, {"r": 1}, seconds=None), ["pending_signals (run=? AND position>?)"]),
    ]:
        plan = await plans_of(store, work)
        assert "runs_by_id (run_id=?)" in plan
        assert [index for index in indexes if index not in plan] == []


async def test_a_list_of_runs_is_read_in_order_from_an_index(store: SQLiteStore) -> None:
    await fill(store, "r", 1)
    past = (await store.runs())[0]
    for run_filter, index in [
        (RunFilter(), "runs_by_age (called=?"),
        (RunFilter(children=True), "runs_by_age (called=?"),
        (RunFilter(workflow="w"), "runs_by_workflow (workflow=? AND called=?"),
        (RunFilter(status="done"), "runs_by_status (status=? AND called=?"),
        (RunFilter(parent="r"), "runs_by_parent (parent_run=? AND called=?"),
        (RunFilter(parent="r", children=True), "runs_by_parent (parent_run=? AND called=?"),
        (RunFilter(workflow="w", status="done"), "runs_by_workflow_and_status (workflow=? AND status=? AND called=?"),
        (
            RunFilter(tags={"a": "1", "b": "2"}, since=on(1)),
            "COVERING INDEX runs_by_tag (name=? AND value=? AND called=?",
        ),
        (RunFilter(tags={"a": "1"}, workflow="w", until=on(2)), "runs_by_tag (name=? AND value=? AND called=?"),
    ]:
        for after in (None, past):
            plan = await plans_of(store, store.runs(run_filter, past=after, limit=10))
            assert f"{index} AND began>? AND (began,run_id)<(?,?))" in plan


async def test_of_several_criteria_that_which_fewest_runs_meet_leads(store: SQLiteStore) -> None:
    for n in range(60):
        metadata = run_metadata(team="red", rare="1") if n == 7 else run_metadata(team="red")
        await store.append(record(f"r{n}", 0, status="failed" if n < 3 else "done"), CommitEffects(metadata=metadata))
    failed = await plans_of(store, store.runs(RunFilter(tags={"team": "red"}, status="failed"), limit=5))
    assert "SEARCH runs USING INDEX runs_by_status" in failed.rpartition("], [")[2]  # the last that is not a count

    def look(**tags: str) -> Any:
        return store._db.write(lambda db: lists.list_runs(db, RunFilter(tags=tags), None, 5))

    for tags in ({"team": "red", "rare": "1"}, {"rare": "1", "team": "red"}):
        assert [run.run_id for run in await store.runs(RunFilter(tags=tags))] == ["r7"]
    both = await steps_of(store, look(team="red", rare="1"))
    assert abs(both - await steps_of(store, look(rare="1", team="red"))) < both / 10


async def test_runs_that_can_be_driven_are_found_first_and_sorted(store: SQLiteStore) -> None:
    await store.append(record("r", 0), CommitEffects(wake=on(1)))
    plan = await plans_of(store, store.runs(RunFilter(due_by=on(1)), limit=5), sorts=True, scans=True)
    assert "SCAN runs USING COVERING INDEX runs_by_priority" in plan
    assert "COVERING INDEX pending_signals" in plan
    assert "SEARCH runs USING INTEGER PRIMARY KEY" in plan
    assert "SCAN runs USING INDEX" not in plan


async def test_runs_are_found_by_the_start_of_their_id(store: SQLiteStore) -> None:
    await fill(store, "r", 1)
    run_filter = RunFilter(prefix="abcd", workflow="w", status="done", since=on(1))
    assert "runs_by_id (run_id>? AND run_id<?)" in await plans_of(store, store.runs(run_filter), sorts=True)


async def test_requests_are_read_in_order_from_an_index(store: SQLiteStore) -> None:
    asked = question("r", "q")
    await store.append(record("r", 0), CommitEffects(asked=(asked,)))
    for request_filter, index in [
        (RequestFilter(), "requests_by_age ("),
        (RequestFilter(workflow="w", asked_until=on(1)), "requests_by_workflow (workflow=? AND "),
        (RequestFilter(due_until=on(1)), "requests_by_deadline ("),
        (RequestFilter(workflow="w", due_until=on(1)), "requests_by_workflow_and_deadline (workflow=? AND "),
    ]:
        order = "at" if request_filter.due_until is None else "deadline"
        for past in (None, asked):
            plan = await plans_of(store, store.requests(request_filter, past=past, limit=10))
            assert f"{index}({order},run_id)>(?,?) AND {order}<?)" in plan


async def test_ready_runs_are_read_in_order_from_an_index_and_signals_by_another(store: SQLiteStore) -> None:
    await store.append(record("r", 0), CommitEffects(wake=on(1)))
    plan = await plans_of(store, store.ready(ReadyFilter("2026", "w", resting=("IDLE",)), limit=5), scans=True)
    assert "runs_by_priority (priority=? AND wake<?)" in plan
    assert "SEARCH runs USING COVERING INDEX runs_by_priority (priority<?)" in plan
    assert plan.count("SCAN") == plan.count("SCAN signals USING COVERING INDEX pending_signals") == 1
    assert "runs USING INTEGER PRIMARY KEY (rowid=?)" in plan


async def test_checkpoints_are_found_by_an_index(store: SQLiteStore) -> None:
    await fill(store, "r", 1)
    place = await plans_of(store, store.locate(id_of("r", 7)), sorts=True)
    assert "runs_by_hash (hash=?)" in place
    assert "(run=? AND number=?)" in place
    assert "commits_with_foreign_id (checkpoint_id=?)" in place
    of_workflow = await plans_of(store, store.checkpoints(CheckpointFilter(workflow="w"), limit=5), sorts=True)
    assert "(workflow=?)" in of_workflow
    decided = await plans_of(store, store.checkpoints(CheckpointFilter(decisions=True), limit=5), sorts=True)
    assert "commits_with_decisions (at<?)" in decided
    by_prefix = await plans_of(store, store.checkpoints(CheckpointFilter(prefix="0a1b"), limit=5), sorts=True)
    assert "runs_by_hash (hash>? AND hash<?)" in by_prefix
    assert "commits_with_foreign_id (checkpoint_id>? AND checkpoint_id<?)" in by_prefix


# -------------------------------------------------------------------- what is looked at


async def test_what_was_dropped_is_not_looked_for_again(store: SQLiteStore) -> None:
    for number in range(200):
        await store.append(record("r", number, outputs=True), CommitEffects(drop_below=number))
    steps = await steps_of(store, store.append(record("r", 200), CommitEffects(drop_below=200)))
    assert 0 < steps < 1000
    assert len(await store.history("r")) == 201


async def test_a_record_that_was_stored_below_what_was_dropped_is_dropped_next_time(store: SQLiteStore) -> None:
    await fill(store, "r", 9)
    await store.append(record("r", 9), CommitEffects(drop_below=8))
    await store.rewrite("r", insert=record("r", 3))
    await store.append(record("r", 10), CommitEffects(drop_below=9))
    assert numbers(await store.history("r")) == [9, 10]


async def test_opening_a_run_looks_at_no_record_before_its_snapshot(store: SQLiteStore) -> None:
    for number in range(500):
        await store.append(record("r", number, is_snapshot=number % 100 == 0))
    steps = await steps_of(store, store.open("r", owner=this_process("mine"), seconds=60))
    await store.append(record("r", 500))
    fewer = await steps_of(store, store.open("r", owner=this_process("mine"), seconds=60))
    assert 0 < fewer < steps / 5


async def test_the_latest_checkpoint_of_a_workflow_takes_one_look_at_each_run(store: SQLiteStore) -> None:
    for n in range(10):
        for number in range(50):
            await store.append(record(f"r{n}", number, at=on(1 + number % 28) if n == 0 else on(28)))

    def read(db: sqlite3.Connection) -> list[Entry]:
        return lists.list_checkpoints(db, CheckpointFilter(workflow="w"), None, 1)

    steps = await steps_of(store, store._db.write(read))
    for n in range(1, 10):
        for number in range(50, 100):
            await store.append(record(f"r{n}", number, at=on(28)))
    assert await steps_of(store, store._db.write(read)) < steps * 1.1
    assert places(await store.checkpoints(CheckpointFilter(workflow="w"), limit=1)) == [("r9", 99)]
    assert places(await store.checkpoints(limit=2, before=record("r1", 1, at=on(28)).entry)) == [("r0", 27), ("r1", 0)]


async def test_a_run_whose_times_do_not_rise_is_marked(store: SQLiteStore, path: Path) -> None:
    async def marks() -> list[str]:
        query = "SELECT run_id FROM runs WHERE unordered ORDER BY run_id"
        return await store._db.read(lambda db: [row[0] for row in db.execute(query)])

    for run_id in ("appended", "inserted", "replaced", "reduced", "rising"):
        for number in range(3):
            await store.append(record(run_id, number, at=on(5 + number)))
    await store.rewrite("rising", insert=record("rising", 1, at=on(6)), replace=[record("rising", 0, at=on(1))])
    await store.append(record("rising", 3, at=on(7)))
    assert await marks() == []
    await store.append(record("appended", 3, at=on(6)))
    await store.rewrite("inserted", insert=record("inserted", 9, at=on(6)))
    await store.rewrite("replaced", replace=[record("replaced", 1, at=on(8))])
    await store.append(record("reduced", 3, at=on(9)), CommitEffects(reduced=(record("reduced", 2, at=on(4)),)))
    assert await marks() == ["appended", "inserted", "reduced", "replaced"]


# -------------------------------------------------------------------- what is written


async def written(store: SQLiteStore, path: Path, work: Any) -> int:
    """How many bytes a write adds to the log of the database."""
    log = path.with_name(f"{path.name}-wal")
    await store._db.write(lambda db: None)
    before = log.stat().st_size
    await work
    return log.stat().st_size - before


async def without_checkpoints(store: SQLiteStore) -> None:
    """Let the log grow, so that its size shows what is written."""
    await store._db.write(lambda db: db.execute("PRAGMA wal_autocheckpoint = 0"))


async def test_a_commit_writes_two_pages_and_now_and_then_a_few_more(store: SQLiteStore, path: Path) -> None:
    await without_checkpoints(store)
    for n in range(20):
        await fill(store, f"r{n}", 10)
    fence = await store.acquire("r3", this_process("mine"), seconds=60)
    sizes = [
        await written(
            store,
            path,
            store.append(record("r3", number, body="x" * 400), CommitEffects(drop_log_through=number, fence=fence)),
        )
        for number in range(10, 60)
    ]
    assert sorted(sizes)[25] == 2 * (2048 + 24)
    assert max(sizes) < 14 * 1024


async def test_many_runs_share_the_pages_of_a_commit(store: SQLiteStore, path: Path) -> None:
    await without_checkpoints(store)
    for number in range(3):
        await asyncio.gather(*(store.append(record(f"r{n}", number)) for n in range(200)))
    go_on = threading.Event()
    blocked = asyncio.ensure_future(store._db.write(lambda db: go_on.wait(60)))
    together = asyncio.gather(*(store.append(record(f"r{n}", 3, body="x" * 400)) for n in range(200)))
    await asyncio.sleep(0.05)  # each has had its turn, and waits
    before = path.with_name("runs.db-wal").stat().st_size
    go_on.set()
    await asyncio.gather(blocked, together)
    assert path.with_name("runs.db-wal").stat().st_size - before < 200 * 1024


async def test_the_tags_of_a_run_are_stored_once(store: SQLiteStore, path: Path) -> None:
    for run_id in ("r", "s"):
        await store.append(record(run_id, 0), CommitEffects(metadata=run_metadata("caller", a="1", b="2")))
    await store.append(record("r", 1), CommitEffects(metadata=run_metadata(a="3")))
    await store.drop("s")
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name, value, called, run_id FROM tags").fetchall() == [("a", "3", 0, "r")]
    db.close()


async def test_nothing_is_left_of_a_run_without_records(store: SQLiteStore, path: Path) -> None:
    mine = this_process("mine")
    for run_id in ("released", "removed", "dropped", "held"):
        await store.acquire(run_id, mine, seconds=60)
    for run_id in ("removed", "dropped", "held"):
        await store.append(record(run_id, 0), CommitEffects(asked=(question(run_id, "q"),), consumed=("k",)))
        await store.write_log(run_id, 0, "k", b"{}")
    await store.release("released", mine)
    await store.release("removed", mine)
    await store.rewrite("removed", remove=[0], effects=CommitEffects())
    await store.drop("dropped")
    await store.rewrite("held", remove=[0], effects=CommitEffects())
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT run_id, workflow, began, fence FROM runs").fetchall() == [("held", None, None, 1)]
        for table in ("commits", "superstep_log", "signals", "requests", "tags"):
            assert db.execute(f"SELECT * FROM {table}").fetchall() == []
    db.close()
