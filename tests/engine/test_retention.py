"""Runs that keep only their latest checkpoint: it is all that readers find, and it is enough for everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointMissing,
    DefinitionError,
    Executor,
    FullHistory,
    LatestOnly,
    Retention,
    RunError,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
)
from stepwell.storage import record as chain
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.port import Store
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Crash, CrashingStore, crash_everywhere
from tests.support.held import Script, asking
from tests.support.nesting import Ask, Ok, around, deep

PLACES = ("memory", "sqlite", "file")


class Places:
    """One place, opened as often as one likes."""

    def __init__(self, kind: str, path: Path) -> None:
        self._kind, self._path, self._memory = kind, path, MemoryStore()

    def open(self, retention: Retention = LatestOnly) -> BuiltInStorage:
        made: dict[str, Callable[[], Store]] = {
            "memory": lambda: self._memory,
            "sqlite": lambda: SQLiteStore(self._path / "runs.db"),
            "file": lambda: FileStore(self._path / "runs"),
        }
        return BuiltInStorage(made[self._kind](), retention=retention)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    return Places(request.param, tmp_path)


@executor
async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
    ctx.append_state("numbers", number)
    if number % 10 == 0:
        await ctx.yield_output(number)
    if number < ctx.private["last"]:
        await ctx.send_message(number + 1)


COUNTING = WorkflowBuilder(name="counting", start_executor=count, max_iterations=1000).add_edge(count, count).build()


async def run(storage: BuiltInStorage, last: int, **options: Any) -> Any:
    return await COUNTING.run(1, run_id="r", checkpoint_storage=storage, private={"last": last}, **options)


async def test_readers_find_one_checkpoint(place: Places) -> None:
    storage = place.open()
    await run(storage, 5)
    ids = await storage.list_checkpoint_ids()
    assert len(ids) == 1
    latest = await storage.load(ids[0])
    assert (latest.number, latest.state["numbers"]) == (5, [1, 2, 3, 4, 5])
    assert [one.number for one in await storage.list_checkpoints(run_id="r")] == [5]
    assert [one.number for one in await storage.list_checkpoints(limit=3)] == [5]
    found = await storage.get_latest(workflow_name="counting")
    assert found is not None
    assert found.checkpoint_id == ids[0]
    handle = COUNTING.attach("r", checkpoint_storage=storage, drive=True)
    assert [one.number for one in await handle.checkpoints()] == [5]


async def test_several_runs_are_listed_with_the_latest_of_each(place: Places) -> None:
    latest, full = place.open(), place.open(FullHistory)
    for name in ("a", "b"):
        await COUNTING.run(1, run_id=name, checkpoint_storage=latest, private={"last": 3})
    await COUNTING.run(1, run_id="c", checkpoint_storage=full, private={"last": 3})
    listed = await latest.list_checkpoints(workflow_name="counting")
    assert [(one.run_id, one.number) for one in listed] == [("a", 3), ("b", 3), *(("c", n) for n in range(4))]
    page = await latest.list_checkpoints(limit=2, before=listed[2].checkpoint_id)
    assert [(one.run_id, one.number) for one in page] == [("a", 3), ("b", 3)]


@pytest.mark.long
async def test_what_is_stored_does_not_grow_with_the_run(place: Places) -> None:
    storage = place.open()
    await run(storage, 500)
    assert len(await storage._store.history("r")) <= chain.SNAPSHOT_EVERY + 50 + 1  # the chain, and the outputs
    everything = place.open(FullHistory)
    await COUNTING.run(1, run_id="all", checkpoint_storage=everything, private={"last": 500})
    assert len(await everything._store.history("all")) == 501


async def test_outputs_are_told_again_although_their_checkpoints_are_gone(place: Places) -> None:
    storage = place.open()
    first = await run(storage, 300)
    again = await COUNTING.run(run_id="r", checkpoint_storage=place.open())
    assert again.get_outputs() == first.get_outputs() == list(range(10, 301, 10))


async def test_a_checkpoint_that_went_is_named_with_the_reason(place: Places) -> None:
    storage = place.open()
    ids: list[str] = []
    stream = COUNTING.run(1, run_id="r", checkpoint_storage=storage, private={"last": 5}, stream=True)
    async for event in stream:
        if event.type == "superstep_completed" and event.checkpoint is not None:
            ids.append(event.checkpoint.checkpoint_id)
    with pytest.raises(CheckpointMissing, match="a run with retention=LatestOnly keeps only its latest"):
        await storage.load(ids[0])
    with pytest.raises(CheckpointMissing, match="a run with retention=LatestOnly keeps only its latest"):
        await COUNTING.run(checkpoint_id=ids[0], checkpoint_storage=storage)
    with pytest.raises(CheckpointMissing, match="'r' keeps only its latest"):
        await storage.message_history(ids[-1])
    assert not await storage.delete(ids[0])


async def test_deleting_the_only_checkpoint_deletes_the_run(place: Places) -> None:
    storage = place.open()
    await run(storage, 80)
    (id,) = await storage.list_checkpoint_ids()
    assert await storage.delete(id)
    assert await storage.list_checkpoint_ids() == []
    assert await storage.list_runs() == []
    assert await storage._store.history("r") == []
    assert (await run(storage, 3)).get_final_state() is WorkflowRunState.IDLE


async def test_a_run_keeps_what_it_was_begun_with(place: Places) -> None:
    script = Script()
    begun = place.open(FullHistory)
    waiting = await asking(begun, script).run("word", run_id="r")
    before = len(await begun.list_checkpoint_ids())
    other = place.open(LatestOnly)
    answers = {event.request_id: True for event in waiting.get_request_info_events()}
    await asking(other, script).run(run_id="r", responses=answers)
    assert len(await other.list_checkpoint_ids()) > before > 1


async def test_a_fork_is_told_what_its_parent_had_told_although_the_parent_moved_on(place: Places) -> None:
    storage = place.open()
    await run(storage, 20)
    (at_20,) = await storage.list_checkpoint_ids()
    handle = COUNTING.attach("r", checkpoint_storage=storage, private={"last": 300}, drive=True)
    forked = COUNTING.attach("f", checkpoint_storage=storage, private={"last": 30}, drive=True)
    await COUNTING.run(checkpoint_id=at_20, run_id="f", checkpoint_storage=storage)
    await handle.send(21)
    await handle.result()
    await forked.send(21)
    result = await forked.result()
    assert result.get_outputs() == [10, 20, 30]


@pytest.mark.long
@pytest.mark.parametrize("floors", [1, 2])
async def test_a_fork_goes_on_with_runs_inside_as_they_were_although_the_originals_moved_on(
    floors: int, place: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "SNAPSHOT_EVERY", 1)
    monkeypatch.setattr(chain, "_WASTE", 0.0)

    def build() -> Any:
        inner = WorkflowBuilder(name="inner", start_executor=Asks(id="asks")).build()
        return deep(inner, floors, place.open())

    async def answer_all(run_id: str, answer: bool) -> Any:
        result = await build().run(run_id=run_id)
        while asked := result.get_request_info_events():
            result = await build().run(run_id=run_id, responses={asked[0].request_id: Ok(answer)})
        return result.get_outputs()

    await build().run("go", run_id="r")
    for name, parent in (("fork", "r"), ("fork of fork", "fork")):
        latest = await place.open().get_latest(run_id=parent)
        assert latest is not None
        await build().run(checkpoint_id=latest.checkpoint_id, run_id=name)
        assert await answer_all(parent, True) == ["1: True", "11: True", "111: True"]
    assert await answer_all("fork of fork", False) == ["1: False", "11: False", "111: False"]


def asking_inside(storage: BuiltInStorage) -> Any:
    return around(WorkflowBuilder(name="inner", start_executor=Asks(id="asks")).build(), storage)


async def head_of(storage: BuiltInStorage, run_id: str) -> str:
    latest = await storage.get_latest(run_id=run_id)
    assert latest is not None
    return latest.checkpoint_id


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2])
async def test_a_fork_with_runs_inside_that_died_while_it_was_made_is_made_again(at: int, after: bool) -> None:
    store = MemoryStore()
    storage = BuiltInStorage(store, retention=LatestOnly)
    (asked,) = (await asking_inside(storage).run("go", run_id="r")).get_request_info_events()
    here = await head_of(storage, "r")
    dying = BuiltInStorage(CrashingStore(store, at=at, after=after), retention=LatestOnly)
    with pytest.raises(Crash):
        await asking_inside(dying).run(checkpoint_id=here, run_id="fork")
    forked = await asking_inside(storage).run(checkpoint_id=here, run_id="fork")
    assert [one.request_id for one in forked.get_request_info_events()] == [asked.request_id]
    done = await asking_inside(storage).run(run_id="fork", responses={asked.request_id: Ok(True)})
    assert done.get_outputs() == ["1: True"]


async def test_what_worked_for_a_fork_that_was_deleted_is_in_the_way_of_one_of_the_same_name(place: Places) -> None:
    storage = place.open()
    (asked,) = (await asking_inside(storage).run("go", run_id="r")).get_request_info_events()
    here = await head_of(storage, "r")
    await asking_inside(storage).run(checkpoint_id=here, run_id="fork", responses={asked.request_id: Ok(True)})
    assert await storage.delete(await head_of(storage, "fork"))
    with pytest.raises(RunError, match="is a child of an earlier run 'fork', which was deleted without it"):
        await asking_inside(storage).run(checkpoint_id=here, run_id="fork")
    assert (await asking_inside(storage).run(checkpoint_id=here, run_id="other")).get_request_info_events()


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 2, 3])
async def test_it_comes_to_the_same_wherever_it_dies(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "SNAPSHOT_EVERY", every)
    monkeypatch.setattr(chain, "_WASTE", 0.0)
    report = await crash_everywhere(COUNTING, 1, private={"last": 12}, retention=LatestOnly)
    assert report.crashes >= 24


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 2, 3])
async def test_so_it_does_with_questions_from_inside(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "SNAPSHOT_EVERY", every)
    monkeypatch.setattr(chain, "_WASTE", 0.0)
    inside = around(WorkflowBuilder(name="inner", start_executor=Asks(id="asks")).build())
    report = await crash_everywhere(inside, "go", answer=lambda event: Ok(True), retention=LatestOnly)
    assert report.crashes >= 20


class Asks(Executor):
    """Asks three times, one after the other."""

    @handler
    async def begin(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info(Ask("1"), Ok)

    @response_handler
    async def answered(self, asked: Ask, answer: Ok, ctx: WorkflowContext[str, str]) -> None:
        ctx.append_state("asked", asked.text)
        await ctx.yield_output(f"{asked.text}: {answer.yes}")
        if len(asked.text) < 3:
            await ctx.request_info(Ask(asked.text + "1"), Ok)


def test_no_other_word_is_taken() -> None:
    with pytest.raises(DefinitionError, match="FullHistory or LatestOnly, not 'latest'"):
        BuiltInStorage(MemoryStore(), retention="latest")  # type: ignore[arg-type]
