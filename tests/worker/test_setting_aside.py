"""A run that its drivers do not survive is set aside, and those that were let go do not count."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stepwell import RunSetAside, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.engine.opening.open_run import ResumeRun
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner, this_process
from stepwell.worker import Worker
from tests.worker.samples import all_are, counting, serving, submit


def dead(n: int) -> Owner:
    return replace(this_process(f"drive {n}"), pid=2**22 + 1 + n, started="0")


async def lose_drivers(storage: BuiltInStorage, run_id: str, count: int) -> None:
    """So many processes acquire the run, and die."""
    for n in range(count):
        await storage._store.open(run_id, owner=dead(n), seconds=3600)


async def takeovers(storage: BuiltInStorage, run_id: str) -> int:
    opened = await storage._store.open(run_id, owner=(owner := this_process("looks")), seconds=60)
    await storage._store.release(run_id, owner)
    return opened.takeovers


async def test_takeovers_are_counted_until_the_next_commit(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    assert await takeovers(storage, "r") == 0
    await lose_drivers(storage, "r", 3)
    assert await takeovers(storage, "r") == 3  # two of the three were taken over, and the last one by us
    drive = workflow._drive(ResumeRun("r"), storage, streaming=False, private={})
    batches, first = drive.batches(), None
    async for _ in batches:
        if first is not None and drive.at is not first:
            break
        first = drive.at
    await batches.aclose()
    assert await takeovers(storage, "r") == 0


async def test_leases_that_were_let_go_do_not_count(storage: BuiltInStorage) -> None:
    await submit(counting(storage), storage, 0, "r")
    for n in range(5):
        owner = this_process(f"drive {n}")
        await storage._store.open("r", owner=owner, seconds=60)
        await storage._store.open("r", owner=owner, seconds=60)  # the same owner again, as a retry does
        await storage._store.release("r", owner)
    assert await takeovers(storage, "r") == 0


async def test_after_so_many_lost_drivers_a_run_fails_with_the_reason(
    storage: BuiltInStorage, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    await lose_drivers(storage, "r", 4)
    async with serving(Worker(storage, [workflow], most_takeovers=3)):
        await all_are(storage, "failed")
    (failed,) = [event for event in await storage.event_history("r") if event.type == "failed"]
    assert failed.details is not None
    assert failed.details.error_type == "RunSetAside"
    assert "4 processes in a row that drove it died or fell silent" in failed.details.message
    assert "under way is 'count'" in failed.details.message
    assert "is set aside" in caplog.text


async def test_one_lost_driver_less_and_it_is_driven(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    await lose_drivers(storage, "r", 3)
    async with serving(Worker(storage, [workflow], most_takeovers=3)):
        await all_are(storage, "completed")


async def test_a_run_that_was_set_aside_can_be_resumed_on_purpose(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    await lose_drivers(storage, "r", 4)
    drive = workflow._drive(ResumeRun("r"), storage, streaming=False, private={}, most_takeovers=3)
    with pytest.raises(RunSetAside):
        async for _ in drive.batches():
            pass
    assert (await workflow.run(run_id="r")).get_outputs() == [3]


async def test_a_person_who_resumes_a_run_is_never_refused(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    await lose_drivers(storage, "r", 20)
    assert (await workflow.run(run_id="r")).get_outputs() == [3]


async def test_changed_code_gets_another_chance(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    await lose_drivers(storage, "r", 4)
    async with serving(Worker(storage, [with_another_executor(workflow, storage)], most_takeovers=3)):
        await all_are(storage, "completed")


def with_another_executor(workflow: Workflow, storage: BuiltInStorage) -> Workflow:
    @executor(id="idle")
    async def idle(number: int, ctx: WorkflowContext[None, int]) -> None:
        await asyncio.sleep(0)

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(number)

    builder = WorkflowBuilder(name=workflow.name, start_executor=count, checkpoint_storage=storage)
    return builder.add_edge(count, count).add_edge(count, idle).build()
