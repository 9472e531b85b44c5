"""Requests of sub-workflows, and questions that wait in memory, are shown and answerable while others work."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.admin import examine, respond
from stepwell.testing import crash_everywhere
from stepwell.workflows import SubWorkflowRequestMessage
from tests.admin import test_late_signals as late
from tests.admin.test_early_requests import Desk, Sibling, Start, listed, until_listed
from tests.conftest import Later

IDLE = WorkflowRunState.IDLE


class Asker(Executor):
    """Waits for the answer in the middle of its handler."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        granted = await ctx.ask(f"{text}?", bool, request_id=f"about {text}")
        await ctx.yield_output(f"{text}? {granted}")


class Looper(Executor):
    """Goes on for a few supersteps, and then until it is released."""

    def __init__(self) -> None:
        super().__init__("looper")
        self.released = asyncio.Event()

    @handler
    async def work(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        await ctx.send_message(1)

    @handler
    async def more(self, n: int, ctx: WorkflowContext[int, str]) -> None:
        if n < 4:
            await ctx.send_message(n + 1)
        else:
            await self.released.wait()
            await ctx.yield_output("looped")


def fan_out(*executors: Executor, storage: Any = None, name: str = "inner") -> Workflow:
    builder = WorkflowBuilder(name=name, start_executor=Start("start"), checkpoint_storage=storage)
    for looper in executors:
        if isinstance(looper, Looper):
            builder.add_edge(looper, looper)
    return builder.add_fan_out_edges("start", list(executors)).build()


def around(inner: Workflow, storage: Any = None, **options: Any) -> Workflow:
    nested = WorkflowExecutor(inner, id=f"around {inner.name}", allow_direct_output=True, **options)
    return WorkflowBuilder(name=f"around {inner.name}", start_executor=nested, checkpoint_storage=storage).build()


async def errors(storage: Any) -> list[Any]:
    return [found async for found in examine(storage) if getattr(found, "severity", "") == "error"]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", [Desk, Asker])
async def test_a_request_inside_is_answered_while_a_sibling_inside_works(
    everywhere: Any, kind: type[Executor], depth: int
) -> None:
    storage, sibling = everywhere(), Sibling("wait")
    inner = fan_out(kind("desk"), sibling)
    for _ in range(depth - 1):
        inner = around(inner)
    handle = around(inner, storage).start("tea", run_id="r")
    await until_listed(storage)
    (pending,) = await storage.pending_requests()
    assert (pending.run_id, pending.request_id, pending.question) == ("r", "about tea", "tea?")
    assert await errors(storage) == []
    await respond(storage, "r", "about tea", True, by="ann")
    (answered,) = await storage.pending_requests()
    assert (answered.answered.by, (await storage.get_run("r")).standing) == ("ann", "running")
    sibling.released.set()
    async with asyncio.timeout(20):
        result = await handle.result()
    assert sorted(result.get_outputs()) == ["tea? True", "worked on tea"]
    assert (await listed(storage), result.get_final_state()) == ([], IDLE)
    assert [e.by async for e in storage.follow("r") if e.type == "request_answered"] == ["ann"]
    await storage.close()


async def test_a_request_inside_is_listed_while_the_inner_run_goes_on(everywhere: Any) -> None:
    storage, looper = everywhere(), Looper()
    handle = around(fan_out(Desk("desk"), looper), storage).start("tea", run_id="r")
    await until_listed(storage)
    assert await listed(storage) == ["about tea"]
    await respond(storage, "r", "about tea", True)
    looper.released.set()
    async with asyncio.timeout(20):
        assert sorted((await handle.result()).get_outputs()) == ["looped", "tea? True"]
    assert await listed(storage) == []
    await storage.close()


async def test_two_inner_runs_that_ask_under_one_id_are_listed_apart(everywhere: Any) -> None:
    storage = everywhere()
    siblings = Sibling("wait"), Sibling("wait")
    inner = [
        WorkflowExecutor(fan_out(Desk("desk"), sibling), id=f"call {n}", allow_direct_output=True)
        for n, sibling in enumerate(siblings)
    ]
    handle = fan_out(*inner, storage=storage, name="outer").start("tea", run_id="r")
    async with asyncio.timeout(20):
        while len(await listed(storage)) < 2:  # noqa: ASYNC110 - what another task stores sets no event
            await asyncio.sleep(0.01)
    first, second = sorted(await listed(storage))
    assert first == "about tea"
    assert second.startswith("about tea@")
    await respond(storage, "r", second, False)
    await respond(storage, "r", first, True)
    for sibling in siblings:
        sibling.released.set()
    async with asyncio.timeout(20):
        outputs = (await handle.result()).get_outputs()
    assert sorted(outputs) == ["tea? False", "tea? True", "worked on tea", "worked on tea"]
    await storage.close()


async def test_a_request_that_an_executor_beside_answers_is_not_listed(everywhere: Any) -> None:
    class Answerer(Executor):
        @handler
        async def answer(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[Any]) -> None:
            await ctx.send_message(request.create_response(True), target_id=request.executor_id)

    storage, sibling = everywhere(), Sibling("wait")
    inner = WorkflowExecutor(fan_out(Desk("desk"), sibling), id="inner", allow_direct_output=True)
    answerer = Answerer("answerer")
    builder = WorkflowBuilder(name="w", start_executor=inner, checkpoint_storage=storage)
    workflow = builder.add_edge(inner, answerer).add_edge(answerer, inner).build()
    handle = workflow.start("tea", run_id="r")
    await asyncio.sleep(0.2)
    assert await listed(storage) == []
    sibling.released.set()
    async with asyncio.timeout(20):
        assert sorted((await handle.result()).get_outputs()) == ["tea? True", "worked on tea"]
    await storage.close()


async def test_an_inner_request_goes_with_a_superstep_that_fails(everywhere: Any) -> None:
    storage = everywhere()
    with pytest.raises(Exception, match="broken"):
        await around(fan_out(Desk("desk"), Sibling("fail")), storage).run("tea", run_id="r")
    assert await listed(storage) == []
    assert await errors(storage) == []
    await storage.close()


@pytest.mark.parametrize("kind", [Desk, Asker])
async def test_inner_requests_survive_a_crash_at_every_write(kind: type[Executor]) -> None:
    workflow = around(fan_out(kind("desk"), Sibling("now")))
    report = await crash_everywhere(workflow, "tea", answer=lambda event: True)
    assert report.crashes > 8


@pytest.mark.parametrize("kind", [Desk, Asker])
@pytest.mark.parametrize("nested", [False, True])
async def test_a_stream_shows_a_request_once_and_as_soon_as_it_can_be_answered(
    everywhere: Any, kind: type[Executor], nested: bool
) -> None:
    storage, sibling = everywhere(), Sibling("wait")
    workflow = fan_out(kind("desk"), sibling, storage=storage)
    if nested:
        workflow = around(workflow, storage)
    shown: list[WorkflowEvent] = []
    stream = workflow.run("tea", run_id="r", stream=True)
    async with asyncio.timeout(20):
        async for event in stream:
            shown.append(event)
            if event.type == "request_info" and not sibling.released.is_set():
                assert (event.request_id, event.data, event.commit) == ("about tea", "tea?", None)
                assert await listed(storage) == ["about tea"]
                sibling.released.set()
    result = await stream
    assert [event.request_id for event in shown if event.type == "request_info"] == ["about tea"]
    (committed,) = result.get_request_info_events()
    assert committed.commit is not None
    await storage.close()


async def test_a_question_that_is_answered_in_memory_is_shown_once_by_a_handle(everywhere: Any) -> None:
    storage, sibling = everywhere(), Sibling("wait")
    workflow = fan_out(Asker("asker"), sibling, storage=storage)
    handle = workflow.start("tea", run_id="r")
    shown: list[str] = []
    async with asyncio.timeout(20):
        async for event in handle.events():
            shown.append(event.type)
            if event.type == "request_info":
                await handle.respond({event.request_id: True})
                sibling.released.set()
    assert shown.count("request_info") == 1
    assert (await handle.result()).get_outputs() == ["tea? True", "worked on tea"]
    await storage.close()


class Doubtful(Executor):
    """Asks with a deadline, withdraws the request, and then sleeps; each in a superstep of its own."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        ctx.request_info(f"{text}?", bool, request_id="about tea", deadline=timedelta(hours=1))
        ctx.request_info("milk?", bool, request_id="about milk")
        ctx.send_message(1)

    @handler
    async def withdraw(self, number: int, ctx: WorkflowContext[list[str], str]) -> None:
        ctx.withdraw("about tea")
        ctx.send_message(["sleep"])

    @handler
    async def sleep(self, words: list[str], ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(3 * 3600)
        ctx.yield_output("slept")

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.yield_output(f"{question} {granted}")


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_request_that_is_withdrawn_inside_is_closed_at_once(everywhere: Any, later: Later, depth: int) -> None:
    storage, doubtful = everywhere(), Doubtful("doubtful")
    inner = WorkflowBuilder(name="inner", start_executor=doubtful).add_edge(doubtful, doubtful).build()
    for _ in range(depth - 1):
        inner = around(inner)
    workflow = around(inner, storage)
    await workflow.run("tea", run_id="r")
    assert await listed(storage) == ["about milk"]
    with pytest.raises(UnknownRequest, match="about tea"):
        await respond(storage, "r", "about tea", True)
    later(minutes=61)
    run = await storage.get_run("r")
    assert (run.standing, await storage.ready_runs()) == ("sleeping", [])  # nothing is overdue
    later(minutes=121)
    done = await workflow.run(run_id="r")
    assert (done.get_outputs(), await listed(storage), await errors(storage)) == (["slept"], ["about milk"], [])
    await storage.close()


@pytest.mark.parametrize("answered", [["desk", "asker"], ["asker", "desk"], ["both"]])
async def test_requests_inside_are_open_while_a_handler_inside_asks(everywhere: Any, answered: list[str]) -> None:
    storage = everywhere()
    workflow = around(around(late.build()), storage)
    await workflow.run("desk asker", run_id="r")
    left = ["asker", "desk"]
    for id in answered:
        assert sorted(await listed(storage)) == left
        for each in ["desk", "asker"] if id == "both" else [id]:
            await workflow.respond("r", each, True)
            left.remove(each)
        result = await workflow.run(run_id="r")
    assert (sorted(result.get_outputs()), result.get_final_state()) == (["asker True", "desk True"], IDLE)
    assert (await listed(storage), await errors(storage), late.CALLS.count("desk")) == ([], [], 1)
    await storage.close()


async def test_an_answer_inside_is_not_lost_when_the_run_there_comes_to_rest(everywhere: Any, later: Later) -> None:
    """It is given while a handler inside sleeps; when that wakes up, another one still waits for its answer."""
    storage = everywhere()
    workflow = around(late.build(), storage)
    await workflow.run("desk asker sleeper", run_id="r")
    await workflow.respond("r", "desk", True)
    later(minutes=61)
    await workflow.run(run_id="r")
    assert await listed(storage) == ["asker"]
    await workflow.respond("r", "asker", False)
    done = await workflow.run(run_id="r")
    assert (sorted(done.get_outputs()), await listed(storage)) == (["asker False", "desk True", "slept"], [])
    await storage.close()


@pytest.mark.parametrize("order", [["desk", "asker"], ["asker", "desk"]])
@pytest.mark.parametrize("message", ["desk asker", "desk asker sleeper"])
async def test_wherever_a_process_dies_every_answer_inside_is_used_once(message: str, order: list[str]) -> None:
    def answer(event: Any) -> Any:
        return event.request_id == order[0]

    report = await crash_everywhere(around(late.build()), message, answer=answer)
    assert report.crashes > 10
