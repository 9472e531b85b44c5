"""A run is stopped from outside, whether or not somebody drives it, and nothing of it is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import (
    InMemoryCheckpointStorage,
    LatestOnly,
    RunError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.admin import NotFound, cancel, respond
from stepwell.storage.filters import ALL_RUNS
from stepwell.testing.faults.crash import Crash, CrashingStore
from tests.support.nesting import Asker, alone, deep
from tests.support.operating_runs import Order, asking, counting

CANCELLED = WorkflowRunState.CANCELLED


@pytest.mark.parametrize("options", [{}, {"retention": LatestOnly}], ids=["all kept", "latest kept"])
async def test_a_run_that_nobody_drives_is_cancelled_and_goes_on_when_it_is_resumed(
    everywhere: Any, options: dict[str, Any]
) -> None:
    storage = everywhere(**options)
    await asking(storage).run(Order(7, ["tea"]), run_id="refund")
    ended = await cancel(storage, "refu", reason="nobody wants tea")
    assert (ended.run_id, ended.status, ended.number, ended.changed, ended.driver) == (
        "refund",
        CANCELLED,
        2,
        True,
        None,
    )
    assert (await storage.list_runs())[0].status is CANCELLED
    again = await cancel(storage, "refund")
    assert (again.status, again.number, again.changed) == (CANCELLED, 2, False)
    assert await storage.pending_requests() == []
    with pytest.raises(RunError, match=r"run 'refund' is cancelled, .* `stepwell resume refund MODULE:WORKFLOW`"):
        await respond(storage, "refund", "refund-7", True)
    await asking(storage).run(run_id="refund")
    assert [request.request_id for request in await storage.pending_requests()] == ["refund-7"]
    await respond(storage, "refund", "refund-7", True)
    result = await asking(storage).run(run_id="refund")
    assert result.get_outputs() == ["tea: refunded"]
    await storage.close()


async def test_the_reason_is_part_of_the_history() -> None:
    storage = InMemoryCheckpointStorage()
    await asking(storage).run(Order(7, ["tea"]), run_id="refund")
    await cancel(storage, "refund", reason="nobody wants tea")
    handle = asking(storage).attach("refund", drive=True)
    seen = [(e.type, e.data) async for e in handle.events(after=1)]
    assert seen == [("warning", "cancelled: nobody wants tea"), ("status", None)]
    with pytest.raises(ValueError, match="valid Unicode"):
        await cancel(storage, "refund", reason="\ud800")


async def test_a_run_that_is_done_stays_done() -> None:
    storage = InMemoryCheckpointStorage()
    await counting(storage).run(1, run_id="done")
    ended = await cancel(storage, "done", reason="too late")
    assert (ended.status, ended.number, ended.changed) == (WorkflowRunState.IDLE, 3, False)
    with pytest.raises(NotFound):
        await cancel(storage, "nobody")


def staying(storage: Any, begun: asyncio.Event, cleaned: list[str]) -> Workflow:
    @executor(id="stay")
    async def stay(text: str, ctx: WorkflowContext[None, str]) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(text)

    return WorkflowBuilder(name="staying", start_executor=stay, checkpoint_storage=storage).build()


@pytest.mark.long
async def test_whoever_drives_it_is_told_and_stops() -> None:
    storage = InMemoryCheckpointStorage()
    cleaned: list[str] = []
    drivers: list[str] = []
    begun = asyncio.Event()
    workflow = staying(storage, begun, cleaned)
    driving = asyncio.create_task(_read_on(workflow.run_streaming("tea", run_id="tea")))
    async with asyncio.timeout(30):
        await begun.wait()
        ended = await cancel(storage, "tea", reason="closed", on_wait=drivers.append)
        await driving
    assert (ended.status, ended.changed, drivers) == (CANCELLED, True, [ended.driver])
    assert cleaned == ["tea"]
    events = [(e.type, e.data) async for e in workflow.attach("tea", drive=True).events(after=ended.number - 1)]
    assert events == [("warning", "cancelled: closed"), ("status", None)]
    assert await storage._store.pending_signals("tea") == []


async def _read_on(stream: Any) -> None:
    async for _ in stream:
        pass


async def test_a_run_that_works_for_another_is_left_to_that_one() -> None:
    storage = InMemoryCheckpointStorage()
    await deep(alone(Asker()), 2, storage).run("a", run_id="outer")
    inner = next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "outer")
    with pytest.raises(RunError, match="is a sub-workflow run of"):
        await cancel(storage, inner)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_whoever_dies_while_cancelling_leaves_the_run_as_it_was_or_cancelled(after: bool) -> None:
    async def waiting() -> InMemoryCheckpointStorage:
        storage = InMemoryCheckpointStorage()
        await asking(storage).run(Order(7, ["tea"]), run_id="refund")
        return storage

    storage = await waiting()
    counted = storage._store = CrashingStore(storage._store)
    await cancel(storage, "refund", reason="why")
    assert counted.writes > 0
    for at in range(1, counted.writes + 1):
        storage = await waiting()
        sound = storage._store
        storage._store = CrashingStore(sound, at, after=after)
        with pytest.raises(Crash):
            await cancel(storage, "refund", reason="why")
        storage._store = sound
        assert (await cancel(storage, "refund")).status is CANCELLED
        assert [run.number for run in await storage.list_runs()] == [2]
