"""A fork goes on where another run was, with its changes, and leaves that one alone."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Retention, RunBusy, RunError, WorkflowRunState
from stepwell.admin.diffs.checkpoints import diff
from stepwell.admin.forks import fork
from stepwell.admin.lookup import NotFound, find_run
from stepwell.admin.state_edits import EditRefused
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.checkpoint import RunHeader
from stepwell.storage.lease import this_process
from stepwell.storage.store_archive import StoreArchive
from stepwell.testing.faults.crash import Crash, CrashingStore
from tests.support.nesting import Asker, Ok, alone, asks, deep, ids
from tests.support.operating_runs import Order, asking, counting


async def everything_of(storage: Any, run_id: str) -> list[Any]:
    return [checkpoint.to_dict() for checkpoint in await storage.list_checkpoints(run_id=run_id)]


async def test_a_fork_goes_on_with_its_changes_and_does_nothing_again(everywhere: Any) -> None:
    async with everywhere() as storage:
        calls: list[int] = []
        await counting(storage, 4, calls).run(1, run_id="parent", tags={"for": "ada"})
        before = await everything_of(storage, "parent")
        calls.clear()
        made = await fork(storage, "parent@2", run_id="forked", set={"numbers.0": 100}, add={"upto": 5})
        assert (made.run_id, made.number, calls) == ("forked", 0, [])
        assert (await diff(storage, "parent@2", "forked@0")).lines()[1:] == [
            "~ state.numbers[0]: 1 → 100",
            "+ state.upto: 5",
        ]
        done = await counting(storage, 4, calls).run(run_id="forked")
        assert done.get_outputs() == [[100, 2, 3, 4, 5]]
        assert calls == [3, 4, 5]
        assert await everything_of(storage, "parent") == before


async def test_a_fork_has_the_lineage_of_one_that_a_workflow_makes(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent", tags={"for": "ada"})
        older = (await storage.list_checkpoint_ids(run_id="parent"))[1]
        await counting(storage).run(checkpoint_id=older, run_id="by-workflow")
        await fork(storage, "parent@1", run_id="by-hand")
        archive = StoreArchive(storage._store, DEFAULT_CODEC)

        async def header(run_id: str) -> RunHeader:
            first = await archive.find((await storage.list_checkpoint_ids(run_id=run_id))[0])
            assert first is not None
            return first.header

        one, other = await header("by-workflow"), await header("by-hand")
        assert one.parent_id == other.parent_id == older
        assert [(h.parent_run, h.parent_number, h.tags, h.epoch, h.caller) for h in (one, other)] == [
            ("parent", 1, {"for": "ada"}, 0, None)
        ] * 2
        assert one.signature == other.signature


async def test_tags_and_retention_are_those_of_the_new_run(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent", tags={"for": "ada"})
        await fork(storage, "parent", run_id="tagged", tags={"try": "2"})
        assert (await find_run(storage, "tagged")).tags == {"try": "2"}
        storage.retention = Retention.LatestOnly
        await fork(storage, "parent@1", run_id="latest")
        await counting(storage).run(run_id="latest")
        assert len(await storage.list_checkpoint_ids(run_id="latest")) == 1


async def test_a_run_that_keeps_only_its_latest_is_forked_where_it_is(everywhere: Any) -> None:
    async with everywhere(retention=Retention.LatestOnly) as storage:
        await asking(storage).run(Order(1, ["lamp"]), run_id="asked")
        await fork(storage, "asked", run_id="forked", set={"order.v.lines.0": "cup"})
        for run_id, said in (("forked", "cup: refunded"), ("asked", "lamp: refunded")):
            done = await asking(storage).run(run_id=run_id, responses={"refund-1": True})
            assert done.get_outputs() == [said]


@pytest.mark.parametrize("retention", list(Retention))
async def test_open_runs_inside_are_forked_too(retention: Retention, everywhere: Any) -> None:
    async with everywhere(retention=retention) as storage:

        def build() -> Any:
            return deep(alone(Asker()), 2, storage)

        (id,) = ids(await build().run("a", run_id="outer"))
        await fork(storage, "outer", run_id="forked")
        done = await build().run(run_id="outer", responses={id: Ok(True)})
        assert done.get_outputs() == ["saw a", "a: True"]
        again = asks(await build().run(run_id="forked", responses={id: Ok(False)}))
        done = await build().run(run_id="forked", responses={again[0].request_id: Ok(True)})
        assert done.get_outputs() == ["saw a", "a: False", "a again: True"]


async def test_a_run_that_failed_goes_on_in_a_fork(storage: Any) -> None:
    calls: list[int] = []
    flow = counting(storage, 3, calls)
    await flow.run(1, run_id="parent")
    await fork(storage, "parent@-1", run_id="over")
    assert (await find_run(storage, "over")).status is WorkflowRunState.IDLE
    assert (await flow.run(run_id="over")).get_outputs() == [[1, 2, 3]]


async def test_what_is_refused_leaves_no_run(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent")
        with pytest.raises(EditRefused, match="'nope' does not exist: the state has 'about', 'numbers'"):
            await fork(storage, "parent@1", run_id="forked", set={"nope": 1})
        with pytest.raises(NotFound):
            await fork(storage, "parent@9", run_id="forked")
        with pytest.raises(RunError, match="run 'parent' already exists"):
            await fork(storage, "parent@1", run_id="parent")
        with pytest.raises(ValueError, match="run_id"):
            await fork(storage, "parent@1", run_id="")
        with pytest.raises(ValueError, match="tag"):
            await fork(storage, "parent@1", tags={"": "x"})
        assert [run.run_id for run in await storage.list_runs()] == ["parent"]


async def test_a_run_that_somebody_is_making_is_left_to_him(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent")
        other = this_process("somebody else")
        other = type(other)(other.host, "another machine", other.pid, other.started, other.drive)
        await storage._store.acquire("forked", other, seconds=30)
        with pytest.raises(RunBusy):
            await fork(storage, "parent@1", run_id="forked")
        await storage._store.release("forked", other)
        await fork(storage, "parent@1", run_id="forked")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("retention", list(Retention))
async def test_a_fork_that_dies_is_there_or_not_and_can_be_made_again(
    retention: Retention, after: bool, storage: Any
) -> None:
    storage.retention = retention
    (id,) = ids(await deep(alone(Asker()), 2, storage).run("a", run_id="outer"))
    whole = storage._store
    counted = storage._store = CrashingStore(whole)
    await fork(storage, "outer", run_id="counted")
    for at in range(1, counted.writes + 1):
        storage._store = CrashingStore(whole, at, after=after)
        with pytest.raises(Crash):
            await fork(storage, "outer", run_id=f"fork-{at}")
        storage._store = whole
        if after and at == counted.writes:
            assert (await find_run(storage, f"fork-{at}")).number == 0
        else:
            await fork(storage, "outer", run_id=f"fork-{at}")
        again = asks(await deep(alone(Asker()), 2, storage).run(run_id=f"fork-{at}", responses={id: Ok(False)}))
        assert len(again) == 1
