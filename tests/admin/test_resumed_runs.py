"""A run that rests is running as soon as a driver continues it, and what it asks can be answered by every verb."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from datetime import timedelta
from typing import Any, get_args

import pytest

from stepwell import (
    Executor,
    RunError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.admin import open_requests, respond
from stepwell.model.status_words import Standing
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from stepwell.testing.clock import FakeClock
from tests.admin.test_early_requests import listed, until_listed


class Desk(Executor):
    """Makes a request, and returns."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.request_info("desk?", bool, request_id="desk")

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.yield_output(f"desk {granted}")


class Asker(Executor):
    """Waits for an answer, and then works until it is released."""

    works, reached, released = True, asyncio.Event(), asyncio.Event()

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        answer = await ctx.ask("asker?", bool, request_id="asker")
        Asker.reached.set()
        if Asker.works:
            await Asker.released.wait()
        ctx.yield_output(f"asker {answer}")


class Sleeper(Executor):
    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=1))
        ctx.yield_output("slept")


class Worker(Executor):
    """Works until it is released; fails as long as it is broken."""

    is_broken, reached, released = False, asyncio.Event(), asyncio.Event()

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if Worker.is_broken:
            raise ValueError("broken")
        Worker.reached.set()
        await Worker.released.wait()
        if Worker.is_broken:
            raise ValueError("broken")


@pytest.fixture(autouse=True)
def anew() -> None:
    for kind in (Asker, Worker):
        kind.reached, kind.released = asyncio.Event(), asyncio.Event()
    Asker.works, Worker.is_broken = True, False


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.send_message(text)


