"""How much of a run may be lost is a stated level, and not reaching it is an error."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from tests.conftest import Later


class Counter(Executor):
    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.append_state("log", number)
        if number < 5:
            await ctx.send_message(number + 1)
        else:
            await ctx.request_info("go on?", bool, request_id="q")

    @response_handler
    async def answered(self, original_request: str, response: bool, ctx: WorkflowContext[int, list[int]]) -> None:
        await ctx.yield_output(ctx.get_state("log"))


def build(storage: Any) -> Workflow:
    counter = Counter("counter")
    builder = WorkflowBuilder(name="counting", start_executor=counter, checkpoint_storage=storage)
    return builder.add_edge(counter, counter).build()


@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_at_every_level_all_is_stored_when_the_run_waits_or_ends(storage: Any, level: Any) -> None:
    result = await build(storage).run(0, run_id="r", durability=level)
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert len(await storage.list_checkpoint_ids(run_id="r")) == 7
    assert [one.request_id for one in await storage.pending_requests()] == ["q"]
    done = await build(storage).run(run_id="r", responses={"q": True}, durability=level)
    assert done.get_outputs() == [[0, 1, 2, 3, 4, 5]]
    assert (await storage.get_latest(run_id="r")).status is WorkflowRunState.IDLE


@pytest.mark.parametrize(("level", "most"), [("sync", 0), ("async", 1), ("exit", 6)])
async def test_no_more_is_behind_than_the_level_says(level: Any, most: int) -> None:
    store = MemoryStore()
    behind: list[int] = []

    class Watching(Counter):
        @handler
        async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            run = await store.run("r")
            behind.append(number - (-1 if run is None else run.number))
            if number < 5:
                await ctx.send_message(number + 1)

    counter = Watching("counter")
    builder = WorkflowBuilder(name="counting", start_executor=counter, checkpoint_storage=BuiltInStorage(store))
    await builder.add_edge(counter, counter).build().run(0, run_id="r", durability=level)
    assert max(behind) <= most
    assert (max(behind) > 1) == (level == "exit")


@pytest.mark.parametrize("level", ["async", "exit"])
async def test_a_commit_that_cannot_be_stored_later_fails_the_run(level: Any) -> None:
    class Full(MemoryStore):
        async def append(self, record: Any, effects: Any = None) -> None:
            if record.entry.number == 3:
                raise StoreUnavailable("the disk is full")
            await super().append(record, effects)

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await build(BuiltInStorage(Full())).run(0, run_id="r", durability=level)


@pytest.mark.parametrize("level", ["async", "exit"])
async def test_wherever_it_dies_the_run_comes_to_the_same(level: Any) -> None:
    for at in range(1, 9):
        for after in (False, True):
            inner = MemoryStore()
            try:
                dying = BuiltInStorage(CrashingStore(inner, at, after=after))
                await build(dying).run(0, run_id="r", durability=level)
            except Crash:
                await build(BuiltInStorage(inner)).run(0, run_id="r", durability=level)
            done = await build(BuiltInStorage(inner)).run(run_id="r", responses={"q": True})
            assert done.get_outputs() == [[0, 1, 2, 3, 4, 5]]


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="durability must be one of sync, async, exit, not 'maybe'"):
        build(None).run(0, durability="maybe")  # type: ignore[call-overload]


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class Quick(Executor):
    """Returns while another handler sleeps; with a request if it is told to ask."""

    calls = 0

    @handler
    async def answer(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        type(self).calls += 1
        if text == "ask":
            await ctx.request_info("quick?", bool, request_id="q", deadline=timedelta(hours=1), default=True)
        else:
            await ctx.yield_output("quick")

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"quick {granted}")


class Slow(Executor):
    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=3))
        await ctx.yield_output("slow")


def resting(storage: Any) -> Workflow:
    Quick.calls = 0
    builder = WorkflowBuilder(name="resting", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", [Quick("quick"), Slow("slow")]).build()


@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_a_handler_that_returned_before_the_run_fell_asleep_is_not_called_again(
    storage: Any, level: Any, later: Later
) -> None:
    await resting(storage).run("work", run_id="r", durability=level)
    later(minutes=240)
    done = await resting(storage).run(run_id="r", durability=level)
    assert (done.get_outputs(), Quick.calls) == (["quick", "slow"], 0)


@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_a_request_is_open_while_another_handler_sleeps_and_keeps_its_deadline(
    storage: Any, level: Any, later: Later
) -> None:
    await resting(storage).run("ask", run_id="r", durability=level)
    assert [request.request_id for request in await storage.pending_requests()] == ["q"]
    later(minutes=61)
    asleep = await resting(storage).run(run_id="r", durability=level)
    assert (asleep.get_outputs(), await storage.pending_requests()) == ([], [])
    later(minutes=180)
    done = await resting(storage).run(run_id="r", durability=level)
    assert (sorted(done.get_outputs()), Quick.calls) == (["quick True", "slow"], 0)
