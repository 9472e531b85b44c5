"""What is special about the list of runs in a SQLite file."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.storage.port import CommitEffects, RunFilter
from stepwell.stores.sqlite.run_list import inbox, search
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import fill, on, question, record, run_entry, run_metadata

COLUMNS = "run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting, body"
WRITTEN = f"INTO commits ({COLUMNS}) VALUES (?, ?, ?, 'w', ?, 0, ?, 1, 0, 0, '{{}}')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(path)
    yield made
    await made.close()


async def plan_of(store: SQLiteStore, query: str, values: tuple[object, ...]) -> str:
    return str(await store._db.read(lambda db: db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()))


async def test_a_list_of_runs_is_read_in_order_from_an_index(store: SQLiteStore) -> None:
    await fill(store, "r", 1)
    past = (await store.runs())[0]
    for workflow, status, tags, index in [
        (None, None, {}, "runs_by_age (called=?"),
        ("w", None, {}, "runs_by_workflow (workflow=? AND called=?"),
        (None, "done", {}, "runs_by_status (status=? AND called=?"),
        ("w", "done", {}, "runs_by_workflow_and_status (workflow=? AND status=? AND called=?"),
        ("w", "done", {"a": "1", "b": "2"}, "SEARCH tags USING PRIMARY KEY (name=? AND value=? AND called=?"),
    ]:
        for after in (None, past):
            query, values = search({"workflow": workflow, "status": status}, tags, after)
            plan = await plan_of(store, query, (*values, 0, 10))
            assert index + (")" if after is None else " AND (began,run_id)<(?,?))") in plan
            assert "TEMP B-TREE" not in plan
            assert "SCAN" not in plan


async def test_runs_are_looked_for_by_an_index(store: SQLiteStore) -> None:
    await fill(store, "r", 1)
    past = (await store.runs())[0]
    for run_filter, tags, index in [
        (RunFilter(prefix="abcd"), {}, "SEARCH runs USING PRIMARY KEY (run_id>? AND run_id<?)"),
        (RunFilter(since=on(1), until=on(2)), {}, "runs_by_age (called=? AND began>? AND began<?"),
        (
            RunFilter(since=on(1)),
            {"a": "1"},
            "SEARCH tags USING PRIMARY KEY (name=? AND value=? AND called=? AND began>?",
        ),
    ]:
        for after in (None, past):
            query, values = search({"workflow": None, "status": None}, tags, after, run_filter)
            plan = await plan_of(store, query, (*values, 0, 10))
            assert index in plan or (after is not None and "(began,run_id)<(?,?)" in plan)
            assert "SCAN" not in plan
    query, values = search({"workflow": "w", "status": "done"}, {}, None, RunFilter(prefix="abcd"))
    assert "USING PRIMARY KEY (run_id>? AND run_id<?)" in await plan_of(store, query, (*values, 0, 10))


async def test_questions_are_looked_for_by_an_index(store: SQLiteStore) -> None:
    asked = question("r", "q")
    await store.append(record("r", 0), CommitEffects(asked=(asked,)))
    for workflow, due_by, index in [
        (None, None, "requests_by_age"),
        ("w", None, "requests_by_workflow ("),
        (None, on(1), "requests_by_deadline"),
        ("w", on(1), "requests_by_workflow_and_deadline"),
    ]:
        for past in (None, asked):
            query, values = inbox({"workflow": workflow, "run_id": None}, None, due_by, past)
            plan = await plan_of(store, query, (*values, 10))
            assert index in plan
            assert "TEMP B-TREE" not in plan


async def test_the_list_of_runs_is_true_whatever_writes_to_the_commits(store: SQLiteStore, path: Path) -> None:
    def write(statement: str, *values: object) -> None:
        with sqlite3.connect(path) as db:
            db.execute(statement, values)
        db.close()

    await store.append(record("r", 0, at=on(1)), CommitEffects(metadata=run_metadata(team="red")))
    write(f"INSERT {WRITTEN}", "r", 1, "r-1", "waiting", on(2))
    write(f"INSERT {WRITTEN}", "s", 0, "s-0", "done", on(3))
    second = record("r", 1, iteration=0, status="waiting", at=on(2))
    assert await store.runs() == [
        run_entry(record("s", 0, status="done", at=on(3))),
        run_entry(second, began=on(1), metadata=run_metadata(team="red")),
    ]
    write(f"INSERT OR REPLACE {WRITTEN}", "r", 1, "again", "failed", on(4))
    write(f"INSERT OR REPLACE {WRITTEN}", "r", 0, "again", "done", on(4))
    again = record("r", 1, iteration=0, status="failed", at=on(4), checkpoint_id="again")
    assert await store.runs(tags={"team": "red"}) == [run_entry(again, began=on(1), metadata=run_metadata(team="red"))]
    write("DELETE FROM commits WHERE run_id = 'r' AND number = 1")
    assert [run.number for run in await store.runs(tags={"team": "red"}, status="done")] == [0]
    write("DELETE FROM commits WHERE run_id = 'r'")
    assert [run.run_id for run in await store.runs()] == ["s"]
    assert await store.runs(tags={"team": "red"}) == []


async def test_what_was_swept_is_not_looked_at_again(store: SQLiteStore) -> None:
    for number in range(200):
        await store.append(record("r", number, outputs=True), CommitEffects(drop_below=number))
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def watch(db: sqlite3.Connection) -> None:
        db.set_progress_handler(count, 1)

    await store._db.write(watch)
    await store.append(record("r", 200), CommitEffects(drop_below=200))
    await store._db.write(lambda db: db.set_progress_handler(None, 1))
    assert 0 < steps < 1000
    assert len(await store.history("r")) == 201


async def test_the_runs_of_a_store_are_tagged_once(store: SQLiteStore, path: Path) -> None:
    for run_id in ("r", "s"):
        await store.append(record(run_id, 0), CommitEffects(metadata=run_metadata("caller", a="1", b="2")))
    await store.append(record("r", 1), CommitEffects(metadata=run_metadata(a="3")))
    await store.drop("s")
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name, value, called, run_id FROM tags").fetchall() == [("a", "3", 0, "r")]
    db.close()
