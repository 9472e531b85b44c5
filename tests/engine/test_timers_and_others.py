"""Sleeping handlers beside other handlers, cancellation, requests and forks."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.storage import clock
from tests.engine.timer_samples import HOUR, build, sleeper


def fan_out(storage: Any, *branches: Any) -> Workflow:
    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage)
    return builder.add_fan_out_edges(start, list(branches)).build()


# side by side


async def test_of_siblings_each_runs_as_often_as_it_must(storage: Any, later: Any) -> None:
    """One is done, one is tried again and again, two sleep: those that wait are not called before their time."""
    ran: Counter[str] = Counter()
    timeline: list[str] = []

    def note(name: str) -> None:
        ran[name] += 1
        timeline.append(name)

    @executor(id="done")
    async def done(n: int, ctx: WorkflowContext[None, str]) -> None:
        note("done")
        await ctx.yield_output("done")

    every_two_hours = RetryPolicy(max_attempts=5, initial_interval=2 * HOUR, max_interval=2 * HOUR, jitter=0)

    @executor(id="flaky", retry=every_two_hours)
    async def flaky(n: int, ctx: WorkflowContext[None, str]) -> None:
        note("flaky")
        if ran["flaky"] < 3:
            raise ValueError
        await ctx.yield_output("flaky")

    @executor(id="short")
    async def short(n: int, ctx: WorkflowContext[None, str]) -> None:
        note("short")
        await ctx.sleep(HOUR)
        note("short is over")
        await ctx.yield_output("short")

    @executor(id="long")
    async def long(n: int, ctx: WorkflowContext[None, str]) -> None:
        note("long")
        await ctx.sleep(9 * HOUR)
        note("long is over")
        await ctx.yield_output("long")

    result = await fan_out(storage, done, flaky, short, long).run(1, run_id="r")
    lives = [sorted(timeline)]
    while result.wakes_at is not None:
        timeline.clear()
        later(minutes=(result.wakes_at - clock.now()).total_seconds() / 60 + 0.01)
        result = await fan_out(storage, done, flaky, short, long).run(run_id="r")
        lives.append(timeline.copy())
    assert lives == [
        ["done", "flaky", "long", "short"],
        ["short", "short is over"],
        ["flaky"],
        ["flaky"],
        ["long", "long is over"],
    ]
    assert result.get_outputs() == ["done", "flaky", "short", "long"]
    done_by = {event.executor_id: event.attempt for event in result if event.type == "executor_completed"}
    assert done_by == {"done": 1, "flaky": 3, "short": 1, "long": 1}


async def test_the_second_message_of_an_executor_waits_while_the_first_sleeps(storage: Any, later: Any) -> None:
    called: list[Any] = []

    class Careful(Executor):
        total = persistent(0)

        @handler
        async def work(self, n: int, ctx: WorkflowContext[None, str]) -> None:
            called.append(n)
            self.total += n
            if n != 2:
                await ctx.sleep(HOUR)
            await ctx.yield_output(f"{n} of {self.total}")

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        for number in (1, 2, 3):
            await ctx.send_message(number)

    def workflow() -> Workflow:
        careful = Careful("careful")
        return (
            WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage).add_edge(start, careful).build()
        )

    result = await workflow().run(0, run_id="r")
    while result.wakes_at is not None:
        later(minutes=61)
        result = await workflow().run(run_id="r")
    assert result.get_outputs() == ["1 of 1", "2 of 3", "3 of 6"]
    assert called == [1, 1, 2, 3, 3]


async def test_if_a_sibling_fails_the_sleeper_goes_on_sleeping_when_the_run_is_resumed(
    storage: Any, later: Any
) -> None:
    called: list[Any] = []
    broken = [True]

    @executor(id="broken")
    async def fails(n: int, ctx: WorkflowContext[None, str]) -> None:
        if broken:
            raise ValueError
        await ctx.yield_output("mended")

    def workflow() -> Workflow:
        return fan_out(storage, sleeper(called, HOUR), fails)

    with pytest.raises(HandlerFailed):
        await workflow().run(1, run_id="r")
    assert await storage.ready_runs(by=clock.now() + timedelta(days=9)) == []  # it failed: that is for somebody to see
    broken.clear()
    result = await workflow().run(run_id="r")
    assert result.wakes_at is not None
    assert called == ["called"]
    later(minutes=61)
    assert (await workflow().run(run_id="r")).get_outputs() == ["slept", "mended"]
    assert called == ["called", "called", 0]


async def test_a_sleep_that_is_over_is_not_slept_again_by_the_next_attempt(storage: Any, later: Any) -> None:
    called: list[str] = []

    @executor(id="remind", retry=RetryPolicy(max_attempts=3, initial_interval=0))
    async def remind(n: int, ctx: WorkflowContext[None, str]) -> None:
        called.append("called")
        await ctx.sleep(HOUR)
        called.append("awake")
        if called.count("awake") < 3:
            raise ConnectionError
        await ctx.yield_output("reminded")

    await build(remind, storage).run(1, run_id="r")
    later(minutes=61)
    result = await build(remind, storage).run(run_id="r")
    assert result.get_outputs() == ["reminded"]
    assert called == ["called"] + ["called", "awake"] * 3
    assert [event.attempt for event in result if event.type == "executor_invoked"] == [1, 2, 3]


# stopped on purpose


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("limits", [{}, {"timeout": HOUR}])
async def test_a_run_that_is_cancelled_while_it_sleeps_sleeps_the_rest_when_it_is_resumed(
    storage: Any, later: Any, plain: bool, limits: dict[str, Any]
) -> None:
    called: list[Any] = []
    moment = clock.now() + timedelta(seconds=50)  # soon enough to be waited for in memory

    def workflow() -> Workflow:
        return build(sleeper(called, moment, plain=plain, **limits), storage)

    stream = workflow().run(1, run_id="r", stream=True)
    async for event in stream:
        if event.type == "executor_invoked":
            while not called:  # noqa: ASYNC110 - it may be a thread that is waited for
                await asyncio.sleep(0.001)
            await stream.cancel()
    assert (await storage.get_latest(run_id="r")).status is WorkflowRunState.CANCELLED
    later(seconds=51)
    assert (await workflow().run(run_id="r")).get_outputs() == ["slept"]
    assert called == ["called", "called", 0]


@pytest.mark.parametrize("limits", [{}, {"timeout": HOUR}])
async def test_a_thread_that_sleeps_is_let_go_when_the_run_is_stopped(limits: dict[str, Any]) -> None:
    begun, over = threading.Event(), threading.Event()
    told: list[str] = []

    @executor(id="sleeper", **limits)
    def work(n: int, ctx: WorkflowContext) -> None:
        begun.set()
        try:
            ctx.sleep(1000 * HOUR)  # kept nowhere, it is waited for here
        except RuntimeError as error:
            told.append(str(error))
        over.set()

    before = asyncio.all_tasks()
    driving = asyncio.create_task(_driven(build(work)))
    assert await asyncio.to_thread(begun.wait, 60)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert await asyncio.to_thread(over.wait, 60)
    assert len(told) == 1
    assert "sleep was called after the handler of 'sleeper' had failed or was given up" in told[0]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def _driven(workflow: Workflow) -> None:
    await workflow.run(1)


async def test_a_run_that_is_put_aside_can_be_cancelled_and_then_sleeps_as_long_as_it_would_have(
    storage: Any, later: Any
) -> None:
    called: list[Any] = []
    moment = (await build(sleeper(called, HOUR), storage).run(1, run_id="r")).wakes_at
    await build(sleeper(called, HOUR), storage).run(run_id="r", stream=True).cancel()
    assert (await storage.get_latest(run_id="r")).status is WorkflowRunState.CANCELLED
    assert await storage.ready_runs(by=clock.now() + timedelta(days=9)) == []
    result = await build(sleeper(called, HOUR), storage).run(run_id="r")
    assert (result.wakes_at, called) == (moment, ["called"])
    later(minutes=61)
    assert (await build(sleeper(called, HOUR), storage).run(run_id="r")).get_outputs() == ["slept"]


# together with questions


class Desk(Executor):
    """Asks, and sends on to somebody who sleeps."""

    def __init__(self, **options: Any) -> None:
        super().__init__("desk")
        self.options = options

    @handler
    async def begin(self, n: int, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info("well?", str, request_id="q", **self.options)
        await ctx.send_message("go")

    @response_handler
    async def said(self, original_request: str, response: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"said {response}")


def asking(storage: Any, called: list[Any], **options: Any) -> Workflow:
    @executor(id="sleeper")
    async def sleeps(text: str, ctx: WorkflowContext[None, str]) -> None:
        called.append("called")
        await ctx.sleep(2 * HOUR)
        await ctx.yield_output("slept")

    desk = Desk(**options)
    return WorkflowBuilder(name="w", start_executor=desk, checkpoint_storage=storage).add_edge(desk, sleeps).build()


async def test_an_answer_to_a_run_that_sleeps_joins_its_superstep(storage: Any, later: Any) -> None:
    called: list[Any] = []
    both = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS
    asleep = await asking(storage, called).run(1, run_id="r")
    assert asleep.get_final_state() is both
    assert [event.request_id for event in asleep.get_request_info_events()] == ["q"]
    early = await asking(storage, called).run(run_id="r")
    assert early.get_final_state() is both
    answered = await asking(storage, called).run(run_id="r", responses={"q": "yes"})
    assert answered.wakes_at == asleep.wakes_at
    assert answered.get_outputs() == []
    later(minutes=121)
    done = await asking(storage, called).run(run_id="r")
    assert done.get_outputs() == ["slept", "said yes"]
    assert called == ["called", "called"]


async def test_a_deadline_that_passes_while_the_run_sleeps_is_seen_at_once(storage: Any, later: Any) -> None:
    options = {"deadline": timedelta(minutes=30), "default": "nothing"}
    asleep = await asking(storage, [], **options).run(1, run_id="r")
    later(minutes=31)
    assert [run.run_id for run in await storage.ready_runs()] == ["r"]
    assert (await asking(storage, [], **options).run(run_id="r")).wakes_at == asleep.wakes_at
    assert (await storage.ready_runs(), await storage.pending_requests()) == ([], [])
    later(minutes=90)
    assert asleep.wakes_at is not None
    assert [due.since for due in await storage.ready_runs()] == [asleep.wakes_at.isoformat()]
    assert (await asking(storage, [], **options).run(run_id="r")).get_outputs() == ["slept", "said nothing"]


async def test_a_run_whose_question_runs_out_of_time_is_due_then(storage: Any, later: Any) -> None:
    class Short(Desk):
        @handler
        async def begin(self, n: int, ctx: WorkflowContext[str, str]) -> None:
            await ctx.request_info("well?", str, request_id="q", **self.options)

    def workflow() -> Workflow:
        return build(Short(deadline=timedelta(minutes=30), default="nothing"), storage)

    result = await workflow().run(1, run_id="r")
    assert (result.wakes_at, await storage.ready_runs()) == (None, [])
    later(minutes=31)
    assert [due.run_id for due in await storage.ready_runs()] == ["r"]
    assert (await workflow().run(run_id="r")).get_outputs() == ["said nothing"]
    assert await storage.ready_runs() == []


async def test_a_response_handler_may_sleep(storage: Any, later: Any) -> None:
    called: list[str] = []

    class Slow(Desk):
        @handler
        async def begin(self, n: int, ctx: WorkflowContext[str, str]) -> None:
            await ctx.request_info("well?", str, request_id="q")

        @response_handler
        async def said(self, original_request: str, response: str, ctx: WorkflowContext[str, str]) -> None:
            called.append(f"{ctx.request_id} {response}")
            await ctx.sleep(HOUR)
            await ctx.yield_output(f"said {response}")

    await build(Slow(), storage).run(1, run_id="r")
    assert (await build(Slow(), storage).run(run_id="r", responses={"q": "yes"})).wakes_at is not None
    later(minutes=61)
    assert (await build(Slow(), storage).run(run_id="r")).get_outputs() == ["said yes"]
    assert called == ["q yes"] * 2


# from elsewhere


async def test_a_fork_of_a_run_that_sleeps_executes_afresh(storage: Any, later: Any) -> None:
    called: list[Any] = []
    moment = (await build(sleeper(called, HOUR), storage).run(1, run_id="r")).wakes_at
    parked = await storage.get_latest(run_id="r")
    later(minutes=30)
    same = await build(sleeper(called, HOUR), storage).run(checkpoint_id=parked.checkpoint_id)
    assert (same.run_id, same.wakes_at) == ("r", moment)
    fork = await build(sleeper(called, HOUR), storage).run(checkpoint_id=parked.checkpoint_id, run_id="fork")
    assert fork.wakes_at is not None
    assert moment is not None
    assert fork.wakes_at > moment
    assert called == ["called", "called"]
    later(minutes=31)
    assert [due.run_id for due in await storage.ready_runs()] == ["r"]
    assert (await build(sleeper(called, HOUR), storage).run(run_id="r")).get_outputs() == ["slept"]
    assert (await build(sleeper(called, HOUR), storage).run(run_id="fork")).get_outputs() == []
    later(minutes=31)
    assert (await build(sleeper(called, HOUR), storage).run(run_id="fork")).get_outputs() == ["slept"]


async def test_a_checkpoint_that_is_saved_by_hand_is_due_where_it_is_saved(storage: Any) -> None:
    asleep = await build(sleeper([], HOUR), storage).run(1, run_id="r")
    other = InMemoryCheckpointStorage()
    await other.save(await storage.get_latest(run_id="r"))
    assert asleep.wakes_at is not None
    (due,) = await other.ready_runs(by=asleep.wakes_at)
    assert (due.run_id, due.until) == ("r", asleep.wakes_at.isoformat())


async def test_a_run_around_one_that_sleeps_sleeps_with_it_and_speaks_for_it(storage: Any, later: Any) -> None:
    called: list[Any] = []

    @executor(id="first")
    async def first(n: int) -> int:
        called.append("first")
        return n

    def workflow() -> Workflow:
        slow = sleeper(called, HOUR)
        inner = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, slow).build()
        return build(WorkflowExecutor(inner, "inner", allow_direct_output=True), storage)

    asleep = await workflow().run(1, run_id="r")
    assert asleep.wakes_at is not None
    assert [due.run_id for due in await storage.ready_runs(by=asleep.wakes_at)] == ["r"]
    early = await workflow().run(run_id="r")
    assert early.wakes_at == asleep.wakes_at
    later(minutes=61)
    assert (await workflow().run(run_id="r")).get_outputs() == ["slept"]
    assert called == ["first", "called", "called", 0]
