"""The inbox is true: what is listed can be answered, and what cannot be answered is not listed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    RetryPolicy,
    RunError,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.admin import Keep, prune, respond
from stepwell.testing import FakeClock, crash_everywhere

WAITING, IDLE = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, WorkflowRunState.IDLE
DAY = timedelta(days=1)
A_DAY = Keep(age=DAY, by_status={"FAILED": Keep(age=DAY)})


@dataclass
class Refund:
    order: int
    reason: str


class Desk(Executor):
    """Asks about a refund; a second message fails as long as the desk is broken."""

    is_broken = True

    @handler
    async def ask(self, order: int, ctx: WorkflowContext[None, str]) -> None:
        if order < 0 and self.is_broken:
            raise ValueError("not an order")
        if order > 0:
            await ctx.request_info(Refund(order, "torn"), bool, request_id=f"refund {order}")

    @response_handler
    async def pay(self, refund: Refund, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{refund.order}: {granted}")


def build(storage: Any, start: Any = None) -> Workflow:
    start = Desk("desk") if start is None else start
    return WorkflowBuilder(name="refunds", start_executor=start, checkpoint_storage=storage).build()


async def listed(storage: Any) -> list[str]:
    return [request.request_id for request in await storage.pending_requests()]


async def stop(workflow: Workflow, how: str) -> None:
    if how == "cancelled":
        await workflow.cancel("r", by="ada")
        return
    await workflow.attach("r").send(-1)
    with pytest.raises(RunError, match="not an order"):
        await workflow.run(run_id="r")


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_requests_of_a_stopped_run_are_gone_until_it_is_resumed(everywhere: Any, how: str) -> None:
    storage = everywhere()
    workflow = build(storage)
    with FakeClock() as pass_time:
        await workflow.run(1, run_id="r")
        assert await listed(storage) == ["refund 1"]
        await stop(workflow, how)
        assert (await storage.get_run("r")).standing == how
        assert await listed(storage) == []
        with pytest.raises(UnknownRequest, match="come back when the run is resumed"):
            await storage.get_request("refund 1")
        answers: list[Any] = [
            lambda: respond(storage, "r", "refund 1", True),
            lambda: workflow.respond("r", "refund 1", True),
            lambda: workflow.attach("r").respond({"refund 1": True}),
        ]
        for answer in answers:
            with pytest.raises(RunError, match=f"run 'r' is {how}"):
                await answer()
        assert await storage._store.pending_signals("r") == []
        pass_time(days=2)
        assert (await prune(storage, A_DAY, dry_run=True)).runs == ("r",)

        repaired = Desk("desk")
        repaired.is_broken = False
        waiting = await build(storage, repaired).run(run_id="r")
        assert waiting.get_final_state() is WAITING
        assert await listed(storage) == ["refund 1"]
        assert (await storage.get_request("refund 1")).run_id == "r"
        pass_time(days=2)
        assert (await prune(storage, A_DAY, dry_run=True)).runs == ()
        await respond(storage, "r", "refund 1", True)
        assert (await build(storage, repaired).run(run_id="r")).get_outputs() == ["1: True"]
    await storage.close()


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class Impatient(Executor):
    """Asks, and goes on without the answer when its question is listed."""

    def __init__(self, storage: Any, released: asyncio.Event) -> None:
        super().__init__("impatient")
        self.storage, self.released = storage, released

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        asking = asyncio.ensure_future(ctx.ask(f"{text}?", bool, request_id="q"))
        while not await listed(self.storage):  # noqa: ASYNC110 - what another task stores sets no event
            await asyncio.sleep(0.01)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        self.released.set()


class Sibling(Executor):
    """Works as long as the other asks: if nobody else did, the run would be parked."""

    def __init__(self, released: asyncio.Event) -> None:
        super().__init__("sibling")
        self.released = released

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await self.released.wait()
        await ctx.yield_output(text)


async def test_a_question_of_a_finished_run_is_gone(everywhere: Any) -> None:
    storage, released = everywhere(), asyncio.Event()
    builder = WorkflowBuilder(name="impatient", start_executor=Start("start"), checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges("start", [Impatient(storage, released), Sibling(released)]).build()
    with FakeClock() as pass_time:
        async with asyncio.timeout(20):
            done = await workflow.run("tea", run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["tea"], IDLE)
        assert await listed(storage) == []
        calls: list[Any] = [
            lambda: respond(storage, "r", "q", True),
            lambda: workflow.respond("r", "q", True),
            lambda: storage.get_request("q"),
        ]
        for call in calls:
            with pytest.raises(UnknownRequest):
                await call()
        pass_time(days=2)
        assert (await prune(storage, A_DAY)).runs == ("r",)
    await storage.close()


class Flaky(Desk):
    """Asks, and fails after it in its first attempt."""

    def __init__(self, storage: Any) -> None:
        super().__init__("desk", retry=RetryPolicy(max_attempts=2, initial_interval=0))
        self.storage, self.seen = storage, list[list[str]]()

    @handler
    async def ask(self, order: int, ctx: WorkflowContext[None, str]) -> None:
        self.seen.append(await listed(self.storage))
        await ctx.request_info(Refund(order, "torn"), bool, request_id=f"attempt {len(self.seen)}")
        if len(self.seen) == 1:
            raise ConnectionError("once")


async def test_a_request_of_an_attempt_that_failed_never_appears(everywhere: Any) -> None:
    storage = everywhere()
    desk = Flaky(storage)
    waiting = await build(storage, desk).run(1, run_id="r")
    assert [event.request_id for event in waiting.get_request_info_events()] == ["attempt 2"]
    assert (desk.seen, await listed(storage)) == ([[], []], ["attempt 2"])
    with pytest.raises(UnknownRequest):
        await respond(storage, "r", "attempt 1", True)
    await storage.close()


async def test_the_list_has_questions_and_payloads_without_reading_a_run(everywhere: Any) -> None:
    storage = everywhere()
    await build(storage).run(1, run_id="r")
    real, calls = storage._store.inner, list[str]()

    class Counted:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(real, name)

    storage._store.inner = Counted()
    (pending,) = await storage.pending_requests()
    found = await storage.get_request("refund 1")
    storage._store.inner = real
    assert set(calls).isdisjoint({"open", "read", "history", "run", "runs", "checkpoints", "locate"})
    assert "requests" in calls
    assert pending == found
    assert found.data["v"] == {"order": 1, "reason": "torn"}
    assert "torn" in found.question
    assert "\n" not in found.question
    await storage.close()


class Committee(Executor):
    """Asks two, and takes one request back in the next superstep."""

    @handler
    async def ask(self, names: list[str], ctx: WorkflowContext[str, str]) -> None:
        for name in names:
            await ctx.request_info(f"{name}?", bool, request_id=name)
        await ctx.send_message(names[-1])

    @handler
    async def withdraw(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.withdraw(name)
        await ctx.yield_output(f"not {name}")

    @response_handler
    async def decide(self, question: str, fine: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{question} {fine}")


async def test_a_request_is_withdrawn_wherever_a_process_dies() -> None:
    committee = Committee("committee")
    workflow = WorkflowBuilder(start_executor=committee).add_edge(committee, committee).build()
    waiting = await workflow.run(["ann", "bo"])
    assert [event.request_id for event in waiting.get_request_info_events()] == ["ann"]
    report = await crash_everywhere(workflow, ["ann", "bo"], answer=lambda event: event.request_id == "ann")
    assert report.crashes > 4
