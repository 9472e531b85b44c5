"""A function that is stopped from outside makes no steps on its way out: a resume comes to them, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CommitConflict,
    RetryPolicy,
    RunContext,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    step,
    workflow,
)
from stepwell.functional import DurableFunction
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner, this_process
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FailingStore, FakeClock
from stepwell.worker import Worker
from stepwell.workflows import background_drive, leave_runs
from tests.worker.samples import eventually

DID: list[str] = []
BLOCKED: list[bool] = []
"""Not empty as long as functions stay where they can be stopped."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    DID.clear()
    BLOCKED[:] = [True]


@step
async def lock() -> None:
    DID.append("lock")


@step
async def work() -> str:
    DID.append("work")
    return "done"


@step
async def unlock() -> None:
    DID.append("unlock")


async def stay() -> None:
    while BLOCKED:
        DID.append("at work") if "at work" not in DID else None
        await asyncio.sleep(0.01)


@workflow
async def in_finally() -> str:
    await lock()
    try:
        await stay()
        return await work()
    finally:
        await unlock()


@asynccontextmanager
async def locked() -> AsyncIterator[None]:
    await lock()
    try:
        yield
    finally:
        await unlock()


@workflow
async def in_a_context_manager() -> str:
    async with locked():
        await stay()
        return await work()


@workflow
async def called_early() -> str:
    await lock()
    release = unlock()
    try:
        await stay()
        return await work()
    finally:
        await release


@workflow
async def in_an_except_block() -> str:
    await lock()
    try:
        await stay()
        result = await work()
    except BaseException:
        await unlock()
        raise
    await unlock()
    return result


@workflow
async def with_errors_suppressed() -> str:
    await lock()
    result = "stopped"
    with suppress(BaseException):
        await stay()
        result = await work()
    with suppress(BaseException):
        await unlock()
    return result


@workflow
async def in_branches() -> str:
    async def hold() -> None:
        async with locked():
            await stay()

    async with asyncio.TaskGroup() as group:
        group.create_task(hold())
    return await work()


@workflow
async def after_a_sleep(ctx: RunContext) -> str:
    await lock()
    try:
        await stay()
        return await work()
    finally:
        await ctx.sleep(0.001)
        await unlock()


@workflow
async def in_a_function_inside(ctx: RunContext) -> str:
    return await in_finally()


