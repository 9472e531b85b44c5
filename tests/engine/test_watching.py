"""A handle of `attach` watches, and whatever is sent through it is left to the process that drives the run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from stepwell import (
    ResponseRejected,
    RunError,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.admin import respond
from tests.support.held import SixMethods
from tests.support.operating_runs import Order, asking, counting


@pytest.fixture
def storage(every_storage: Any) -> Any:
    return every_storage


async def left(storage: Any, run_id: str = "r") -> None:
    """A run that somebody began and left."""
    async with counting(storage).run(1, run_id=run_id, stream=True) as stream:
        async for event in stream:
            if event.type == "superstep_completed":
                break


async def asked(storage: Any, run_id: str = "r") -> str:
    """A run that waits; the id of its request."""
    (event,) = (await asking(storage).run(Order(7, ["tea"]), run_id=run_id)).get_request_info_events()
    return str(event.request_id)


async def standing(storage: Any, run_id: str = "r") -> str:
    return str((await storage.get_run(run_id)).standing)


async def test_watching_never_drives(storage: Any, caplog: pytest.LogCaptureFixture) -> None:
    await left(storage)
    calls: list[int] = []
    handle = counting(storage, calls=calls).attach("r")
    assert await handle.status() is WorkflowRunState.IN_PROGRESS
    waiting = asyncio.create_task(handle.result())
    events = handle.events(after=(await handle.checkpoints())[-1])
    watching = asyncio.ensure_future(anext(events))
    with caplog.at_level(logging.WARNING, "stepwell"):
        await asyncio.sleep(3.5)
    assert (calls, waiting.done(), watching.done(), await standing(storage)) == ([], False, False, "stalled")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("run 'r' is stalled: no process drives it, and this handle only watches; ")
    await counting(storage).run(run_id="r")
    assert (await waiting).get_outputs() == [[1, 2, 3]]
    assert (await watching).type == "started"
    assert calls == []
    await storage.close()


async def test_an_answer_through_a_watching_handle_is_stored_and_left_to_others(storage: Any) -> None:
    request_id = await asked(storage)
    handle = asking(storage).attach("r")
    with pytest.raises(ResponseRejected):
        await handle.respond({request_id: "maybe"})
    assert await standing(storage) == "waiting"
    await handle.respond({request_id: True}, by="ada", comment="fine")
    await asyncio.sleep(0.3)
    assert (await handle.status(), await standing(storage)) == (WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, "queued")
    with pytest.raises(ResponseRejected, match="first response"):
        await handle.respond({request_id: False}, by="bob")
    await asking(storage).attach("r", drive=True).result()
    assert await standing(storage) == "completed"
    await storage.close()


async def test_a_rejected_answer_is_no_failure_of_the_run(storage: Any, caplog: pytest.LogCaptureFixture) -> None:
    handle = asking(storage).start(Order(7, ["tea"]), run_id="r")
    (request,) = (await handle.result()).get_request_info_events()
    await respond(storage, "r", request.request_id, "maybe")
    assert len((await handle.result()).get_request_info_events()) == 1
    async with asyncio.timeout(20):
        while not caplog.records:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    ((level, text),) = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert (level, text[:43]) == ("WARNING", "run 'r' of 'refunds' waits for another resp")
    assert await standing(storage) == "waiting"
    await storage.close()


async def test_input_through_a_watching_handle_is_stored_and_left_to_others(storage: Any) -> None:
    await counting(storage).run(3, run_id="r")
    handle = counting(storage).attach("r")
    await handle.send(3)
    await asyncio.sleep(0.2)
    assert ((await storage.get_run("r")).number, await standing(storage)) == (1, "queued")
    waiting = asyncio.create_task(handle.result())
    await counting(storage).run(run_id="r")
    assert len((await waiting).get_outputs()) == 2
    await storage.close()


async def test_a_watching_handle_cancels_at_once_what_nobody_drives(storage: Any) -> None:
    await left(storage, "left")
    await asked(storage, "asks")
    for run_id, workflow in (("left", counting(storage)), ("asks", asking(storage))):
        assert await workflow.attach(run_id).cancel(reason="not needed", by="ada") is WorkflowRunState.CANCELLED
        events = await storage.event_history(run_id)
        assert [event.data for event in events if event.type == "warning"] == ["cancelled: not needed"]
        assert await standing(storage, run_id) == "cancelled"
        assert await workflow.attach(run_id).cancel() is WorkflowRunState.CANCELLED
        with pytest.raises(RunError):
            await workflow.attach(run_id).send(1 if run_id == "left" else Order(1, []))
    await storage.close()


async def test_a_watching_handle_asks_the_driver_to_stop_and_does_not_wait(storage: Any) -> None:
    reached, cleaned = asyncio.Event(), asyncio.Event()

    @executor(id="slow")
    async def slow(number: int, ctx: WorkflowContext[int, int]) -> None:
        reached.set()
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.3)
            cleaned.set()

    workflow = WorkflowBuilder(name="w", start_executor=slow, checkpoint_storage=storage).build()
    driving = workflow.start(1, run_id="r")
    await reached.wait()
    assert await workflow.attach("r").cancel(reason="closed", by="ada") is WorkflowRunState.IN_PROGRESS
    assert not cleaned.is_set()
    assert (await driving.result()).get_final_state() is WorkflowRunState.CANCELLED
    assert cleaned.is_set()
    warnings = [(e.data, e.by) for e in await storage.event_history("r") if e.type == "warning"]
    assert warnings == [("cancelled: closed", "ada")]
    # What asked for it is consumed: a run that is resumed on purpose is not cancelled again.
    assert await storage._store.pending_signals("r") == []
    await storage.close()


async def test_a_watching_handle_moves_a_run_back_and_leaves_it_there(storage: Any) -> None:
    calls: list[int] = []
    await counting(storage, calls=calls).run(1, run_id="r")
    handle = counting(storage, calls=calls).attach("r")
    first = (await handle.checkpoints())[1]
    at = await handle.restore(first, by="ada")
    await asyncio.sleep(0.2)
    assert (calls, await standing(storage)) == ([1, 2, 3], "queued")
    assert at.number == (await storage.get_run("r")).number
    await counting(storage, calls=calls).run(run_id="r")
    assert calls == [1, 2, 3, 2, 3]
    await storage.close()


async def test_a_storage_of_six_methods_is_watched_inside_its_process() -> None:
    storage, gate = SixMethods(), asyncio.Event()

    @executor(id="slow")
    async def slow(number: int, ctx: WorkflowContext[int, int]) -> None:
        await gate.wait()
        await ctx.yield_output(number)

    workflow = WorkflowBuilder(name="w", start_executor=slow, checkpoint_storage=storage).build()
    driving = workflow.start(1, run_id="r")
    await driving.status()
    waiting = asyncio.create_task(workflow.attach("r").result())
    await asyncio.sleep(0.1)
    gate.set()
    assert (await waiting).get_outputs() == [1]
    assert (await workflow.attach("r").result()).get_outputs() == [1]


async def test_a_run_that_fails_in_the_background_is_logged_as_an_error_once(
    storage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @executor(id="broken")
    async def broken(number: int, ctx: WorkflowContext[int, int]) -> None:
        raise ValueError("no luck")

    workflow = WorkflowBuilder(name="w", start_executor=broken, checkpoint_storage=storage).build()
    handle = workflow.start(1, run_id="r")
    for _ in range(2):
        with pytest.raises(RunError, match="no luck"):
            await handle.result()
        with pytest.raises(RunError, match="no luck"):
            await workflow.attach("r").result()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith("run 'r' of 'w' failed: ")
    await storage.close()


async def test_a_cancel_that_arrives_while_a_run_goes_to_sleep_is_not_slept_through(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @executor(id="sleeper")
    async def sleeper(number: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.sleep(3600)

    workflow = WorkflowBuilder(name="w", start_executor=sleeper, checkpoint_storage=storage).build()
    append = storage._store.append

    async def slow_append(record: Any, *effects: Any) -> None:
        if record.entry.number == 1:  # the commit that parks the run: nobody else can cancel it now
            assert await workflow.cancel("r", by="ada") is WorkflowRunState.IN_PROGRESS
        await append(record, *effects)

    monkeypatch.setattr(storage._store, "append", slow_append)
    result = await workflow.run(1, run_id="r")
    assert result.get_final_state() is WorkflowRunState.CANCELLED
    assert await standing(storage) == "cancelled"
    await storage.close()
