"""Steps that other tasks of a function have under way when it fails, is left or is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import (
    HandlerFailed,
    HandlerTimeout,
    RetryPolicy,
    RunContext,
    StoreUnavailable,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    step,
    workflow,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FailingStore, FakeClock

DID: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DID.clear()


@pytest.fixture
def storage() -> BuiltInStorage:
    return BuiltInStorage(MemoryStore())


@step
async def pay() -> str:
    DID.append("begin")
    await asyncio.sleep(0.05)
    DID.append("paid")
    return "receipt"


def fail_once() -> Any:
    failures = [1]

    @step
    async def fail() -> str:
        if failures:
            failures.pop()
            raise ConnectionError("once")
        return "fine"

    return fail


async def test_a_function_that_fails_waits_for_them_and_a_resume_finds_their_results(storage: BuiltInStorage) -> None:
    fail = fail_once()

    @workflow(checkpoint_storage=storage)
    async def shop() -> list[str]:
        return list(await asyncio.gather(pay(), fail()))

    with pytest.raises(HandlerFailed, match="once"):
        await shop.run(None, run_id="r")
    assert DID == ["begin", "paid"]
    assert (await shop.run(run_id="r")).get_outputs() == [["receipt", "fine"]]
    assert DID == ["begin", "paid"]


async def test_a_retry_does_not_make_them_a_second_time() -> None:
    fail = fail_once()

    @workflow(retry=RetryPolicy(max_attempts=2, initial_interval=0))
    async def shop() -> list[str]:
        return list(await asyncio.gather(pay(), fail()))

    assert await shop() == ["receipt", "fine"]
    assert DID == ["begin", "paid"]


async def test_a_handler_of_a_graph_waits_for_them_too(storage: BuiltInStorage) -> None:
    fail = fail_once()

    @executor
    async def node(text: str, ctx: WorkflowContext[None, list[str]]) -> None:
        await ctx.yield_output(await asyncio.gather(pay(), fail()))

    graph = WorkflowBuilder(start_executor=node, checkpoint_storage=storage).build()
    with pytest.raises(HandlerFailed, match="once"):
        await graph.run("go", run_id="r")
    assert (await graph.run(run_id="r")).get_outputs() == [["receipt", "fine"]]
    assert DID == ["begin", "paid"]


async def test_a_function_that_is_left_to_sleep_waits_for_them(storage: BuiltInStorage) -> None:
    @workflow
    async def inner() -> str:
        return await pay()

    @workflow(checkpoint_storage=storage)
    async def shop(ctx: RunContext) -> list[Any]:
        return list(await asyncio.gather(ctx.sleep(3600), pay(), inner()))

    with FakeClock() as clock:
        assert (await shop.run(None, run_id="r")).wakes_at is not None
        assert DID == ["begin", "begin", "paid", "paid"]
        clock(hours=2)
        assert (await shop.run(run_id="r")).get_outputs() == [[None, "receipt", "receipt"]]
    assert len(DID) == 4


async def test_what_they_could_not_store_is_an_error_although_the_function_is_left() -> None:
    # The third write is that of the step, after the input and the timer.
    broken = BuiltInStorage(FailingStore(MemoryStore(), at=3))

    @workflow(checkpoint_storage=broken)
    async def shop(ctx: RunContext) -> list[Any]:
        return list(await asyncio.gather(ctx.sleep(3600), pay()))

    with pytest.raises(StoreUnavailable, match="failed on purpose"):
        await shop.run(None, run_id="r")


async def test_no_step_begins_after_the_failure_except_inside_of_them(storage: BuiltInStorage) -> None:
    fail = fail_once()

    @step
    async def note(what: str) -> str:
        DID.append(what)
        return what

    @step
    async def outer() -> str:
        await asyncio.sleep(0.02)
        return await note("inside")

    async def two() -> None:
        await pay()
        DID.append("after")
        await note("too late")

    @workflow(checkpoint_storage=storage)
    async def shop() -> str:
        await asyncio.gather(two(), outer(), fail())
        return "done"

    with pytest.raises(HandlerFailed, match="once"):
        await shop.run(None, run_id="r")
    await asyncio.sleep(0.02)
    assert DID == ["begin", "inside", "paid", "after"]
    assert (await shop.run(run_id="r")).get_outputs() == ["done"]
    assert DID == ["begin", "inside", "paid", "after", "after", "too late"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_time_limit_cancels_them(fails: bool) -> None:
    @step
    async def hang() -> None:
        DID.append("begin")
        try:
            await asyncio.sleep(60)
        finally:
            DID.append("end")

    fail = fail_once() if fails else pay

    @workflow(timeout=0.1)
    async def shop() -> None:
        await asyncio.gather(hang(), fail())

    with pytest.raises(HandlerTimeout):
        await shop.run()
    await asyncio.sleep(0)
    assert DID[-1] == "end"


async def test_a_cancelled_run_cancels_them(storage: BuiltInStorage) -> None:
    @step
    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            DID.append("end")

    begun = asyncio.Event()

    @workflow(checkpoint_storage=storage)
    async def shop() -> None:
        task = asyncio.create_task(hang())
        await pay()
        begun.set()
        # Not `await task`, which would be cancelled with the function.
        await asyncio.sleep(60)
        del task

    handle = shop.start(None, run_id="r")
    await begun.wait()
    await handle.cancel()
    assert (await handle.result()).get_final_state() is WorkflowRunState.CANCELLED
    await asyncio.sleep(0)
    assert DID[-1] == "end"
