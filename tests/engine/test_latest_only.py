"""With `LatestOnly`, what is superseded is nowhere in the store once the run rests, however it comes to rest."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    FullHistory,
    HandlerFailed,
    LatestOnly,
    StoreUnavailable,
    SuperstepLimit,
    WorkflowBuilder,
    WorkflowExecutor,
    WorkflowRunState,
)
from stepwell.admin import Keep, delete_runs, prune
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.record import SNAPSHOT_EVERY
from stepwell.storage.stored_values import CommitEffects, Record, SignalRow
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.sqlite import connections as sqlite_connections
from stepwell.stores.sqlite import schema as sqlite_schema
from stepwell.stores.sqlite import store as sqlite
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Crash, CrashingStore
from stepwell.testing.faults.wrapped_store import WrappedStore
from stepwell.testing.store_rules.samples import record, text
from tests.support.nesting import around, deep
from tests.support.stored_marks import (
    BACK_ENDS,
    LAST,
    OUTPUTS,
    BackEnd,
    back_end,
    interview,
    interviewed,
    latest,
    marks_in,
    walking,
)

UNDER_WAY = {*OUTPUTS, *latest(LAST - 1), f"mark-message-{LAST}", f"mark-step-{LAST}"}


@pytest.fixture(params=BACK_ENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackEnd]:
    with back_end(request.param, tmp_path) as found:
        yield found


async def walk(storage: BuiltInStorage, then: str = "end", **options: Any) -> Any:
    given = {"run_id": "r", "checkpoint_storage": storage, "private": {"then": then}, **options}
    return await walking().run("mark-message-1", **given)


async def numbers(storage: BuiltInStorage) -> list[int]:
    return [record.entry.number for record in await storage._store.history("r")]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_that_completed(place: BackEnd, durability: str) -> None:
    async with place.open() as storage:
        result = await walk(storage, durability=durability)
        assert set(result.get_outputs()) == OUTPUTS
        assert await numbers(storage) == [20, 40, 60, LAST]
        assert place.marks() == {*OUTPUTS, *latest(LAST)}
        again = await walking().run(run_id="r", checkpoint_storage=storage)
        assert again.get_outputs() == result.get_outputs()


async def test_a_run_that_waits_for_a_person_and_is_answered(place: BackEnd) -> None:
    async with place.open() as storage:
        (asked,) = (await walk(storage, "ask")).get_request_info_events()
        assert await numbers(storage) == [20, 40, 60, LAST]
        assert place.marks() == {*OUTPUTS, *latest(LAST), f"mark-question-{LAST}"}
        await walking().run(run_id="r", checkpoint_storage=storage, responses={asked.request_id: "mark-answer-1"})
        assert place.marks() == {*OUTPUTS, *latest(99)}


async def test_a_run_that_failed_and_is_resumed(place: BackEnd) -> None:
    async with place.open() as storage:
        with pytest.raises(HandlerFailed):
            await walk(storage, "fail")
        assert place.marks() == UNDER_WAY
        assert await numbers(storage) == [20, 40, 60, LAST]  # the last one says that it failed
        await walking().run(run_id="r", checkpoint_storage=storage, private={"then": "end"})
        assert place.marks() == {*OUTPUTS, *latest(LAST)}


async def test_a_run_that_is_parked(place: BackEnd) -> None:
    async with place.open() as storage:
        result = await walk(storage, "park")
        assert result.wakes_at is not None
        assert place.marks() == UNDER_WAY
        assert await numbers(storage) == [20, 40, 60, LAST]


async def test_a_run_that_is_cancelled(place: BackEnd) -> None:
    async with place.open() as storage:
        private = {"then": "end"}
        stream = walking().run("mark-message-1", run_id="r", checkpoint_storage=storage, private=private, stream=True)
        async for event in stream:
            if event.type == "superstep_completed" and event.iteration == LAST - 1:
                await stream.cancel()
        assert (await stream).get_final_state() is WorkflowRunState.CANCELLED
        assert place.marks() <= UNDER_WAY
        assert await numbers(storage) == [20, 40, 60, LAST]
        await walking().run(run_id="r", checkpoint_storage=storage, private={"then": "end"})
        assert place.marks() == {*OUTPUTS, *latest(LAST)}


async def test_a_run_that_is_stopped_by_its_limit(place: BackEnd) -> None:
    short = walking(max_iterations=10)
    async with place.open() as storage:
        with pytest.raises(SuperstepLimit):
            await short.run("mark-message-1", run_id="r", checkpoint_storage=storage, private={"then": "end"})
        assert place.marks() == {*latest(10), "mark-message-11"}
        assert await numbers(storage) == [11]


async def test_mail_that_was_consumed_keeps_its_key_and_loses_its_body(place: BackEnd) -> None:
    store = place.store
    await store.append(record("r", 0))
    for key in ("k", "later"):
        assert await store.send("r", key, text(f"mark-{key}-1"))
    await store.append(record("r", 1), CommitEffects(consumed=("k", "nobody posted it")))
    await store.close()
    assert place.marks() == {"mark-later-1"}
    assert not await store.send("r", "k", text("mark-k-2"))
    assert not await store.send("r", "nobody posted it", text("mark-k-2"))
    assert await store.pending_signals("r") == [SignalRow("later", text("mark-later-1"))]
    await store.close()


async def test_outputs_that_a_killed_program_left_whole_are_reduced(place: BackEnd) -> None:
    async with place.open() as storage:
        (asked,) = (await walk(storage, "ask")).get_request_info_events()
        was = await storage._store.history("r", upto=20)
        whole = json.loads(was[0].body) | {"state": {"set": {"now": "mark-old-20"}}, "warnings": ["mark-old-21"]}
        unreduced = Record(was[0].entry, json.dumps(whole, separators=(",", ":")).encode())
        await storage._store.rewrite("r", replace=[unreduced])
        assert {"mark-old-20", "mark-old-21"} < place.marks()
        await walking().run(run_id="r", checkpoint_storage=storage, responses={asked.request_id: "mark-answer-1"})
        assert place.marks() == {*OUTPUTS, *latest(99)}
        assert await storage._store.history("r", upto=20) == was


async def test_a_run_that_keeps_all_keeps_all(place: BackEnd) -> None:
    async with place.open(retention=FullHistory) as storage:
        await walk(storage)
        assert await numbers(storage) == list(range(LAST + 1))
        assert {f"mark-message-{number}" for number in range(1, LAST + 1)} < place.marks()


# -------------------------------------------------------------------- runs inside


async def answered(outer: Any, run_id: str, answers: int) -> Any:
    """Answer the open question so many times."""
    result = await outer().run(run_id=run_id)
    for _ in range(answers):
        (asked,) = result.get_request_info_events()
        result = await outer().run(run_id=run_id, responses={asked.request_id: "mark-answer-1"})
    return result


@pytest.mark.parametrize("floors", [1, 2])
async def test_runs_inside_keep_what_their_caller_needs_and_no_more(place: BackEnd, floors: int) -> None:
    async with place.open() as storage:

        def outer() -> Any:
            return deep(interview(), floors, storage)

        await outer().run("mark-message-1", run_id="r")
        for answers in range(4):
            assert place.marks() == interviewed(answers)
            for run in await storage._store.runs(ALL_RUNS):
                records = await storage._store.history(run.run_id)
                assert [one.entry.number for one in records if not one.entry.outputs] in ([], [run.number])
            if answers < 3:
                result = await answered(outer, "r", 1)
        assert result.get_outputs() == ["mark-output-1", "mark-output-2", "mark-output-3"]


async def test_forks_with_runs_inside_go_their_own_way(place: BackEnd) -> None:
    async with place.open() as storage:

        def outer() -> Any:
            return around(interview(), storage)

        await outer().run("mark-message-1", run_id="r")
        await answered(outer, "r", 1)
        head = await storage.get_latest(run_id="r")
        assert head is not None
        await outer().run(checkpoint_id=head.checkpoint_id, run_id="fork")
        for name in ("r", "fork"):
            result = await answered(outer, name, 2)
            assert result.get_outputs() == ["mark-output-1", "mark-output-2", "mark-output-3"]
        assert place.marks() == interviewed(3)


class Lost(CrashingStore):
    """Dies at its first `rewrite`: between the commit of a run and what goes of the runs inside it."""

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if name == "rewrite":
            raise Crash
        return await call()


@pytest.mark.parametrize(("answers", "direct"), [(1, False), (3, False), (3, True)])
async def test_what_a_crash_left_of_runs_inside_goes_when_the_run_is_resumed(
    place: BackEnd, answers: int, direct: bool
) -> None:
    def outer(storage: BuiltInStorage) -> Any:
        if not direct:
            return around(interview(), storage)
        sub = WorkflowExecutor(interview(), "sub", allow_direct_output=True)
        return WorkflowBuilder(name="outer", start_executor=sub, checkpoint_storage=storage).build()

    dying = BuiltInStorage(Lost(place.store), retention=LatestOnly)
    async with place.open() as storage:
        await outer(storage).run("mark-message-1", run_id="r")
        await answered(lambda: outer(storage), "r", answers - 1)
        with pytest.raises(Crash):
            await answered(lambda: outer(dying), "r", 1)
        assert "mark-answer-1" in place.marks()
        await outer(storage).run(run_id="r")
        assert place.marks() == interviewed(answers)


# -------------------------------------------------------------------- crashes


@pytest.mark.parametrize(("back", "after"), [(1, True), (1, False)])
async def test_a_crash_near_the_end_leaves_nothing_once_the_run_is_resumed(
    place: BackEnd, back: int, after: bool
) -> None:
    counted = CrashingStore(MemoryStore())
    await walk(BuiltInStorage(counted, retention=LatestOnly))
    dying = BuiltInStorage(CrashingStore(place.store, at=counted.writes + 1 - back, after=after), retention=LatestOnly)
    with pytest.raises(Crash):
        await walk(dying)
    async with place.open() as storage:
        result = await walk(storage)
        assert set(result.get_outputs()) == OUTPUTS
        assert place.marks() == {*OUTPUTS, *latest(LAST)}


# -------------------------------------------------------------------- cost


async def test_only_the_last_superstep_and_every_eighth_of_a_small_state_write_everything(place: BackEnd) -> None:
    written: list[bool] = []

    class Watching(WrappedStore):
        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            if name == "append":
                written.append(args[0].entry.is_snapshot)
            return await call()

    await walk(BuiltInStorage(Watching(place.store), retention=LatestOnly))
    assert [number for number, is_snapshot in enumerate(written) if is_snapshot] == [
        *range(0, LAST, SNAPSHOT_EVERY),
        LAST,
    ]


# -------------------------------------------------------------------- files and free pages


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some builds of SQLite overwrite what is deleted. Nothing may depend on that."""

    def prepare(db: sqlite3.Connection, path: str) -> None:
        sqlite_schema.prepare(db, path)
        db.execute("PRAGMA secure_delete = OFF")

    monkeypatch.setattr(sqlite, "prepare", prepare)