@executor
async def node(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.step("lock", lock.function)
    try:
        await stay()
        await ctx.yield_output(await ctx.step("work", work.function))
    finally:
        await ctx.step("unlock", unlock.function)


FUNCTIONS = [
    in_finally,
    in_a_context_manager,
    called_early,
    in_an_except_block,
    with_errors_suppressed,
    in_branches,
    after_a_sleep,
    in_a_function_inside,
]


def message_for(function: Workflow[Any]) -> str | None:
    return None if isinstance(function, DurableFunction) else "go"


async def at_work() -> None:
    await eventually(_is_at_work)
    await asyncio.sleep(0.02)


async def _is_at_work() -> bool:
    return "at work" in DID


async def cancel_the_caller(function: Workflow[Any], storage: BuiltInStorage) -> None:
    running = asyncio.create_task(_run(function))
    await at_work()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def _run(function: Workflow[Any]) -> None:
    await function.run(message_for(function), run_id="r")


async def run_out_of_time(function: Workflow[Any], storage: BuiltInStorage) -> None:
    async def end_the_time() -> None:
        await at_work()
        limit.reschedule(asyncio.get_running_loop().time())

    limit = asyncio.timeout(None)
    ending = asyncio.create_task(end_the_time())
    with pytest.raises(TimeoutError):
        async with limit:
            await function.run(message_for(function), run_id="r")
    await ending


async def leave_the_stream(function: Workflow[Any], storage: BuiltInStorage) -> None:
    stream = function.run(message_for(function), run_id="r", stream=True)
    async for event in stream:
        if event.type == "executor_invoked":
            await at_work()
            break
    await stream.aclose()


async def cancel_the_reader(function: Workflow[Any], storage: BuiltInStorage) -> None:
    async def read() -> None:
        async for _ in function.run(message_for(function), run_id="r", stream=True):
            pass

    reading = asyncio.create_task(read())
    await at_work()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def end_the_process(function: Workflow[Any], storage: BuiltInStorage) -> None:
    function.start(message_for(function), run_id="r")
    await at_work()
    await leave_runs(grace=0)
    background_drive._loop_state().is_leaving = False  # another process, which starts afresh


async def stop_the_worker(function: Workflow[Any], storage: BuiltInStorage) -> None:
    await function.submit(message_for(function), run_id="r")
    worker = Worker(storage, [function], grace=0)
    serving = asyncio.create_task(worker.serve())
    await at_work()
    worker.stop()
    await serving


async def cancel_the_run(function: Workflow[Any], storage: BuiltInStorage) -> None:
    handle = function.start(message_for(function), run_id="r")
    await at_work()
    await handle.cancel()
    assert (await handle.result()).get_final_state() is WorkflowRunState.CANCELLED


async def cancel_the_run_elsewhere(function: Workflow[Any], storage: BuiltInStorage) -> None:
    running = asyncio.create_task(_run(function))
    await at_work()
    await function.attach("r").cancel()
    await running


Stop = Callable[[Workflow[Any], BuiltInStorage], Awaitable[None]]
STOPS: list[Stop] = [
    cancel_the_caller,
    run_out_of_time,
    leave_the_stream,
    cancel_the_reader,
    end_the_process,
    stop_the_worker,
    cancel_the_run,
    cancel_the_run_elsewhere,
]


async def check(function: Workflow[Any], stop: Stop, storage: BuiltInStorage) -> None:
    await stop(function, storage)
    assert DID == ["lock", "at work"], "nothing is made on the way out"
    BLOCKED.clear()
    assert (await function.run(run_id="r")).get_outputs() == ["done"]
    assert DID in (["lock", "at work", "work", "unlock"], ["lock", "at work", "unlock", "work"])


@pytest.mark.parametrize("stop", STOPS)
async def test_a_stopped_function_makes_its_clean_up_steps_when_it_is_resumed(
    stop: Stop, every_storage: BuiltInStorage
) -> None:
    await check(in_finally.build(checkpoint_storage=every_storage), stop, every_storage)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("function", FUNCTIONS)
async def test_wherever_the_steps_stand(function: Any, stop: Stop) -> None:
    storage = BuiltInStorage(MemoryStore())
    await check(function.build(checkpoint_storage=storage), stop, storage)


@pytest.mark.parametrize("stop", STOPS)
async def test_a_handler_of_a_graph_too(stop: Stop, every_storage: BuiltInStorage) -> None:
    await check(WorkflowBuilder(start_executor=node, checkpoint_storage=every_storage).build(), stop, every_storage)


@pytest.mark.parametrize("stream", [False, True])
async def test_clean_up_after_a_time_limit_of_its_own_is_made_at_once(stream: bool) -> None:
    storage = BuiltInStorage(MemoryStore())

    @workflow(checkpoint_storage=storage)
    async def limited() -> str:
        await lock()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                try:
                    await asyncio.sleep(60)
                finally:
                    await unlock()
        return await work()

    events = limited.run(None, run_id="r", stream=True) if stream else limited.run(None, run_id="r")
    assert (await events).get_outputs() == ["done"]
    assert DID == ["lock", "unlock", "work"]


async def test_a_step_that_makes_an_error_of_its_cancellation_is_neither_retried_nor_remembered() -> None:
    storage = BuiltInStorage(MemoryStore())

    @step(retry=RetryPolicy(max_attempts=3, initial_interval=0), remember=ConnectionError)
    async def send() -> str:
        DID.append("send")
        try:
            await stay()
        except asyncio.CancelledError:
            raise ConnectionError("closed") from None
        return "sent"

    @workflow(checkpoint_storage=storage, retry=RetryPolicy(max_attempts=3, initial_interval=0))
    async def sending() -> str:
        return await send()

    await cancel_the_caller(sending, storage)
    assert DID == ["send", "at work"]
    BLOCKED.clear()
    result = await sending.run(run_id="r")
    assert (result.get_outputs(), DID) == (["sent"], ["send", "at work", "send"])
    assert [event.attempt for event in result if event.type == "executor_completed"] == [1]


async def test_a_caller_that_is_cancelled_hears_of_it_even_if_the_function_does_not() -> None:
    storage = BuiltInStorage(MemoryStore())

    @workflow(checkpoint_storage=storage)
    async def deaf() -> str:
        with suppress(asyncio.CancelledError):
            await stay()
        return "returned"

    await cancel_the_caller(deaf, storage)
    run = await storage.get_run("r")
    assert run is not None
    assert run.number == 0
    # It returned of its own accord, so that is not repeated.
    assert (await deaf.run(run_id="r")).get_outputs() == ["returned"]
    assert BLOCKED


async def test_one_that_tries_again_and_again_does_not_block_the_event_loop() -> None:
    storage = BuiltInStorage(MemoryStore())

    @workflow(checkpoint_storage=storage)
    async def stubborn() -> str:
        with suppress(asyncio.CancelledError):
            await stay()
        while BLOCKED:
            with suppress(asyncio.CancelledError):
                await unlock()
        return "stopped"

    running = asyncio.create_task(_run(stubborn))
    await at_work()
    running.cancel()
    await asyncio.sleep(0.05)
    BLOCKED.clear()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert DID == ["at work"]


async def test_a_run_that_another_process_has_acquired_makes_no_clean_up_steps(every_storage: BuiltInStorage) -> None:
    function = in_finally.build(checkpoint_storage=every_storage)
    running = asyncio.create_task(_run(function))
    await at_work()
    store = every_storage._store
    await store.release("r", await _owner(every_storage))
    other = this_process("other")
    await store.open("r", owner=other, seconds=60)
    BLOCKED.clear()
    with pytest.raises(CommitConflict, match="acquired by another process"):
        await running
    # The step that was refused was made once more than it is stored, as after a crash.
    assert DID == ["lock", "at work", "work"]
    await store.release("r", other)
    assert (await function.run(run_id="r")).get_outputs() == ["done"]
    assert DID == ["lock", "at work", "work", "work", "unlock"]


async def _owner(storage: BuiltInStorage) -> Owner:
    run = await storage._store.run("r")
    assert run is not None
    assert run.lease is not None
    return run.lease.owner


async def test_a_function_that_catches_what_could_not_be_stored_makes_no_more_steps() -> None:
    inner = MemoryStore()

    @workflow
    async def careless() -> str:
        await lock()
        with suppress(StoreUnavailable):
            await work()
        with suppress(StoreUnavailable):
            await unlock()
        return "done"

    # The third write is that of the second step, after the input and the first one.
    broken = BuiltInStorage(FailingStore(inner, at=3))
    with pytest.raises(StoreUnavailable, match="failed on purpose"):
        await careless.build(checkpoint_storage=broken).run(None, run_id="r")
    assert DID == ["lock", "work"]
    result = await careless.build(checkpoint_storage=BuiltInStorage(inner)).run(run_id="r")
    assert (result.get_outputs(), DID) == (["done"], ["lock", "work", "work", "unlock"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_that_is_stopped_with_its_event_loop(stream: bool, tmp_path: Path) -> None:
    async def begin() -> None:
        function = in_finally.build(checkpoint_storage=SQLiteCheckpointStorage(tmp_path / "runs.db"))
        if stream:
            function.start(None, run_id="r")
        else:
            DRIVING.append(asyncio.create_task(_run(function)))
        await at_work()

    asyncio.run(begin())
    assert DID == ["lock", "at work"]
    BLOCKED.clear()

    async def resume() -> list[str]:
        storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
        return (await in_finally.build(checkpoint_storage=storage).run(run_id="r")).get_outputs()

    assert asyncio.run(resume()) == ["done"]
    assert DID == ["lock", "at work", "work", "unlock"]


DRIVING: list[asyncio.Task[None]] = []


async def test_branches_that_a_task_group_cancels_because_another_one_sleeps() -> None:
    storage = BuiltInStorage(MemoryStore())

    async def hold() -> None:
        async with locked():
            await stay()

    async def sleep(ctx: RunContext) -> None:
        await at_work()
        await ctx.sleep(3600)

    @workflow(checkpoint_storage=storage)
    async def both(ctx: RunContext) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(hold())
                group.create_task(sleep(ctx))
        finally:
            await work()
        return "done"

    with FakeClock() as clock:
        assert (await both.run(None, run_id="r")).wakes_at is not None
        assert DID == ["lock", "at work"]
        BLOCKED.clear()
        clock(hours=2)
        assert (await both.run(run_id="r")).get_outputs() == ["done"]
    assert DID == ["lock", "at work", "unlock", "work"]
