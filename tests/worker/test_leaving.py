"""A worker that stops leaves its runs at a commit, and their leases free."""

from __future__ import annotations

import asyncio
import time

import pytest

from stepwell import InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.engine.opening.open_run import ResumeRun
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.worker import Worker
from stepwell.worker import worker as worker_module
from stepwell.worker.metrics import Counters
from stepwell.worker.slices import drive_slice
from tests.worker.samples import all_are, counting, eventually, standings, submit


async def serve_until_busy(worker: Worker, storage: BuiltInStorage) -> asyncio.Task[None]:
    serving = asyncio.create_task(worker.serve())
    await all_are(storage, "running")
    await asyncio.sleep(0.05)  # until its handler is called
    return serving


async def test_a_superstep_under_way_may_end(storage: BuiltInStorage) -> None:
    workflow = counting(storage, 100, pause=0.3)
    await submit(workflow, storage, 0, "r")
    worker = Worker(storage, [workflow])
    serving = await serve_until_busy(worker, storage)
    worker.stop()
    await serving
    run = await storage.get_run("r")
    assert run is not None
    assert (run.number, run.standing, run.owner) == (1, "queued", None)


async def test_a_run_whose_slice_is_over_is_queued_and_not_stalled(storage: BuiltInStorage) -> None:
    workflow = counting(storage, 100)
    await submit(workflow, storage, 0, "r")
    drive = workflow._drive(ResumeRun("r"), storage, streaming=False, private={})

    def is_over() -> bool:
        return drive.at is not None and drive.at.number == 1

    assert await drive_slice(drive, is_over, Counters(), was_left=False)
    run = await storage.get_run("r")
    assert run is not None
    assert (run.number, run.standing, run.owner) == (1, "queued", None)


async def test_after_the_grace_handlers_are_cancelled_and_what_was_finished_is_kept(storage: BuiltInStorage) -> None:
    calls: list[str] = []
    workflow = quick_and_slow(storage, calls)
    await submit(workflow, storage, "x", "r")
    worker = Worker(storage, [workflow], grace=0.1)
    serving = await serve_until_busy(worker, storage)
    await eventually(lambda: _are(calls, ["quick", "slow"]))
    started = time.monotonic()
    worker.stop()
    await serving
    assert 0.1 <= time.monotonic() - started < 5
    run = await storage.get_run("r")
    assert run is not None
    assert (run.number, run.standing, run.owner) == (1, "stalled", str(this_process("")))
    calls.clear()
    serving = asyncio.create_task((again := Worker(storage, [workflow], grace=0)).serve())
    await eventually(lambda: _are(calls, ["slow"]))
    again.stop()
    await serving


async def test_at_once_is_at_once(storage: BuiltInStorage) -> None:
    workflow = counting(storage, pause=60)
    await submit(workflow, storage, 0, "r")
    worker = Worker(storage, [workflow], grace=60)
    serving = await serve_until_busy(worker, storage)
    started = time.monotonic()
    worker.stop()
    await asyncio.sleep(0.05)
    assert not serving.done()
    worker.stop(at_once=True)
    await serving
    assert time.monotonic() - started < 5
    assert await standings(storage) == {"r": "stalled"}


async def test_a_cancelled_task_leaves_in_good_order_too(storage: BuiltInStorage) -> None:
    workflow = counting(storage, 100, pause=0.3)
    await submit(workflow, storage, 0, "r")
    serving = await serve_until_busy(Worker(storage, [workflow]), storage)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    run = await storage.get_run("r")
    assert run is not None
    assert (run.number, run.owner) == (1, None)


async def test_nothing_is_acquired_any_more() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage, 0, pause=0.3)
    await submit(workflow, storage, 0, "r")
    worker = Worker(storage, [workflow])
    serving = await serve_until_busy(worker, storage)
    worker.stop()
    await submit(workflow, storage, 0, "s")
    await serving
    assert await standings(storage) == {"r": "completed", "s": "queued"}


async def test_a_handler_that_ignores_its_cancellation_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "_CLEAN_UP", 0.1)
    storage, may_end = InMemoryCheckpointStorage(), asyncio.Event()

    @executor(id="stubborn")
    async def stay(text: str, ctx: WorkflowContext[None, str]) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    workflow = WorkflowBuilder(name="stubborn", start_executor=stay, checkpoint_storage=storage).build()
    await submit(workflow, storage, "x", "r")
    worker = Worker(storage, [workflow], grace=0)
    serving = await serve_until_busy(worker, storage)
    worker.stop()
    await asyncio.wait_for(serving, 5)
    assert "1 runs ignore" in caplog.text
    may_end.set()
    await eventually(lambda: _is_left(worker))


async def test_a_worker_that_is_stopped_before_it_serves_drives_nothing() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    worker = Worker(storage, [workflow])
    worker.stop()
    await worker.serve()
    assert await standings(storage) == {"r": "queued"}


async def _are(calls: list[str], wanted: list[str]) -> bool:
    return sorted(calls) == wanted


async def _is_left(worker: Worker) -> bool:
    return not worker._driving


def quick_and_slow(storage: BuiltInStorage, calls: list[str]) -> Workflow:
    """Two handlers in one superstep: one returns, the other one stays."""

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(text)

    @executor(id="quick")
    async def quick(text: str, ctx: WorkflowContext[None, str]) -> None:
        calls.append("quick")

    @executor(id="slow")
    async def slow(text: str, ctx: WorkflowContext[None, str]) -> None:
        calls.append("slow")
        await asyncio.sleep(60)

    builder = WorkflowBuilder(name="both", start_executor=start, checkpoint_storage=storage)
    return builder.add_fan_out_edges(start, [quick, slow]).build()
