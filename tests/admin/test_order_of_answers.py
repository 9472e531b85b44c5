"""The first response that is stored counts, whatever the clocks of those who answer and of the driver say."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    RequestError,
    RequestExpired,
    ResponseRejected,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.admin import respond
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.signal import ReceivedResponse
from stepwell.storage import clock
from stepwell.storage.signals import answer_key, write_signal
from stepwell.storage.store_archive import StoreArchive
from stepwell.testing import crash_everywhere
from tests.admin.test_early_requests_inside import around
from tests.conftest import Later

HOUR = timedelta(hours=1)
SHORT = timedelta(seconds=1.5)


class Start(Executor):
    """Passes a message on to the executors that it names."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        for name in text.split():
            await ctx.send_message(text, target_id=name)


class Asker(Executor):
    """Waits for an answer that has no default; told that none came, it sleeps if it is to."""

    def __init__(self, id: str, deadline: timedelta, sleep: timedelta | None = None) -> None:
        super().__init__(id)
        self.deadline, self.sleep = deadline, sleep
        self.calls = 0

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        self.calls += 1
        try:
            answer = await ctx.ask("asker?", bool, request_id="asker", deadline=self.deadline)
        except RequestExpired:
            if self.sleep is None:
                raise
            await ctx.sleep(self.sleep)
            answer = None
        await ctx.yield_output(f"asker {answer}")


class Desk(Executor):
    """Makes a request without a default, and returns."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info("desk?", bool, request_id="desk", deadline=HOUR)

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"desk {granted}")


class Worker(Executor):
    """Works until it is released, and then sleeps if it is to."""

    def __init__(self, sleep: timedelta | None = None) -> None:
        super().__init__("worker")
        self.sleep, self.released = sleep, asyncio.Event()

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await self.released.wait()
        if self.sleep is not None:
            await ctx.sleep(self.sleep)
        await ctx.yield_output("worked")


def build(storage: Any, *executors: Executor) -> Workflow:
    builder = WorkflowBuilder(name="office", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", list(executors)).build()


async def until_listed(storage: Any, *ids: str) -> None:
    async with asyncio.timeout(20):
        while sorted(r.request_id for r in await storage.pending_requests()) != sorted(ids):  # noqa: ASYNC110 - what another task stores sets no event
            await asyncio.sleep(0.01)


async def answer_unseen(storage: Any, request_id: str, value: Any) -> None:
    """Store an answer as a program elsewhere does: the driver hears of it at its next look."""
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    request = (await archive.look("r")).log.asked[request_id]
    answer = ReceivedResponse(request_id, archive.pack(value, "$"), by="ann", at=clock.stamp())
    assert await storage._store.send("r", answer_key(0, request), write_signal(answer), fence=None)


async def test_an_answer_that_the_driver_has_not_seen_at_the_deadline_counts(everywhere: Any) -> None:
    storage, worker = everywhere(), Worker()
    handle = build(storage, Asker("asker", SHORT), worker).start("asker worker", run_id="r")
    await until_listed(storage, "asker")
    await answer_unseen(storage, "asker", True)
    time.sleep(2)
    worker.released.set()
    async with asyncio.timeout(20):
        assert sorted((await handle.result()).get_outputs()) == ["asker True", "worked"]
    await storage.close()


async def test_an_answer_counts_if_a_sibling_falls_asleep_after_the_deadline(everywhere: Any, later: Later) -> None:
    storage, worker = everywhere(), Worker(HOUR)
    workflow = build(storage, Desk("desk"), worker)
    running = asyncio.ensure_future(workflow.run("desk worker", run_id="r"))
    await until_listed(storage, "desk")
    await workflow.respond("r", "desk", True, by="ann")
    later(minutes=61)
    worker.released.set()
    await running
    assert (await storage.get_run("r")).standing == "queued"
    await workflow.run(run_id="r")
    later(minutes=61)
    done = await workflow.run(run_id="r")
    assert sorted(done.get_outputs()) == ["desk True", "worked"]
    assert [e.by async for e in storage.follow("r") if e.type == "request_answered"] == ["ann"]
    await storage.close()


@pytest.mark.parametrize("name", ["asker", "desk"])
async def test_the_same_answer_given_again_after_the_deadline_is_no_error(
    everywhere: Any, later: Later, name: str
) -> None:
    storage = everywhere()
    workflow = build(storage, Asker("asker", HOUR), Desk("desk"))
    await workflow.run(name, run_id="r")
    await workflow.respond("r", name, True)
    later(minutes=61)
    await workflow.respond("r", name, True)
    await workflow.attach("r").respond({name: True})
    with pytest.raises(ResponseRejected, match="answered already"):
        await workflow.respond("r", name, False)
    with pytest.raises(ResponseRejected, match="answered already"):
        await respond(storage, "r", name, False)
    with pytest.raises(ResponseRejected, match="answered already"):
        await workflow.run(run_id="r", responses={name: False})
    done = await workflow.run(run_id="r", responses={name: True})
    assert done.get_outputs() == [f"{name} True"]
    await storage.close()


async def test_a_question_that_has_expired_is_closed_although_its_handler_goes_on(
    everywhere: Any, later: Later
) -> None:
    storage, asker = everywhere(), Asker("asker", HOUR, sleep=3 * HOUR)
    workflow = build(storage, asker)
    await workflow.run("asker", run_id="r")
    assert (await storage.get_run("r")).standing == "waiting"
    later(minutes=61)
    await workflow.run(run_id="r")
    run = await storage.get_run("r")
    assert (run.standing, await storage.pending_requests()) == ("sleeping", [])
    assert await storage.ready_runs() == []
    later(minutes=-60)  # the clock of the next one is behind
    with pytest.raises(RequestError):
        await workflow.respond("r", "asker", True)
    later(minutes=60 + 181)
    done = await workflow.run(run_id="r")
    assert (done.get_outputs(), done.get_final_state()) == (["asker None"], WorkflowRunState.IDLE)
    await storage.close()


async def test_an_expired_question_stays_so_wherever_a_process_dies() -> None:
    workflow = build(None, Asker("asker", timedelta(0), sleep=timedelta(seconds=0.05)))
    report = await crash_everywhere(workflow, "asker")
    assert report.crashes > 5


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_an_answer_is_on_record_once_although_the_clock_of_its_driver_is_behind(
    everywhere: Any, later: Later, depth: int
) -> None:
    storage = everywhere()
    workflow = build(None if depth else storage, Asker("asker", HOUR), Worker(HOUR))
    for level in range(depth):
        workflow = around(workflow, storage if level == depth - 1 else None)
    await workflow.run("asker", run_id="r")
    await workflow.respond("r", "asker", True, by="ann")
    later(minutes=-10)
    done = await workflow.run(run_id="r")
    assert (done.get_outputs(), done.get_final_state()) == (["asker True"], WorkflowRunState.IDLE)
    assert [e.by async for e in storage.follow("r") if e.type == "request_answered"] == ["ann"]
    assert await storage.pending_requests() == []
    await storage.close()
