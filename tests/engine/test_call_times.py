"""A handler that has returned is announced while its siblings work, and calls have their real times in every commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    RetryPolicy,
    StepOptions,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    response_handler,
)
from stepwell.model.timing import HandlerReturn
from stepwell.testing import Crash, CrashingStore
from tests.support.streams import collect

SLOW = 0.2


@pytest.fixture
async def storage(everywhere: Any) -> AsyncIterator[Any]:
    async with everywhere() as storage:
        yield storage


async def price(item: str) -> int:
    await asyncio.sleep(0.01)
    return len(item)


def build(storage: Any, go: asyncio.Event) -> Workflow:
    @executor
    async def start(item: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(item)

    @executor
    async def quick(item: str, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(f"{item}: {await ctx.step('price', price, item)}")

    @executor
    async def slow(item: str, ctx: WorkflowContext[int, str]) -> None:
        await go.wait()
        await asyncio.sleep(SLOW)

    return (
        WorkflowBuilder(name="prices", start_executor=start, checkpoint_storage=storage)
        .add_fan_out_edges(start, [quick, slow])
        .build()
    )


async def test_a_handler_that_has_returned_is_announced_while_its_sibling_works(storage: Any) -> None:
    go, returned = asyncio.Event(), list[WorkflowEvent]()
    async for event in build(storage, go).run("kelp", stream=True, run_id="r"):
        if event.type == "executor_returned":
            assert not go.is_set()
            returned.append(event)
            go.set()  # without the event, the sibling would wait for ever
    (event,) = returned
    assert (event.executor_id, event.attempt, event.commit) == ("quick", 1, None)
    summary: HandlerReturn = event.data
    assert (summary.sent, summary.outputs, [step.name for step in summary.steps]) == ((), ("str",), ["price"])


async def test_what_is_announced_is_durable_and_keeps_its_time_when_the_process_dies(storage: Any) -> None:
    go, calls, announced = asyncio.Event(), list[str](), list[WorkflowEvent]()

    @executor
    async def start(item: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(item)

    class Quick(Executor):
        @handler
        async def work(self, item: str, ctx: WorkflowContext[int, str]) -> None:
            calls.append(item)
            await ctx.request_info("fine?", bool, request_id="q")
            await ctx.send_message(await ctx.step("price", price, item))

        @response_handler
        async def decide(self, question: str, fine: bool, ctx: WorkflowContext[int, str]) -> None: ...

    @executor
    async def slow(item: str, ctx: WorkflowContext[int, str]) -> None:
        await go.wait()

    @executor
    async def pay(amount: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"paid {amount}")

    builder = WorkflowBuilder(name="prices", start_executor=start, checkpoint_storage=storage)
    quick = Quick("quick")
    workflow = builder.add_fan_out_edges(start, [quick, slow]).add_edge(quick, pay).build()
    sound = storage._store
    dying = storage._store = CrashingStore(sound)

    async def drive() -> None:
        async for event in workflow.run("kelp", stream=True, run_id="r"):
            if event.type == "executor_returned":
                announced.append(event)
                dying.at = dying.writes + 1  # nothing more is written, so what is stored now is all there is
                go.set()

    with pytest.raises(Crash):
        await drive()
    storage._store = sound
    (told,) = announced
    summary: HandlerReturn = told.data
    assert (summary.sent, summary.outputs, summary.requests) == (("int",), (), ("q",))
    assert (await workflow.run(run_id="r")).get_outputs() == ["paid 4"]
    assert calls == ["kelp"]
    (done,) = [
        e for e in await storage.event_history("r") if (e.type, e.executor_id) == ("executor_completed", "quick")
    ]
    assert told.time is not None
    assert told.time.seconds >= 0.01
    assert (done.time, done.attempt, done.steps) == (told.time, 1, summary.steps)


async def test_each_delivery_and_each_step_has_its_own_time_in_the_history(storage: Any) -> None:
    go = asyncio.Event()
    go.set()
    before = datetime.now(UTC)
    await build(storage, go).run("kelp", run_id="r")
    completed = {e.executor_id: e for e in await storage.event_history("r") if e.type == "executor_completed"}
    quick, slow = completed["quick"].time, completed["slow"].time
    assert quick is not None
    assert slow is not None
    assert 0.01 <= quick.seconds < SLOW <= slow.seconds
    assert before - timedelta(seconds=1) <= quick.start <= quick.end < slow.end


async def test_a_step_that_is_recalled_says_so_and_keeps_its_time(storage: Any) -> None:
    failures = [ConnectionError("once"), ConnectionError("twice")]

    @executor(retry=RetryPolicy(max_attempts=3, initial_interval=0))
    async def buyer(item: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.step("price", price, item)
        if failures:
            raise failures.pop()

    workflow = WorkflowBuilder(name="buying", start_executor=buyer, checkpoint_storage=storage).build()
    await workflow.run("kelp", run_id="r")
    (event,) = [e for e in await storage.event_history("r") if e.type == "executor_completed"]
    (step,) = event.steps
    assert (event.attempt, step.name, step.attempts, step.recalled) == (3, "price", 1, True)
    assert step.time is not None
    assert step.time.seconds >= 0.01


async def test_a_step_that_is_retried_says_how_often_it_was_called(storage: Any) -> None:
    failures = [ConnectionError("once"), ConnectionError("twice")]

    async def flaky() -> None:
        if failures:
            raise failures.pop()

    @executor
    async def buyer(item: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.step(StepOptions("flaky", retry=RetryPolicy(max_attempts=3, initial_interval=0)), flaky)

    workflow = WorkflowBuilder(name="buying", start_executor=buyer, checkpoint_storage=storage).build()
    await workflow.run("kelp", run_id="r")
    (event,) = [e for e in await storage.event_history("r") if e.type == "executor_completed"]
    (step,) = event.steps
    assert (event.attempt, step.attempts, step.recalled) == (1, 3, False)


@pytest.mark.parametrize("end", ["sleeps", "fails"])
async def test_a_handler_that_returns_last_is_announced_if_its_superstep_is_not_committed(
    storage: Any, end: str
) -> None:
    done = asyncio.Event()

    @executor
    async def start(item: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(item)

    @executor
    async def other(item: str, ctx: WorkflowContext[None, str]) -> None:
        done.set()
        if end == "fails":
            raise ValueError("no")
        await ctx.sleep(3600)

    @executor
    async def last(item: str, ctx: WorkflowContext[None, str]) -> None:
        await done.wait()
        await asyncio.sleep(0.02)
        await ctx.yield_output(item)

    builder = WorkflowBuilder(name="ending", start_executor=start, checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, [other, last]).build()
    events: list[WorkflowEvent] = []
    with suppress(HandlerFailed):
        await collect(workflow.run("kelp", stream=True, run_id="r"), events)
    assert events[-1].state == ("FAILED" if end == "fails" else "IN_PROGRESS")
    returned = [event for event in events if event.type == "executor_returned"]
    assert [(event.executor_id, event.data.outputs) for event in returned] == [("last", ("str",))]
    if end == "sleeps":
        assert "executor_returned" not in [event.type for event in await workflow.run(run_id="r")]


async def test_a_handler_call_that_fails_has_its_time_and_attempt_in_the_history(storage: Any) -> None:
    @executor(retry=RetryPolicy(max_attempts=2, initial_interval=0))
    async def fails(item: str) -> None:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    workflow = WorkflowBuilder(name="failing", start_executor=fails, checkpoint_storage=storage).build()
    before = datetime.now(UTC)
    with pytest.raises(HandlerFailed):
        await workflow.run("kelp", run_id="r")
    (event,) = [e for e in await storage.event_history("r") if e.type == "executor_failed"]
    assert event.attempt == 2
    assert event.time is not None
    assert event.time.seconds >= 0.01
    assert before - timedelta(seconds=1) <= event.time.start <= event.time.end
