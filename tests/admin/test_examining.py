"""A store is looked through: what is whole is found whole, and every kind of damage is found."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import (
    FileCheckpointStorage,
    HandlerFailed,
    InMemoryCheckpointStorage,
    LatestOnly,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)
from stepwell.admin.doctor.examination import Examined, Finding, examine
from stepwell.admin.transfer.exporter import export_run
from stepwell.admin.transfer.importer import import_run
from stepwell.admin.transfer.run_copy import PARTLY_HERE
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS, TOP_RUNS, RunFilter
from stepwell.storage.stored_values import NO_EFFECTS, Record, RunEntry
from stepwell.stores.memory.store import MemoryStore
from tests.support.golden_later import build_nested, build_sleeping
from tests.support.golden_workflow import GIVEN, build, build_asking
from tests.support.postgres_server import dsn, fresh_schema


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
async def every(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    with fresh_schema() as schema:
        made: dict[str, Callable[[], BuiltInStorage]] = {
            "memory": lambda: InMemoryCheckpointStorage(),
            "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
            "file": lambda: FileCheckpointStorage(tmp_path / "runs"),
            "postgres": lambda: PostgresCheckpointStorage(dsn(), schema=schema),
        }
        async with made[request.param]() as storage:
            yield storage


async def looked(storage: Any, **how: Any) -> tuple[list[Finding], Examined]:
    *before, seen = [one async for one in examine(storage, **how)]
    findings = [one for one in before if isinstance(one, Finding)]
    assert isinstance(seen, Examined)
    assert len(findings) == len(before)
    assert seen.errors == sum(one.severity == "error" for one in findings)
    return findings, seen


async def fill(storage: Any) -> None:
    await build(storage, broken=False).run(GIVEN, run_id="done")
    with pytest.raises(HandlerFailed):
        await build(storage, broken=True).run(GIVEN, run_id="failed")
    await build_asking(storage).run("gold", run_id="waiting")
    await build_nested(storage).run(3, run_id="nested")
    await build_sleeping(storage, broken=True).run("x", run_id="asleep")


@pytest.mark.process
async def test_a_store_that_is_whole(every: Any) -> None:
    await fill(every)
    findings, seen = await looked(
        every, workflows=[build_asking(every), build_nested(every), build(every, broken=False)]
    )
    assert findings == []
    assert (seen.runs, seen.requests, seen.signals) == (7, 2, 0)
    assert seen.records == sum(seen.formats.values()) == len(await every._store.checkpoints())
    assert seen.log_entries >= 2
    assert seen.bytes > 1000
    assert seen.records_per_second > 0
    assert sum(seen.statuses.values()) == 7


async def test_a_store_of_runs_that_keep_only_their_latest() -> None:
    storage = InMemoryCheckpointStorage(retention=LatestOnly)
    await fill(storage)
    assert (await looked(storage))[0] == []


@pytest.mark.process
async def test_damaged_records_and_letters_are_found_each(every: Any) -> None:
    await fill(every)
    raw = every._store.inner
    for number in (1, 3):
        [record] = await raw.history("done", after=number - 1, upto=number)
        await raw.rewrite("done", replace=[Record(record.entry, record.body.replace(b'"place"', b'"plaec"'))])
    await raw.send("waiting", "answer/0/x/y", b'{"format":1}')
    findings, seen = await looked(every)
    broken = [one.number for one in findings if one.run_id == "done" and "its checksum does not match" in one.what]
    assert broken == [1, 3]
    assert [one.what for one in findings if one.run_id == "waiting"] != []
    assert {one.run_id for one in findings} == {"done", "waiting"}
    assert seen.runs == 7


async def test_what_lists_say_and_heads_do_not_is_found() -> None:
    storage = InMemoryCheckpointStorage()
    await fill(storage)
    head = (await storage._store.read("waiting"))[-1]
    wrong = Record(replace(head.entry, status="IDLE"), head.body)
    await storage._store.rewrite("waiting", insert=wrong, effects=NO_EFFECTS)  # and nothing is asked
    words = " ".join(one.what for one in (await looked(storage))[0])
    assert "does not match its content" in words
    await storage._store.rewrite("waiting", insert=head, effects=NO_EFFECTS)
    assert [one.what for one in (await looked(storage))[0]] == [
        "the list of open requests and the head of the run disagree on golden question"
    ]


async def test_an_index_that_leaves_a_run_out_is_found(tmp_path: Path) -> None:
    """The run is there, and whoever looks for runs that wait does not see it."""
    path = tmp_path / "runs.db"
    async with SQLiteCheckpointStorage(path) as storage:
        await build_asking(storage).run("gold", run_id="waiting")
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_by_status'").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    text = bytearray(path.read_bytes())
    index = text[(page - 1) * size : page * size]
    assert index.count(b"IDLE_WITH_PENDING_REQUESTS") == 1
    text[(page - 1) * size : page * size] = index.replace(b"IDLE_WITH", b"IDLE_WIDE")
    path.write_bytes(text)
    async with SQLiteCheckpointStorage(path) as storage:
        findings, _ = await looked(storage)
    assert "missing from index runs_by_status" in findings[0].what


async def test_a_question_that_is_listed_with_another_answer_is_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with SQLiteCheckpointStorage(path) as storage:
        await build_asking(storage).run("gold", run_id="waiting")
        asked = {one.request_id for one in await storage.pending_requests()}
    with sqlite3.connect(path) as db:
        db.execute("UPDATE requests SET schema = '{}'")
    db.close()
    async with SQLiteCheckpointStorage(path) as storage:
        findings, _ = await looked(storage)
    names = ", ".join(sorted(asked))
    assert [one.what for one in findings] == [f"the list of open requests and the head of the run disagree on {names}"]


async def test_a_commit_that_is_not_listed_among_the_outputs_is_found(tmp_path: Path) -> None:
    """Results are told from those that are, and the others may be pruned."""
    path = tmp_path / "runs.db"
    async with SQLiteCheckpointStorage(path) as storage:
        await build(storage, broken=False).run(GIVEN, run_id="done")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE commits SET outputs = 0 WHERE outputs")
    db.close()
    async with SQLiteCheckpointStorage(path) as storage:
        findings, _ = await looked(storage)
    assert "does not match its content" in findings[0].what


async def test_runs_that_cannot_go_on_are_found_and_why() -> None:
    storage = InMemoryCheckpointStorage()
    await fill(storage)
    inside = next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "nested")
    await storage._store.drop(inside)
    first = (await storage.list_checkpoint_ids(run_id="done"))[1]
    await build(storage, broken=False).run(checkpoint_id=first, run_id="fork")
    await storage._store.drop("done")
    data = await export_run(storage, "failed", without=["messages"])
    await storage._store.drop("failed")
    await import_run(storage, data, inspect_only=True)
    found = {
        (one.run_id, one.severity, one.what.partition(",")[0].partition(":")[0]) for one in (await looked(storage))[0]
    }
    assert ("nested", "error", f"the run waits for run '{inside}' of sub-workflow 'market'") in found
    assert ("failed", "warning", "this run was redacted") in found
    assert any(run == "fork" and severity == "warning" and "forked from" in what for run, severity, what in found)
    assert any(
        "is not stored, so the run will never" in one.what
        for one in (await looked(storage))[0]
        if one.severity == "warning"
    )


async def test_what_a_changed_workflow_cannot_go_on_with_is_found() -> None:
    storage = InMemoryCheckpointStorage()
    await build_asking(storage).run("gold", run_id="waiting")

    @executor(id="other")
    async def other(text: str, ctx: WorkflowContext) -> None: ...

    changed = WorkflowBuilder(name="asking", start_executor=other).build()
    [finding] = (await looked(storage, workflows=[changed]))[0]
    assert finding.what.startswith("this code cannot continue the run: executor 'asker' was removed, but its request")


async def test_an_import_that_was_cut_short_is_found() -> None:
    storage, there = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await build_asking(storage).run("gold", run_id="waiting")
    await import_run(there, await export_run(storage, "waiting"))
    await there._store.drop("waiting")
    head = (await storage._store.history("waiting"))[0]
    await there._store.send("waiting", PARTLY_HERE, b"{}")
    await there._store.rewrite("waiting", insert=head, effects=NO_EFFECTS)
    assert "its import was interrupted" in (await looked(there))[0][0].what


@pytest.mark.process
async def test_a_store_that_cannot_be_reached_is_said_to_be() -> None:
    storage = PostgresCheckpointStorage("host=/nowhere dbname=x", timeout=0.1)
    [finding], seen = await looked(storage)
    assert finding.what.startswith("the store cannot be reached: ")
    assert seen.runs == 0
    await storage.close()


class Moving(MemoryStore):
    """Something happens to a run right after it was looked at for the first time."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self.then: Callable[[], Awaitable[object]] | None = None

    async def runs(self, run_filter: RunFilter = TOP_RUNS, **asked: Any) -> list[RunEntry]:
        found = await super().runs(run_filter, **asked)
        await self._move("runs")
        return found

    async def _move(self, where: str) -> None:
        if where == self._where and self.then is not None:
            then, self.then = self.then, None
            await then()


async def test_a_run_that_is_moved_on_while_it_is_looked_at_is_looked_at_again() -> None:
    store = Moving("runs")
    storage = BuiltInStorage(store)
    workflow = build_asking(storage)
    (event,) = (await workflow.run("gold", run_id="r")).get_request_info_events()
    store.then = lambda: workflow.run(run_id="r", responses={event.request_id: {"good": True}})
    findings, seen = await looked(storage)
    assert store.then is None
    assert (findings, seen.runs) == ([], 1)


async def test_what_is_wrong_of_a_run_that_was_moved_on_is_found_all_the_same() -> None:
    class Forgetful(Moving):
        async def locate(self, checkpoint_id: str) -> Any:
            return None

    store = Forgetful("runs")
    storage = BuiltInStorage(store)
    workflow = build_asking(storage)
    (event,) = (await workflow.run("gold", run_id="r")).get_request_info_events()
    store.then = lambda: workflow.run(run_id="r", responses={event.request_id: {"good": True}})
    findings, _ = await looked(storage)
    assert [one.what for one in findings] == ["the head of the run cannot be found by its checkpoint id"]
