"""Errors of runs without a storage: they offer nothing that such a run does not have."""

from collections.abc import Callable

import pytest

from stepwell import (
    HandlerFailed,
    InMemoryCheckpointStorage,
    RoutingFailed,
    RunError,
    StateConflict,
    SuperstepLimit,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
)

Storage = InMemoryCheckpointStorage | None


@executor(id="fails")
async def fails(message: str, ctx: WorkflowContext) -> None:
    raise ValueError(message)


@executor(id="again")
async def again(message: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(message)


@executor(id="lost")
async def lost(message: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(message)


@executor(id="first")
async def first(message: str, ctx: WorkflowContext) -> None:
    ctx.set_state("key", "first")


@executor(id="second")
async def second(message: str, ctx: WorkflowContext) -> None:
    ctx.set_state("key", "second")


def failing(storage: Storage) -> Workflow:
    return WorkflowBuilder(start_executor=fails, checkpoint_storage=storage).build()


def endless(storage: Storage) -> Workflow:
    return WorkflowBuilder(3, start_executor=again, checkpoint_storage=storage).add_edge(again, again).build()


def losing(storage: Storage) -> Workflow:
    return WorkflowBuilder(start_executor=lost, checkpoint_storage=storage).build()


def quarrelling(storage: Storage) -> Workflow:
    return (
        WorkflowBuilder(start_executor=again, checkpoint_storage=storage)
        .add_fan_out_edges(again, [first, second])
        .build()
    )


def inside(storage: Storage) -> Workflow:
    inner = WorkflowBuilder(start_executor=fails, name="inner").build()
    return WorkflowBuilder(start_executor=WorkflowExecutor(inner, "sub"), checkpoint_storage=storage).build()


CASES = [
    (failing, HandlerFailed),
    (endless, SuperstepLimit),
    (losing, RoutingFailed),
    (quarrelling, StateConflict),
    (inside, HandlerFailed),
]


@pytest.mark.parametrize(("build", "error"), CASES)
async def test_without_a_storage_no_error_offers_a_resume(
    build: Callable[[Storage], Workflow], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        await build(None).run("x", run_id="r")
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "resume with" not in told
    assert "and resume" not in told
    assert "is kept" not in told
    assert "run_id=" not in told


async def test_a_failed_handler_says_whether_there_is_something_to_resume() -> None:
    with pytest.raises(HandlerFailed, match=r"ValueError: x. The run is not stored, so it cannot be resumed"):
        await failing(None).run("x", run_id="r")
    with pytest.raises(HandlerFailed, match=r"Finished handlers are not run again; resume with run\(run_id='r'\)"):
        await failing(InMemoryCheckpointStorage()).run("x", run_id="r")


async def test_a_run_that_took_too_long_says_whether_it_can_be_resumed() -> None:
    with pytest.raises(SuperstepLimit, match=r"larger max_iterations and run it again$"):
        await endless(None).run("x")
    with pytest.raises(SuperstepLimit, match=r"larger max_iterations and resume$"):
        await endless(InMemoryCheckpointStorage()).run("x")


async def test_a_stream_that_was_left_offers_to_go_on_only_if_that_can_be() -> None:
    stream = endless(None).run("x", run_id="r", stream=True)
    async for _ in stream:
        break
    await stream.aclose()
    with pytest.raises(RunError, match=r"left before the run ended; the run is not stored$"):
        await stream
