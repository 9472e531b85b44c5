"""A run that rests is running as soon as a driver continues it, and what it asks can be answered by every verb."""

from __future__ import annotations

import asyncio
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


class Worker(Executor):
    """Works until it is released; fails as long as it is broken."""

    is_broken, reached, released = False, asyncio.Event(), asyncio.Event()

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if Worker.is_broken:
            raise ValueError("broken")
        Worker.reached.set()
        await Worker.released.wait()


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
