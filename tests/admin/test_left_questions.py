"""A handler that returns without the answer to a question of its own takes the question back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    RequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    handler,
)
from stepwell.model.checkpoint import FullHistory, LatestOnly, Retention
from stepwell.testing import crash_everywhere
from tests.conftest import Later

HOUR = timedelta(hours=1)


class Start(Executor):
    """Passes a message on to the executors that it names."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        for name in text.split():
            await ctx.send_message(text, target_id=name)


class Hasty(Executor):
    """Asks, waits for no answer, and returns when the test lets it."""

    may_cancel = asyncio.Event()
    has_cancelled = asyncio.Event()
    may_return = asyncio.Event()
    cancels = True

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        asking = asyncio.ensure_future(ctx.ask("hasty?", bool, request_id="hasty"))
        await ctx.step("think", Hasty.may_cancel.wait)
        if Hasty.cancels:
            asking.cancel()
        Hasty.has_cancelled.set()
        await ctx.step("linger", Hasty.may_return.wait)
        await ctx.yield_output("hasty")


class First(Executor):
    """Asks two people, and returns with the answer of one of them."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        asking = asyncio.ensure_future(ctx.ask("ann?", str, request_id="ann"))
        answer = await ctx.ask("bo?", str, request_id="bo")
        asking.cancel()
        await ctx.yield_output(answer)


class Sleeper(Executor):
    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(HOUR)
        await ctx.yield_output("sleeper")


class Worker(Executor):
    """Works until the test lets it return."""

    may_return = asyncio.Event()

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await Worker.may_return.wait()
        await ctx.yield_output("worker")


@pytest.fixture(autouse=True)
def events() -> None:
    Hasty.may_cancel, Hasty.has_cancelled, Hasty.may_return = asyncio.Event(), asyncio.Event(), asyncio.Event()
    Hasty.cancels, Worker.may_return = True, asyncio.Event()


def build(storage: Any = None) -> Workflow:
    others = [Hasty("hasty"), First("first"), Sleeper("sleeper"), Worker("worker")]
    builder = WorkflowBuilder(name="office", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", others).build()


def nested(storage: Any = None) -> Workflow:
    inside = WorkflowExecutor(build(), "inside", allow_direct_output=True)
    return WorkflowBuilder(name="house", start_executor=inside, checkpoint_storage=storage).build()


async def listed(storage: Any) -> list[str]:
    return sorted(request.request_id for request in await storage.pending_requests())


async def until(storage: Any, expected: list[str]) -> None:
    for _ in range(1000):
        if await listed(storage) == expected:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the list does not become {expected}")


@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("make", [build, nested])
async def test_it_is_closed_when_the_outcome_is_stored_although_a_sibling_works(
    everywhere: Any, make: Any, cancels: bool
) -> None:
    Hasty.cancels = cancels
    storage = everywhere()
    workflow = make(storage)
    run = asyncio.create_task(workflow.run("hasty worker", run_id="r"))
    await until(storage, ["hasty"])
    Hasty.may_cancel.set()
    Hasty.may_return.set()
    await until(storage, [])
    with pytest.raises(RequestError, match="no open request 'hasty'"):
        await workflow.respond("r", "hasty", True, by="ann")
    Worker.may_return.set()
    assert sorted((await run).get_outputs()) == ["hasty", "worker"]
    assert [info.standing for info in await storage.list_runs()] == ["completed"]
    assert [task for task in asyncio.all_tasks() if "ask" in repr(task.get_coro())] == []
    await storage.close()


@pytest.mark.parametrize("sibling", ["", "worker", "sleeper"])
async def test_an_answer_that_came_before_is_consumed_with_a_warning(
    everywhere: Any, later: Later, sibling: str
) -> None:
    storage = everywhere()
    workflow = build(storage)
    run = asyncio.create_task(workflow.run(f"hasty {sibling}", run_id="r"))
    await until(storage, ["hasty"])
    Hasty.may_cancel.set()
    await Hasty.has_cancelled.wait()
    await workflow.respond("r", "hasty", True, by="ann")
    Hasty.may_return.set()
    Worker.may_return.set()
    result = await run
    if sibling == "sleeper":
        assert (await listed(storage), (await storage.get_run("r")).standing) == ([], "sleeping")
        later(minutes=61)
        result = await workflow.run(run_id="r")
    assert (await storage.get_run("r")).standing == "completed"
    assert [await storage._store.pending_signals("r"), await storage.ready_runs()] == [[], []]
    warnings = [str(event.data) async for event in storage.follow("r") if event.type == "warning"]
    assert warnings == ["the response of 'ann' to 'hasty' is not used: nobody waits for it any more"]
    assert "hasty" in result.get_outputs()
    await storage.close()


@pytest.mark.parametrize("make", [build, nested])
async def test_one_that_an_earlier_commit_has_shown_is_withdrawn(everywhere: Any, later: Later, make: Any) -> None:
    storage = everywhere()
    workflow = make(storage)
    await workflow.run("first sleeper", run_id="r")
    assert await listed(storage) == ["ann", "bo"]
    await workflow.respond("r", "bo", "yes")
    result = await workflow.run(run_id="r")
    assert (await storage.get_run("r")).standing == "sleeping"
    if make is build:  # an answer to a run inside is applied when that comes to rest
        assert (await listed(storage), result.get_request_info_events()) == ([], [])
        with pytest.raises(RequestError, match="no open request 'ann'"):
            await workflow.respond("r", "ann", "late")
    later(minutes=61)
    assert sorted((await workflow.run(run_id="r")).get_outputs()) == ["sleeper", "yes"]
    history = [(event.type, event.data) async for event in storage.follow("r")]
    assert history.count(("request_withdrawn", "ann")) == 1
    assert (await listed(storage), (await storage.get_run("r")).standing) == ([], "completed")
    await storage.close()


@pytest.mark.parametrize("make", [build, nested])
@pytest.mark.parametrize("retention", [FullHistory, LatestOnly])
async def test_wherever_a_process_dies_one_answer_is_used_and_the_other_question_ends(
    make: Any, retention: Retention
) -> None:
    def answer(event: WorkflowEvent) -> str:
        return f"yes, {event.data}"

    report = await crash_everywhere(make(), "first sleeper", answer=answer, retention=retention)
    assert report.crashes > 10
