"""Questions of handlers inside a sub-workflow, beside those of the run around it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from stepwell import (
    Executor,
    RequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.storage import clock
from stepwell.storage.store_archive import StoreArchive
from stepwell.testing import crash_everywhere
from tests.admin import test_late_signals as late
from tests.admin.test_early_requests import Sibling, listed, until_listed
from tests.conftest import Later


class Inner(Executor):
    """Waits for an answer in its fourth superstep."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[int]) -> None:
        ctx.send_message(1)

    @handler
    async def ask(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        if number < 3:
            ctx.send_message(number + 1)
        else:
            ctx.yield_output(f"inner {await ctx.ask('inner?', str, request_id='inner')}")


class Outer(Executor):
    """Asks, and after the response waits for another answer, in the place of the same name."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.send_message(text)
        ctx.request_info("ready?", bool, request_id="ready")

    @response_handler
    async def ask(self, question: str, ready: bool, ctx: WorkflowContext[str, str]) -> None:
        ctx.yield_output(f"outer {await ctx.ask('outer?', str, request_id='outer')}")


def build(storage: Any = None) -> Workflow:
    inner = Inner("inner")
    nested = WorkflowBuilder(name="nested", start_executor=inner).add_edge(inner, inner).build()
    around = WorkflowExecutor(nested, "around", allow_direct_output=True)
    builder = WorkflowBuilder(name="outer", start_executor=Outer("outer"), checkpoint_storage=storage)
    return builder.add_edge("outer", around).build()


async def test_a_question_is_not_taken_for_one_of_a_sub_workflow_in_the_same_place(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run("go", run_id="r")
    assert sorted(await listed(storage)) == ["inner", "ready"]
    await workflow.run(run_id="r", responses={"ready": True})
    assert sorted(await listed(storage)) == ["inner", "outer"]
    head = await StoreArchive(storage._store, DEFAULT_CODEC).head("r")
    assert head is not None
    assert [request.waiting for request in head.requests.values()] == ["3.0/ask/0", "3.0/ask/0"]
    await workflow.run(run_id="r", responses={"outer": "yes"})
    done = await workflow.run(run_id="r", responses={"inner": "no"})
    assert sorted(done.get_outputs()) == ["inner no", "outer yes"]
    await storage.close()


async def test_wherever_a_process_dies_each_question_gets_its_own_answer() -> None:
    report = await crash_everywhere(build(), "go", answer=lambda e: True if e.request_id == "ready" else e.request_id)
    assert report.crashes > 10


class Hurried(Executor):
    """Waits for an answer that is due at once."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        at_once = timedelta(milliseconds=1)
        ctx.yield_output(f"hurried {await ctx.ask('hurried?', bool, request_id='h', deadline=at_once, default=False)}")


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.send_message(text)


async def test_a_deadline_inside_wakes_nobody_who_cannot_act_on_it(everywhere: Any) -> None:
    storage, sibling = everywhere(), Sibling("wait")
    builder = WorkflowBuilder(name="inner", start_executor=Start("start"))
    nested = builder.add_fan_out_edges("start", [Hurried("hurried"), sibling]).build()
    around = WorkflowExecutor(nested, "around", allow_direct_output=True)
    workflow = WorkflowBuilder(name="outer", start_executor=around, checkpoint_storage=storage).build()
    running = asyncio.ensure_future(workflow.run("tea", run_id="r"))
    await until_listed(storage)
    looks = count(0)
    clock.set_source(lambda: time.time() + 0 * next(looks))
    await asyncio.sleep(1)
    clock.set_source()
    assert next(looks) < 100
    sibling.released.set()
    result = await running
    while result.get_final_state() != "IDLE":
        result = await workflow.run(run_id="r")
    assert sorted(result.get_outputs()) == ["hurried False", "worked on tea"]
    await storage.close()


async def test_an_answered_request_inside_is_not_listed_again_while_the_run_around_waits(everywhere: Any) -> None:
    storage = everywhere()
    inner = WorkflowExecutor(late.build(), "around", allow_direct_output=True)
    builder = WorkflowBuilder(name="outer", start_executor=Outer("outer"), checkpoint_storage=storage)
    workflow = builder.add_edge("outer", inner).build()
    await workflow.run("desk asker", run_id="r")
    assert sorted(await listed(storage)) == ["asker", "desk", "ready"]
    await workflow.run(run_id="r", responses={"ready": True, "desk": True})
    assert sorted(await listed(storage)) == ["asker", "outer"]
    with pytest.raises(RequestError):
        await workflow.respond("r", "desk", False)
    await workflow.run(run_id="r", responses={"outer": "yes"})
    done = await workflow.run(run_id="r", responses={"asker": True})
    assert sorted(done.get_outputs()) == ["asker True", "desk True", "outer yes"]
    assert await listed(storage) == []
    await storage.close()


class Sleeper(Executor):
    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=3))
        ctx.yield_output("slept long")


