"""A request is listed and can be answered as soon as the outcome of its handler is durable."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    InMemoryCheckpointStorage,
    RequestError,
    RunError,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.admin import Keep, examine, export_run, import_run, prune, respond
from stepwell.testing import FakeClock
from stepwell.testing.faults.crash import Crash, CrashingStore


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class Desk(Executor):
    """Asks at once."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"{text}?", bool, request_id=f"about {text}")

    @response_handler
    async def decided(self, question: str, answer: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{question} {answer}")


class Sibling(Executor):
    """Works until it is released, sleeps for an hour, or fails."""

    def __init__(self, how: str) -> None:
        super().__init__("sibling")
        self.how = how
        self.released = asyncio.Event()

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if self.how == "sleep":
            await ctx.sleep(3600)
        elif self.how == "wait":
            await self.released.wait()
        elif self.how == "fail":
            await asyncio.sleep(0.05)
            raise ValueError("broken")
        await ctx.yield_output(f"worked on {text}")


def build(storage: Any, how: str) -> tuple[Workflow, Sibling]:
    sibling = Sibling(how)
    builder = WorkflowBuilder(name="early", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", [Desk("desk"), sibling]).build(), sibling


async def listed(storage: Any) -> list[str]:
    return [request.request_id for request in await storage.pending_requests()]


async def until_listed(storage: Any) -> None:
    async with asyncio.timeout(20):
        while not await listed(storage):  # noqa: ASYNC110 - what another task stores sets no event
            await asyncio.sleep(0.01)


async def test_a_request_can_be_answered_while_a_sibling_works(everywhere: Any) -> None:
    storage = everywhere()
    workflow, _ = build(storage, "wait")
    handle = workflow.start("tea", run_id="r")
    await until_listed(storage)
    (pending,) = await storage.pending_requests()
    assert (pending.question, pending.executor_id, pending.answered) == ("tea?", "desk", None)
    assert (await storage.get_request("about tea")).run_id == "r"
    await respond(storage, "r", "about tea", True, by="ann")
    (pending,) = await storage.pending_requests()
    assert pending.answered is not None
    assert pending.answered.by == "ann"
    with pytest.raises(RequestError, match="by 'ann'"):
        await workflow.attach("r").respond({"about tea": False})
    await handle.cancel()
    assert await listed(storage) == []
    await storage.close()


async def test_a_request_can_be_answered_while_a_sibling_sleeps(everywhere: Any) -> None:
    storage = everywhere()
    workflow, _ = build(storage, "sleep")
    with FakeClock() as pass_time:
        parked = await workflow.run("tea", run_id="r")
        assert parked.get_final_state() is WorkflowRunState.IN_PROGRESS
        assert await listed(storage) == ["about tea"]
        await workflow.attach("r").respond({"about tea": True}, by="ann")
        assert (await workflow.run(run_id="r")).get_outputs() == []  # it still sleeps
        pass_time(hours=2)
        done = await workflow.run(run_id="r")
        assert sorted(done.get_outputs()) == ["tea? True", "worked on tea"]
        assert await listed(storage) == []
    await storage.close()


async def test_a_request_of_a_failed_superstep_goes_with_it_and_comes_back(everywhere: Any) -> None:
    storage = everywhere()
    workflow, _ = build(storage, "fail")
    with pytest.raises(RunError):
        await workflow.run("tea", run_id="r")
    assert await listed(storage) == []
    with pytest.raises(RunError, match="run 'r' is failed"):
        await respond(storage, "r", "about tea", True)
    assert [found async for found in examine(storage) if getattr(found, "severity", "") == "error"] == []
    repaired, _ = build(storage, "work")
    waiting = await repaired.run(run_id="r")
    assert waiting.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert await listed(storage) == ["about tea"]
    await respond(storage, "r", "about tea", True)
    assert sorted((await repaired.run(run_id="r")).get_outputs()) == ["tea? True", "worked on tea"]
    await storage.close()


async def test_a_restore_takes_early_requests_away(everywhere: Any) -> None:
    storage = everywhere()
    workflow, _ = build(storage, "sleep")
    with FakeClock():
        await workflow.run("tea", run_id="r")
        first = (await workflow.attach("r").checkpoints())[0]
        handle = workflow.attach("r")
        await handle.restore(first)
        assert await listed(storage) == []
        await workflow.run(run_id="r")
        assert await listed(storage) == ["about tea"]
        assert [found async for found in examine(storage) if getattr(found, "severity", "") == "error"] == []
    await storage.close()


async def test_an_early_request_is_exported_and_imported() -> None:
    storage, other = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    workflow, _ = build(storage, "sleep")
    with FakeClock():
        await workflow.run("tea", run_id="r")
        await import_run(other, await export_run(storage, "r"))
        assert await listed(other) == ["about tea"]


async def test_one_request_is_found_by_its_id_alone(everywhere: Any) -> None:
    storage = everywhere()
    workflow, _ = build(storage, "work")
    for run_id in ("r", "s"):
        await workflow.run("tea", run_id=run_id)
    with pytest.raises(RequestError, match=r"several runs have an open request 'about tea': 'r', 's'; pass run_id"):
        await storage.get_request("about tea")
    assert (await storage.get_request("about tea", run_id="s")).data == "tea?"
    for unknown in ("about milk", "\ud800"):
        with pytest.raises(UnknownRequest, match="no run has an open request"):
            await storage.get_request(unknown)
    await storage.close()


async def test_requests_of_a_stopped_run_do_not_keep_it_from_being_pruned(everywhere: Any) -> None:
    storage = everywhere()
    workflow, _ = build(storage, "work")
    with FakeClock() as pass_time:
        await workflow.run("tea", run_id="r")
        await workflow.attach("r").cancel()
        pass_time(days=2)
        report = await prune(storage, Keep(age=timedelta(days=1)))
        assert (report.runs, await storage.list_runs()) == (("r",), [])
    await storage.close()


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_it_dies_an_early_request_is_open_once(after: bool) -> None:
    async def drive(storage: Any) -> list[str]:
        with FakeClock() as pass_time:
            workflow, _ = build(storage, "sleep")
            await workflow.run("tea", run_id="r")
            if (await storage.list_runs())[0].status is WorkflowRunState.IN_PROGRESS:
                assert await listed(storage) == ["about tea"]
            pass_time(hours=2)
            waiting = await workflow.run("tea", run_id="r")
            assert waiting.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        return await listed(storage)

    storage = InMemoryCheckpointStorage()
    counted = storage._store = CrashingStore(storage._store)
    assert await drive(storage) == ["about tea"]
    for at in range(1, counted.writes + 1):
        storage = InMemoryCheckpointStorage()
        sound = storage._store
        storage._store = CrashingStore(sound, at, after=after)
        with pytest.raises(Crash):
            await drive(storage)
        storage._store = sound
        assert await drive(storage) == ["about tea"]
