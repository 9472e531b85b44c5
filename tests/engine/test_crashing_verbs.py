"""A service that dies at any write of its verbs, or of the drives that follow, is started again and loses nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    ResponseRejected,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    admin,
    handler,
    response_handler,
)
from stepwell.testing import Crash, CrashingStore


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class Desk(Executor):
    """Makes a request and returns: it can be answered while the asker still waits."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"{text}?", bool)

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{question} {granted}")


class Asker(Executor):
    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        count = await ctx.step("count", len, text)
        await ctx.yield_output(f"{count} {await ctx.ask(f'really {text}?', bool)}")


class Fragile(Executor):
    """Fails until somebody has retried its run."""

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if ctx.run_id not in RETRIED:
            raise ValueError("broken")
        await ctx.yield_output(text)


RETRIED: set[str] = set()
OPEN = ("running", "queued", "stalled")


class Service:
    """What a client does, each call as often as it likes."""

    def __init__(self, storage: Any, run_id: str) -> None:
        builder = WorkflowBuilder(name="service", start_executor=Start("start"), checkpoint_storage=storage)
        self.workflow: Workflow = builder.add_fan_out_edges("start", [Desk("desk"), Asker("asker")]).build()
        fragile = WorkflowBuilder(name="fragile", start_executor=Fragile("fragile"), checkpoint_storage=storage)
        self.fragile: Workflow = fragile.build()
        self.storage, self.run_id = storage, run_id

    async def standing(self) -> str:
        return str((await self.storage.get_run(self.run_id)).standing)

    async def drive(self, workflow: Workflow | None = None) -> None:
        """Drive the run as long as it has something to do; it must come to rest."""
        for _ in range(20):
            if await self.standing() not in OPEN:
                return
            await (workflow or self.workflow).run(run_id=self.run_id)
        raise AssertionError(f"run {self.run_id!r} has something to do for ever")

    async def respond(self, question: str) -> None:
        for pending in await self.storage.pending_requests():
            if pending.run_id == self.run_id and pending.question == question:
                with suppress(ResponseRejected):  # answered before the crash, and not listed as such yet
                    await self.workflow.respond(self.run_id, pending.request_id, True, by="ann")


async def submit_and_respond(service: Service) -> Any:
    await service.workflow.submit("tea", run_id=service.run_id, tags={"team": "red"}, by="ann")
    await service.drive()
    for question in ("tea?", "really tea?"):
        await service.respond(question)
        await service.drive()
    result = await service.workflow.result(service.run_id)
    run = await service.storage.get_run(service.run_id)
    answers = [e async for e in service.storage.follow(service.run_id, until_rest=True) if e.type == "request_answered"]
    return sorted(result.get_outputs()), run.standing, run.tags, [answer.by for answer in answers]


async def cancel_and_retry(service: Service) -> Any:
    await service.workflow.submit("tea", run_id=service.run_id)
    await service.drive()
    if await service.standing() == "waiting":
        await service.workflow.cancel(service.run_id, reason="enough", by="bo")
        await service.drive()
    if await service.standing() == "cancelled":
        await admin.retry(service.storage, [service.run_id], status="cancelled", by="bo")
        await service.drive()
    for question in ("really tea?", "tea?"):
        await service.respond(question)
        await service.drive()
    return sorted((await service.workflow.result(service.run_id)).get_outputs()), await service.standing()


async def fail_and_retry(service: Service) -> Any:
    await service.fragile.submit("tea", run_id=service.run_id)
    with suppress(HandlerFailed):
        await service.drive(service.fragile)
    RETRIED.add(service.run_id)
    if await service.standing() == "failed":
        await admin.retry(service.storage, [service.run_id], by="bo")
    await service.drive(service.fragile)
    return (await service.fragile.result(service.run_id)).get_outputs(), await service.standing()


@pytest.mark.parametrize("script", [submit_and_respond, cancel_and_retry, fail_and_retry])
async def test_wherever_a_service_dies_it_finishes_when_it_is_started_again(
    everywhere: Any, script: Callable[[Service], Awaitable[Any]]
) -> None:
    storage = everywhere()
    sound = storage._store
    counted = storage._store = CrashingStore(sound)
    expected = await script(Service(storage, "sound"))
    crashes = 0
    for at in range(1, counted.writes + 1):
        for after in (False, True):
            run_id = f"{at} {after}"
            storage._store = CrashingStore(sound, at, after=after)
            try:
                await script(Service(storage, run_id))
            except Crash:
                crashes += 1
            storage._store = sound
            assert await script(Service(storage, run_id)) == expected
    assert crashes > counted.writes
    assert await storage.ready_runs() == []
    await storage.close()
