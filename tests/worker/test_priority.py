"""Of the runs that are ready, those with the highest priority are driven first."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import WorkflowBuilder, WorkflowContext, admin, executor
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker
from stepwell.worker.ready_runs import find_ready
from tests.worker.samples import all_are, asking, counting, serving


async def test_a_worker_with_one_slot_drives_by_priority_and_then_by_age(storage: BuiltInStorage) -> None:
    order = list[str]()

    @executor(id="note")
    async def note(run_id: str, ctx: WorkflowContext[None, str]) -> None:
        order.append(run_id)

    workflow = WorkflowBuilder(name="noting", start_executor=note, checkpoint_storage=storage).build()
    for run_id, priority in [("b", 0), ("a", 0), ("low", -100), ("high", 100), ("higher than normal", 1)]:
        await workflow.submit(run_id, run_id=run_id, priority=priority)
    async with serving(Worker(storage, [workflow], slots=1)):
        await all_are(storage, "completed")
    assert order == ["high", "higher than normal", "b", "a", "low"]


async def test_a_run_keeps_its_priority_when_it_waits_is_moved_back_and_forked(storage: BuiltInStorage) -> None:
    workflow = asking(storage)
    await workflow.submit("tea or coffee?", run_id="r", priority=-7)
    await workflow.run(run_id="r")
    await workflow.respond("r", "q", "tea")
    await workflow.run(run_id="r")
    first, *_ = await storage.list_checkpoint_ids(run_id="r")
    fork = await admin.fork(storage, first, run_id="fork")
    handle = workflow.start("tea or coffee?", run_id="r")
    await handle.result()
    await handle.restore(first)
    await handle.result()
    assert {run.run_id: run.priority for run in await storage.list_runs()} == {"r": -7, fork.run_id: -7}


async def test_one_with_a_high_priority_that_is_due_in_a_moment_hides_none_that_is_due_now(
    storage: BuiltInStorage,
) -> None:
    @executor(id="sleeper")
    async def sleep(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=1))

    sleeping = WorkflowBuilder(name="w", start_executor=sleep, checkpoint_storage=storage).build()
    await sleeping.submit("x", run_id="sleeps", priority=9)
    result = await sleeping.run(run_id="sleeps")
    counter = counting(storage, name="w")
    clock.set_source(lambda: result.wakes_at.timestamp() - 0.5)  # type: ignore[union-attr]
    try:
        await counter.submit(1, run_id="now")
        ready = await find_ready(storage._store, ["w"], 1, 1.0)
    finally:
        clock.set_source()
    assert [run.run_id for run in ready.now] == ["now"]
    assert 0.3 < ready.seconds_to_next <= 0.5


@pytest.mark.parametrize("priority", [-101, 101, 1.0, True, "1", None])
async def test_a_priority_that_cannot_be_stored_is_refused(priority: object, storage: BuiltInStorage) -> None:
    with pytest.raises(ValueError, match="priority must be a whole number from -100 to 100"):
        await counting(storage).submit(1, priority=priority)  # type: ignore[arg-type]
    assert await storage.list_runs() == []
