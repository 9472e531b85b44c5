"""Sleeping: durable, exact about what runs again, and without anything held while a run is put aside."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    RetryPolicy,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.storage import clock
from tests.engine.timer_samples import HOUR, build, sleeper
from tests.support.hurried import hurried


class SixMethods:
    """A storage that can do no more than it must."""

    def __init__(self) -> None:
        self._kept: dict[str, WorkflowCheckpoint] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self._kept[checkpoint.checkpoint_id] = checkpoint
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return self._kept[checkpoint_id]

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [one for one in self._kept.values() if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self._kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return (await self.list_checkpoints(workflow_name=workflow_name))[-1]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


async def ids(storage: Any) -> list[str]:
    found: list[str] = await storage.list_checkpoint_ids(run_id="r")
    return found


# a short sleep


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("wait", [0.001, timedelta(milliseconds=1), 0, -5, timedelta(days=-1)])
async def test_a_short_sleep_is_slept_where_it_is(storage: Any, wait: Any, plain: bool) -> None:
    called: list[Any] = []
    result = await build(sleeper(called, wait, wait, plain=plain), storage).run(1)
    assert (result.get_outputs(), result.wakes_at) == (["slept"], None)
    assert called == ["called", 0, 1]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_moment_that_has_passed_is_not_waited_for(storage: Any, plain: bool) -> None:
    called: list[Any] = []
    long_ago = datetime(2001, 1, 1, tzinfo=timezone(timedelta(hours=9)))
    assert (await build(sleeper(called, long_ago, plain=plain), storage).run(1)).get_outputs() == ["slept"]


async def test_sleeping_for_no_time_lets_others_have_their_turn() -> None:
    done = asyncio.Event()

    @executor(id="waiter")
    async def waiter(n: int, ctx: WorkflowContext[None, str]) -> None:
        while not done.is_set():
            await ctx.sleep(0)
        await ctx.yield_output("waited")

    asyncio.get_running_loop().call_soon(done.set)
    assert (await build(waiter).run(1)).get_outputs() == ["waited"]


@pytest.mark.parametrize("wait", [math.inf, -math.inf, math.nan, 1e300, 10**400, timedelta.max])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_time_that_nobody_can_sleep_is_refused(wait: Any, plain: bool) -> None:
    with pytest.raises(HandlerFailed, match="ValueError: cannot sleep for"):
        await build(sleeper([], wait, plain=plain)).run(1)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_moment_needs_a_time_zone(plain: bool) -> None:
    with pytest.raises(HandlerFailed, match="has no time zone"):
        await build(sleeper([], datetime(2030, 1, 1), plain=plain)).run(1)


@pytest.mark.parametrize("kept", ["nowhere", "six methods"])
def test_where_a_run_cannot_be_put_aside_it_waits_in_memory(kept: str) -> None:
    called: list[Any] = []
    storage = SixMethods() if kept == "six methods" else None
    moment = datetime.fromtimestamp(1_800_000_000 + 3 * HOUR, UTC)
    result = hurried(build(sleeper(called, HOUR, moment), storage).run(1, run_id="r"))
    assert (result.get_outputs(), result.wakes_at) == (["slept"], None)
    assert called == ["called", 0, 1]
    assert [event for event in result if event.type == "sleeping"] == []


def test_sleeps_side_by_side_in_one_handler_are_over_with_the_longest() -> None:
    @executor(id="both")
    async def both(n: int, ctx: WorkflowContext[None, float]) -> None:
        await asyncio.gather(ctx.sleep(20), ctx.sleep(50), ctx.sleep(30))
        await ctx.yield_output(asyncio.get_running_loop().time())

    assert hurried(build(both).run(1)).get_outputs() == [pytest.approx(50, abs=0.01)]


# a long one


@pytest.mark.parametrize("plain", [False, True])
async def test_a_long_sleep_puts_the_run_aside_until_it_is_due(storage: Any, later: Any, plain: bool) -> None:
    called: list[Any] = []
    result = await build(sleeper(called, 2 * HOUR, plain=plain), storage).run(1, run_id="r")
    assert result.get_final_state() is WorkflowRunState.IN_PROGRESS
    assert result.get_outputs() == []
    moment = result.wakes_at
    assert moment is not None
    assert [event.data for event in result if event.type == "sleeping"] == [moment]
    before = await ids(storage)

    assert await storage.ready_runs() == []
    assert await storage.ready_runs(by=moment - timedelta(seconds=1)) == []
    assert [run.until for run in await storage.ready_runs(by=moment)] == [moment.isoformat()]
    early = await build(sleeper(called, 2 * HOUR, plain=plain), storage).run(run_id="r")
    assert (early.wakes_at, early.get_final_state()) == (moment, WorkflowRunState.IN_PROGRESS)
    assert [(event.data, event.replayed) for event in early if event.type == "sleeping"] == [(moment, True)]
    assert called == ["called"]
    assert await ids(storage) == before

    later(minutes=121)
    assert [run.since for run in await storage.ready_runs()] == [moment.isoformat()]
    done = await build(sleeper(called, 2 * HOUR, plain=plain), storage).run(run_id="r")
    assert (done.get_outputs(), done.wakes_at) == (["slept"], None)
    assert done.get_final_state() is WorkflowRunState.IDLE
    assert called == ["called", "called", 0]
    assert await storage.ready_runs() == []


async def test_it_is_part_of_the_history_that_a_run_slept(storage: Any, later: Any) -> None:
    result = await build(sleeper([], HOUR), storage).run(1, run_id="r")
    later(minutes=61)
    await build(sleeper([], HOUR), storage).run(run_id="r")
    history = await storage.event_history("r")
    assert [event.data for event in history if event.type == "sleeping"] == [result.wakes_at]
    statuses = [one.status for one in await storage.list_checkpoints(run_id="r")]
    going, done = WorkflowRunState.IN_PROGRESS, WorkflowRunState.IDLE
    assert statuses == [going, going, done]


async def test_whoever_opens_the_storage_next_finds_all_that_is_due(storage: Any, later: Any) -> None:
    for run_id, hours in (("c", 3), ("a", 1), ("b", 2), ("never", 900)):
        await build(sleeper([], hours * HOUR), storage).run(1, run_id=run_id)
    later(minutes=200)
    due = await storage.ready_runs(workflow_name="w")
    assert [one.run_id for one in due] == ["a", "b", "c"]
    for one in due:
        assert (await build(sleeper([], HOUR), storage).run(run_id=one.run_id)).get_outputs() == ["slept"]
    assert await storage.ready_runs() == []


async def test_a_moment_in_any_time_zone_is_that_moment(storage: Any, later: Any) -> None:
    moment = (clock.now() + timedelta(hours=1)).replace(microsecond=0)
    tokyo = moment.astimezone(timezone(timedelta(hours=9)))
    called: list[Any] = []
    result = await build(sleeper(called, tokyo), storage).run(1, run_id="r")
    assert result.wakes_at == moment
    later(minutes=61)
    assert (await build(sleeper(called, tokyo), storage).run(run_id="r")).get_outputs() == ["slept"]


async def test_of_several_sleeps_in_one_handler_those_that_are_over_are_passed_at_once(
    storage: Any, later: Any
) -> None:
    called: list[Any] = []
    workflow = build(sleeper(called, HOUR, 0.001, 2 * HOUR, timedelta(hours=3)), storage, max_iterations=1)
    result = await workflow.run(1, run_id="r")
    wakes = []
    while result.wakes_at is not None:
        wakes.append(result.wakes_at)
        later(minutes=181)
        result = await workflow.run(run_id="r")
    assert result.get_outputs() == ["slept"]
    assert wakes == sorted(set(wakes))
    assert called == ["called", "called", 0, 1, "called", 0, 1, 2, "called", 0, 1, 2, 3]


async def test_a_loop_may_sleep_as_often_as_it_likes(storage: Any, later: Any) -> None:
    ready: list[bool] = []

    @executor(id="poll")
    async def poll(n: int, ctx: WorkflowContext[None, str]) -> None:
        rounds = 0
        while len(ready) < 5:
            ready.append(True)
            await ctx.sleep(HOUR)
            rounds += 1
        await ctx.yield_output("ready")

    result = await build(poll, storage).run(1, run_id="r")
    while result.wakes_at is not None:
        later(minutes=61)
        result = await build(poll, storage).run(run_id="r")
    assert result.get_outputs() == ["ready"]


async def test_what_a_handler_did_before_it_slept_is_done_when_it_returns_and_only_once(
    storage: Any, later: Any
) -> None:
    class Keeper(Executor):
        counted = persistent(0)

        @handler
        async def work(self, items: list[int], ctx: WorkflowContext[None, Any]) -> None:
            items.append(4)
            self.counted += 1
            ctx.append_state("log", "before")
            await ctx.yield_output("before")
            await ctx.request_info("well?", bool, request_id="q")
            await ctx.sleep(HOUR)
            ctx.append_state("log", "after")
            await ctx.yield_output((self.counted, items))

        @response_handler
        async def said(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...

    workflow = build(Keeper("keeper"), storage)
    asleep = await workflow.run([1, 2, 3], run_id="r")
    assert asleep.get_outputs() == []
    assert asleep.get_request_info_events() == []
    head = await storage.get_latest(run_id="r")
    assert dict(head.state) == {}
    assert head.executor_states["keeper"] == {"counted": 0}
    later(minutes=61)
    for build_again in (workflow, build(Keeper("keeper"), storage)):
        result = await build_again.run(run_id="r")
        assert result.get_outputs() == ["before", (1, [1, 2, 3, 4])]
    assert dict((await storage.get_latest(run_id="r")).state) == {"log": ["before", "after"]}


# a handler that would make something else of being left


async def _by_catching_all(ctx: Any) -> None:
    try:
        await ctx.sleep(HOUR)
    except BaseException:  # noqa: BLE001
        return


async def _by_raising_another(ctx: Any) -> None:
    try:
        await ctx.sleep(HOUR)
    except BaseException as error:
        raise ValueError("something is wrong") from error


async def _in_a_group(ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.sleep(HOUR))
        group.create_task(ctx.sleep(2 * HOUR))


async def _gathered(ctx: Any) -> None:
    await asyncio.gather(ctx.sleep(HOUR), asyncio.sleep(0), return_exceptions=True)


async def _in_a_task(ctx: Any) -> None:
    await asyncio.create_task(ctx.sleep(HOUR))


async def _in_a_thread(ctx: Any) -> None:
    await asyncio.to_thread(ctx.sleep, HOUR)


@pytest.mark.parametrize(
    "wait", [_by_catching_all, _by_raising_another, _in_a_group, _gathered, _in_a_task, _in_a_thread]
)
async def test_a_handler_that_sleeps_long_is_left_whatever_it_makes_of_it(storage: Any, later: Any, wait: Any) -> None:
    called: list[str] = []

    @executor(id="stubborn", retry=RetryPolicy(max_attempts=2, initial_interval=0))
    async def stubborn(n: int, ctx: WorkflowContext[None, str]) -> None:
        called.append("called")
        await wait(ctx)
        await ctx.yield_output("slept")

    result = await build(stubborn, storage).run(1, run_id="r")
    assert result.get_outputs() == []
    assert result.wakes_at is not None
    assert [due.until for due in await storage.ready_runs(by=result.wakes_at)] == [result.wakes_at.isoformat()]
    later(minutes=121)
    result = await build(stubborn, storage).run(run_id="r")
    assert result.get_outputs() == ["slept"]
    assert [event.attempt for event in result if event.type == "executor_completed"] == [1]
    assert called == ["called"] * 2


async def test_a_handler_that_is_left_may_clean_up(storage: Any) -> None:
    told: list[str] = []

    @executor(id="tidy")
    async def tidy(n: int, ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep(HOUR)
        except Exception:  # noqa: BLE001
            told.append("caught")
        finally:
            await asyncio.sleep(0)
            told.append("cleaned up")

    await build(tidy, storage).run(1)
    assert told == ["cleaned up"]


# what is held meanwhile


@pytest.mark.long
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("limits", [{}, {"timeout": HOUR, "idle_timeout": HOUR}])
async def test_a_run_that_is_put_aside_holds_no_task_no_thread_and_no_executor(
    storage: Any, later: Any, plain: bool, limits: dict[str, Any]
) -> None:
    played: list[weakref.ref[Any]] = []
    threads: list[weakref.ref[threading.Thread]] = []

    class Sleeper(Executor):
        def __init__(self) -> None:
            super().__init__("sleeper", **limits)
            self.load = bytearray(1000)

        if plain:

            @handler
            def work_in_a_thread(self, n: int, ctx: WorkflowContext[None, str]) -> None:
                played.append(weakref.ref(self))
                threads.append(weakref.ref(threading.current_thread()))
                ctx.sleep(HOUR)
                ctx.yield_output("slept")
        else:

            @handler
            async def work(self, n: int, ctx: WorkflowContext[None, str]) -> None:
                played.append(weakref.ref(self))
                await ctx.sleep(HOUR)
                await ctx.yield_output("slept")

    workflow = build(Sleeper, storage)
    before = asyncio.all_tasks()
    for number in range(20):
        result = await workflow.run(1, run_id=str(number))
        assert result.wakes_at is not None
        del result
    if limits:  # each had a thread of its own, which ends; without a limit they share some, which stay
        await asyncio.to_thread(_joined, [thread for ref in threads if (thread := ref()) is not None])
    assert asyncio.all_tasks() == before
    await asyncio.to_thread(_collected, played)
    later(minutes=61)
    for due in await storage.ready_runs():
        other = build(Sleeper, storage)  # whoever it is: nobody holds the run
        assert (await other.run(run_id=due.run_id)).get_outputs() == ["slept"]


def _collected(played: list[weakref.ref[Any]]) -> None:
    """Wait until nobody holds any of them; the thread that renews claims may be looking at one just now."""
    assert len(played) == 20
    deadline = time.monotonic() + 60
    while held := [one for ref in played if (one := ref()) is not None]:
        assert time.monotonic() < deadline, f"{len(held)} executors are still held"
        del held
        gc.collect()
        time.sleep(0.001)


def _joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
