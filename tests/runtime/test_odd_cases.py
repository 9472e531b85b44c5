"""Odd exceptions, odd names, odd moments: each has a plain answer, and none costs a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    DefinitionError,
    FileCheckpointStorage,
    HandlerFailed,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)


@pytest.fixture(params=["memory", "sqlite", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return {
        "memory": lambda: InMemoryCheckpointStorage(),
        "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
        "file": lambda: FileCheckpointStorage(tmp_path / "runs"),
    }[request.param]()


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def pair(storage: Any, error: list[BaseException], ran: list[str]) -> Workflow:
    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="bad")
    async def bad(n: int, ctx: WorkflowContext) -> None:
        ran.append("bad")
        if error:
            raise error[0]

    @executor(id="sibling")
    async def sibling(n: int, ctx: WorkflowContext[None, str]) -> None:
        await asyncio.sleep(0.01)
        ran.append("sibling")
        await ctx.yield_output("done")

    return (
        WorkflowBuilder(start_executor=start, name="pair", checkpoint_storage=storage)
        .add_fan_out_edges(start, [bad, sibling])
        .build()
    )


@pytest.mark.parametrize(
    "error",
    [GeneratorExit("g"), Speechless(), OSError(2, "no such file", "\udcff.txt"), StopAsyncIteration("s")],
    ids=["GeneratorExit", "speechless", "half a character", "StopAsyncIteration"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_any_exception_of_a_handler_fails_the_run_and_keeps_its_siblings(error: Any, stream: bool) -> None:
    storage, ran, errors = InMemoryCheckpointStorage(), list[str](), [error]
    workflow = pair(storage, errors, ran)
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r", stream=stream)
    latest = await storage.get_latest(run_id="r")
    assert latest is not None
    assert latest.status is WorkflowRunState.FAILED
    errors.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["done"]
    assert ran == ["bad", "sibling", "bad"]


async def test_a_task_that_is_cancelled_at_any_moment_leaves_the_run_free(storage: Any) -> None:
    workflow = pair(storage, [], [])
    await workflow.run(1)
    for moment in range(60):
        task = asyncio.ensure_future(workflow.run(1, run_id=f"r{moment}"))
        await asyncio.sleep(moment * 0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await workflow.run(1, run_id=f"r{moment}")).get_outputs() == ["done"]


async def test_saving_an_old_checkpoint_again_does_not_move_the_run_back(storage: Any) -> None:
    ran: list[str] = []
    workflow = pair(storage, [], ran)
    await workflow.run(1, run_id="r")
    ids = await storage.list_checkpoint_ids(run_id="r")
    await storage.save(await storage.load(ids[0]))
    assert (await storage.get_latest(run_id="r")).checkpoint_id == ids[-1]
    assert (await workflow.run(run_id="r")).get_outputs() == ["done"]
    assert ran == ["bad", "sibling"]


async def test_what_was_remembered_after_a_deleted_checkpoint_is_forgotten_with_it(storage: Any) -> None:
    value, broken = ["old"], [True]

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(value[0])

    @executor(id="b")
    async def b(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"b {text}")

    @executor(id="c")
    async def c(text: str, ctx: WorkflowContext[None, str]) -> None:
        if broken:
            raise ValueError("not yet")
        await ctx.yield_output(f"c {text}")

    builder = WorkflowBuilder(start_executor=start, name="w", checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, [b, c]).build()
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r")
    for id in reversed((await storage.list_checkpoint_ids(run_id="r"))[1:]):
        await storage.delete(id)
    value[0] = "new"
    broken.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["b new", "c new"]


async def test_names_that_cannot_be_stored_are_refused_where_they_are_given(storage: Any) -> None:
    workflow = pair(storage, [], [])
    with pytest.raises(ValueError, match="half a character"):
        workflow.run(1, run_id="\ud800")

    @executor(id="bad\ud800")
    async def bad(n: int, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="half a character"):
        WorkflowBuilder(start_executor=bad).build()

    @executor(id="key")
    async def key(n: int, ctx: WorkflowContext) -> None:
        ctx.set_state("\ud800", 1)

    with pytest.raises(HandlerFailed, match="half a character"):
        await WorkflowBuilder(start_executor=key, checkpoint_storage=storage).build().run(1)
    with pytest.raises(DefinitionError, match="whole characters"):
        WorkflowBuilder(start_executor=key, name="\ud800").build()


@pytest.mark.parametrize("name", ["holdfast.json", "..", ".", "a/b", "con", " ", "\x00", "ü" * 300, ".new", "runs.db"])
async def test_any_other_name_will_do(storage: Any, name: str) -> None:
    @executor(id=name)
    async def only(n: int, ctx: WorkflowContext[None, int]) -> None:
        ctx.set_state(name, n)
        await ctx.yield_output(ctx.get_state(name))

    workflow = WorkflowBuilder(start_executor=only, name=name, checkpoint_storage=storage).build()
    assert (await workflow.run(1, run_id=name)).get_outputs() == [1]
    assert (await workflow.run(run_id=name)).get_outputs() == [1]
    latest = await storage.get_latest(workflow_name=name)
    assert (latest.run_id, latest.workflow_name, dict(latest.state)) == (name, name, {name: 1})


@pytest.mark.parametrize("method", ["load", "list_checkpoints", "save"])
async def test_what_a_storage_of_the_users_own_raises_comes_out_as_one_of_our_errors(method: str) -> None:
    class Broken(InMemoryCheckpointStorage):
        pass

    async def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the cable is out")

    storage = Broken()
    workflow = pair(storage, [], [])
    id = (await workflow.run(1, run_id="r")) and (await storage.list_checkpoint_ids(run_id="r"))[0]
    setattr(storage, method, fail)
    with pytest.raises(StoreUnavailable, match="the cable is out"):
        await (workflow.run(checkpoint_id=id) if method == "load" else workflow.run(1, run_id="s"))