async def test_an_answer_that_is_held_keeps_its_request_off_the_list(everywhere: Any, later: Later) -> None:
    storage = everywhere()
    inner = WorkflowExecutor(late.build(), "around", allow_direct_output=True)
    builder = WorkflowBuilder(name="outer", start_executor=Start("start"), checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges("start", [inner, Sleeper("sleeper")]).build()
    await workflow.run("asker sleeper", run_id="r")
    assert await listed(storage) == ["asker"]
    await workflow.respond("r", "asker", True)
    await workflow.run(run_id="r")
    assert await listed(storage) == []
    later(minutes=61)  # the run inside wakes up, and waits for that very answer
    await workflow.run(run_id="r")
    assert await listed(storage) == []
    with pytest.raises(RequestError):
        await workflow.respond("r", "asker", False)
    later(minutes=121)
    result = await workflow.run(run_id="r")
    assert sorted(result.get_outputs()) == ["asker True", "slept", "slept long"]
    assert (await storage.get_run("r")).standing == "completed"
    await storage.close()


class Pair(Executor):
    """Asks two people; the answer of the first lets it sleep."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        for name in ("ann", "bo"):
            ctx.request_info(name, bool, request_id=name)

    @response_handler
    async def decide(self, name: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        if name == "ann":
            await ctx.sleep(timedelta(hours=1))
        ctx.yield_output(name)


@pytest.mark.parametrize("answered", [["ann"], ["ann", "bo"]])
async def test_what_a_sleeping_run_inside_has_asked_before_is_listed_once_until_it_is_answered(
    everywhere: Any, later: Later, answered: list[str]
) -> None:
    storage = everywhere()
    nested = WorkflowBuilder(name="nested", start_executor=Pair("pair")).build()
    around = WorkflowExecutor(nested, "around", allow_direct_output=True)
    workflow = WorkflowBuilder(name="outer", start_executor=around, checkpoint_storage=storage).build()
    await workflow.run("go", run_id="r")
    await workflow.run(run_id="r", responses=dict.fromkeys(answered, True))
    assert (await storage.get_run("r")).standing == "sleeping"
    assert await listed(storage) == [name for name in ("ann", "bo") if name not in answered]
    later(minutes=61)
    result = await workflow.run(run_id="r")
    if answered == ["ann"]:
        assert await listed(storage) == ["bo"]
        result = await workflow.run(run_id="r", responses={"bo": True})
    assert {"ann", "bo"} >= set(result.get_outputs())
    assert ((await storage.get_run("r")).standing, await listed(storage)) == ("completed", [])
    await storage.close()


class Couple(Executor):
    """Asks two people; the answer of the first lets it sleep, and that of the second leads to something."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[str]) -> None:
        for name in ("ann", "bo"):
            ctx.request_info(name, bool, request_id=name)

    @response_handler
    async def decide(self, name: str, granted: bool, ctx: WorkflowContext[str]) -> None:
        if name == "ann":
            await ctx.sleep(timedelta(hours=1))
        else:
            ctx.send_message(name)


class Dozer(Executor):
    """Sleeps for some hours; before, it asks whether it may, if it is to."""

    def __init__(self, id: str, hours: int) -> None:
        super().__init__(id)
        self.hours = hours

    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if text == "go":
            ctx.request_info("ready?", bool, request_id="ready")
        else:
            await ctx.sleep(timedelta(hours=self.hours))

    @response_handler
    async def decide(self, question: str, ready: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=self.hours))


@pytest.mark.parametrize("answered_after", [61, 122])
async def test_what_two_answers_to_a_run_inside_find_is_listed_once(
    everywhere: Any, later: Later, answered_after: int
) -> None:
    storage = everywhere()
    builder = WorkflowBuilder(name="nested", start_executor=Couple("couple"))
    nested = builder.add_fan_out_edges("couple", [late.Desk("desk"), Dozer("inside", 1)]).build()
    around = WorkflowExecutor(nested, "around", allow_direct_output=True)
    builder = WorkflowBuilder(name="outer", start_executor=Start("start"), checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges("start", [around, Dozer("beside", 3)]).build()
    await workflow.run("go", run_id="r")
    assert sorted(await listed(storage)) == ["ann", "bo", "ready"]
    await workflow.run(run_id="r", responses={"ann": True, "bo": True, "ready": True})
    assert await listed(storage) == []
    # First while the run inside sleeps on, driven by two responses; then as part of what the second one led to,
    # while the run around sleeps on.
    for minutes in (61, 122):
        later(minutes=61)
        await workflow.run(run_id="r")
        if minutes <= answered_after:
            assert await listed(storage) == ["desk"]
        if minutes == answered_after:
            await workflow.respond("r", "desk", True)
            with pytest.raises(RequestError):
                await workflow.respond("r", "desk", False)
    later(minutes=61)
    result = await workflow.run(run_id="r")
    assert [event.data for event in result if event.type == "warning"] == []
    assert result.get_outputs() == ["desk True"]
    assert ((await storage.get_run("r")).standing, await listed(storage)) == ("completed", [])
    await storage.close()


async def test_runs_inside_that_ask_under_one_id_are_both_listed_beside_one_who_sleeps(
    everywhere: Any, later: Later
) -> None:
    storage = everywhere()
    insides = [WorkflowBuilder(name=f"nested {id}", start_executor=late.Desk("desk")).build() for id in "ab"]
    around = [WorkflowExecutor(inside, inside.name, allow_direct_output=True) for inside in insides]
    builder = WorkflowBuilder(name="outer", start_executor=Start("start"), checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges("start", [*around, Dozer("beside", 1)]).build()
    await workflow.run("tea", run_id="r")
    requests = await storage.pending_requests()
    assert sorted(request.executor_id for request in requests) == ["nested a", "nested b"]
    for request in requests:
        await workflow.respond("r", request.request_id, request.executor_id == "nested a")
    await workflow.run(run_id="r")
    assert await listed(storage) == []
    later(minutes=61)
    result = await workflow.run(run_id="r")
    assert [event.data for event in result if event.type == "warning"] == []
    assert sorted(result.get_outputs()) == ["desk False", "desk True"]
    await storage.close()