def build(storage: Any, *executors: Executor) -> Workflow:
    builder = WorkflowBuilder(name="office", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", list(executors)).build()


async def standings(storage: Any) -> list[str]:
    """Return every word under which the run is listed."""
    return [word for word in get_args(Standing) if await storage.list_runs(standing=word)]


async def test_a_waiting_run_is_running_while_its_driver_applies_an_answer(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage, Asker("asker"))
    await workflow.run("go", run_id="r")
    assert ((await storage.get_run("r")).standing, await standings(storage)) == ("waiting", ["waiting"])
    await workflow.respond("r", "asker", True)
    assert ((await storage.get_run("r")).standing, await standings(storage)) == ("queued", ["queued"])
    running = asyncio.ensure_future(workflow.run(run_id="r"))
    async with asyncio.timeout(20):
        await Asker.reached.wait()
    run = await storage.get_run("r")
    assert (run.status.value, run.standing, await standings(storage)) == (
        "IDLE_WITH_PENDING_REQUESTS",
        "running",
        ["running"],
    )
    assert run.owner.startswith("process ")
    assert run.until is not None
    assert await storage.ready_runs() == []
    Asker.released.set()
    assert (await running).get_outputs() == ["asker True"]
    assert await standings(storage) == ["completed"]
    await storage.close()


async def answer_by_workflow(workflow: Workflow, storage: Any) -> None:
    await workflow.respond("r", "asker", True, by="ann")


async def answer_by_handle(workflow: Workflow, storage: Any) -> None:
    await workflow.attach("r").respond({"asker": True}, by="ann")


async def answer_by_admin(workflow: Workflow, storage: Any) -> None:
    await respond(storage, "r", "asker", True, by="ann")


@pytest.mark.parametrize("answer", [answer_by_workflow, answer_by_handle, answer_by_admin])
@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_what_a_stopped_run_asks_while_it_is_resumed_can_be_answered(
    everywhere: Any, how: str, answer: Any
) -> None:
    storage = everywhere()
    workflow = build(storage, Asker("asker"), Worker("worker"))
    Asker.works, Worker.is_broken = False, how == "failed"
    running = asyncio.ensure_future(workflow.run("go", run_id="r"))
    await stop(workflow, storage, running, how)
    with pytest.raises(RunError, match=f"is {how}"):
        await answer(workflow, storage)
    assert (await listed(storage), await standings(storage)) == ([], [how])

    running = asyncio.ensure_future(workflow.run(run_id="r"))
    async with asyncio.timeout(20):
        await Worker.reached.wait()
    await until_listed(storage)
    run = await storage.get_run("r")
    assert (run.status.value, run.standing, await standings(storage)) == (how.upper(), "running", ["running"])
    assert [request.request_id for request in await open_requests(storage, "r")] == ["asker"]
    await answer(workflow, storage)
    Worker.released.set()
    async with asyncio.timeout(20):
        assert (await running).get_outputs() == ["asker True"]
    await storage.close()


async def stop(workflow: Workflow, storage: Any, running: asyncio.Future[Any], how: str) -> None:
    """Let a run fail, or cancel it."""
    if how == "cancelled":
        await until_listed(storage)
        await workflow.cancel("r")
        assert (await running).get_final_state() == "CANCELLED"
        Worker.reached.clear()
    else:
        with pytest.raises(RunError, match="broken"):
            await running
        Worker.is_broken = False


@pytest.mark.parametrize("beside", [Asker, Sleeper])
@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_an_answer_from_before_a_stop_is_applied_by_the_resume(everywhere: Any, how: str, beside: Any) -> None:
    storage = everywhere()
    workflow = build(storage, Desk("desk"), beside("beside"), Worker("worker"))
    Asker.works, Worker.is_broken = False, False
    running = asyncio.ensure_future(workflow.run("go", run_id="r"))
    async with asyncio.timeout(20):
        await Worker.reached.wait()
        while "desk" not in await listed(storage):  # noqa: ASYNC110 - what another task stores sets no event
            await asyncio.sleep(0.01)
    await workflow.respond("r", "desk", True, by="ann")
    if how == "failed":
        Worker.is_broken = True
        Worker.released.set()
    else:
        await workflow.cancel("r")
    await asyncio.wait([running])
    assert (await storage.get_run("r")).standing == how
    Worker.is_broken = False
    Worker.released.set()
    await workflow.run(run_id="r")
    # The drive that resumes the run leaves nothing to do for another one.
    assert await storage.ready_runs() == []
    assert await listed(storage) == (["asker"] if beside is Asker else [])
    answers = [event.by for event in await storage.event_history("r") if event.type == "request_answered"]
    assert answers == ["ann"]
    with FakeClock() as clock:
        clock(hours=2)
        result = await workflow.run(run_id="r", responses={"asker": True} if beside is Asker else None)
    assert sorted(result.get_outputs()) == sorted(["desk True", "asker True" if beside is Asker else "slept"])
    await storage.close()


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_a_resume_dies_an_answer_from_before_is_applied_once(after: bool) -> None:
    for at in itertools.count(1):
        inner = MemoryStore()
        workflow = build(BuiltInStorage(inner), Desk("desk"), Sleeper("beside"))
        await workflow.run("go", run_id="r")
        await workflow.respond("r", "desk", True)
        await workflow.cancel("r")
        dying = CrashingStore(inner, at=at, after=after)
        with suppress(Crash):
            await build(BuiltInStorage(dying), Desk("desk"), Sleeper("beside")).run(run_id="r")
        with FakeClock() as clock:
            clock(minutes=5)  # the lease of the dead one is over
            await workflow.run(run_id="r")
            assert await BuiltInStorage(inner).ready_runs() == []
            clock(hours=2)
            assert sorted((await workflow.run(run_id="r")).get_outputs()) == ["desk True", "slept"]
        if not dying.is_dead:
            assert at > 3
            return


async def test_a_run_whose_question_is_answered_waits_for_nobody_while_a_sibling_sleeps(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage, Asker("asker"), Sleeper("beside"))
    Asker.works = False
    assert (await workflow.run("go", run_id="r")).get_final_state() == "IDLE_WITH_PENDING_REQUESTS"
    result = await workflow.run(run_id="r", responses={"asker": True})
    run = await storage.get_run("r")
    assert (result.get_final_state(), run.status, run.standing) == ("IN_PROGRESS", "IN_PROGRESS", "sleeping")
    assert (result.get_request_info_events(), await listed(storage)) == ([], [])
    await storage.close()