def raw(path: Path) -> set[str]:
    """The marks in all files of a database, whatever they belong to."""
    return {mark for file in path.parent.glob(f"{path.name}*") for mark in marks_in(file.read_bytes())}


@pytest.mark.usefixtures("forgetful")
async def test_after_compacting_nothing_superseded_is_in_the_files_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with BuiltInStorage(SQLiteStore(path), retention=LatestOnly) as storage:
        (asked,) = (await walk(storage, "ask")).get_request_info_events()
        await walking().run(run_id="r", checkpoint_storage=storage, responses={asked.request_id: "mark-answer-1"})
        assert len(raw(path)) > LAST  # else there is nothing to be tested
        await storage.compact()
        assert raw(path) == {*OUTPUTS, *latest(99)}
    assert raw(path) == {*OUTPUTS, *latest(99)}


@pytest.mark.usefixtures("forgetful")
async def test_after_compacting_nothing_deleted_is_in_the_files_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with BuiltInStorage(SQLiteStore(path)) as storage:
        await walk(storage)
        await prune(storage, Keep(last=1))
        kept = raw_rows(path)
        assert kept < raw(path)
        await storage.compact()
        assert raw(path) == kept
        await delete_runs(storage, ["r"])
        await storage.compact()
        assert raw(path) == set()


def raw_rows(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as db:
        return marks_in("\n".join(db.iterdump()).encode())


@pytest.mark.usefixtures("forgetful")
async def test_compacting_says_so_if_another_program_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "PATIENCE", 0.05)
    path = tmp_path / "runs.db"
    async with BuiltInStorage(SQLiteStore(path), retention=LatestOnly) as storage:
        await walk(storage)
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM commits").fetchone()
        with pytest.raises(
            StoreUnavailable, match=r"log still holds deleted values, because another program is reading"
        ):
            await storage.compact()
        reader.close()
        await storage.compact()
        assert raw(path) == {*OUTPUTS, *latest(LAST)}
