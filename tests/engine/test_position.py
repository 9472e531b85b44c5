"""Where a run goes on: its head, a checkpoint that is as good as the head, or a new run with a lineage."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    CodecError,
    CommitConflict,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RunError,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
)


class Dictionary:
    """A storage of a user's own: the six methods and a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.kept[checkpoint.checkpoint_id] = checkpoint.to_dict()
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return WorkflowCheckpoint.from_dict(self.kept[checkpoint_id])

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        found = [WorkflowCheckpoint.from_dict(one) for one in self.kept.values()]
        return [one for one in found if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self.kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        found = await self.list_checkpoints(workflow_name=workflow_name)
        return found[-1] if found else None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


def chain(storage: Any, ran: list[str], broken: list[bool]) -> Workflow:
    @executor(id="a")
    async def a(n: int, ctx: WorkflowContext[int, str]) -> None:
        ran.append("a")
        await ctx.yield_output(f"a{n}")
        await ctx.send_message(n + 1)

    @executor(id="good")
    async def good(n: int, ctx: WorkflowContext[int, str]) -> None:
        ran.append("good")
        await ctx.yield_output(f"good{n}")

    @executor(id="bad")
    async def bad(n: int, ctx: WorkflowContext[int, str]) -> None:
        ran.append("bad")
        if broken:
            raise ValueError("not yet")
        await ctx.yield_output(f"bad{n}")

    return (
        WorkflowBuilder(start_executor=a, name="chain", checkpoint_storage=storage)
        .add_fan_out_edges(a, [good, bad])
        .build()
    )


async def test_the_checkpoint_before_a_failure_continues_the_run_because_nothing_happened_since() -> None:
    storage, ran, broken = InMemoryCheckpointStorage(), list[str](), [True]
    workflow = chain(storage, ran, broken)
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r")
    checkpoints = await storage.list_checkpoints(run_id="r")
    assert [one.status for one in checkpoints][-2:] == [WorkflowRunState.IN_PROGRESS, WorkflowRunState.FAILED]
    broken.clear()
    result = await workflow.run(checkpoint_id=checkpoints[-2].checkpoint_id)
    assert result.run_id == "r"
    assert ran == ["a", "good", "bad", "bad"]
    assert result.get_outputs() == ["a1", "good2", "bad2"]


@pytest.mark.parametrize("storage", [InMemoryCheckpointStorage(), Dictionary()], ids=["built-in", "six methods"])
async def test_a_fork_has_the_outputs_of_its_lineage_and_runs_afresh_from_there(storage: Any) -> None:
    ran: list[str] = []
    workflow = chain(storage, ran, [])
    first = await workflow.run(1, run_id="r")
    ids = await storage.list_checkpoint_ids(workflow_name="chain")
    fork = await workflow.run(checkpoint_id=ids[1], run_id="s")
    assert fork.get_outputs() == first.get_outputs() == ["a1", "good2", "bad2"]
    assert fork.run_id == "s"
    assert ran == ["a", "good", "bad", "good", "bad"]
    latest = (await storage.list_checkpoints(workflow_name="chain"))[-2:]
    assert [one.run_id for one in latest] == ["s", "s"]
    assert latest[0].previous_checkpoint_id == ids[1]
    assert latest[1].previous_checkpoint_id == latest[0].checkpoint_id


async def test_a_fork_cannot_take_the_name_of_the_run_it_came_from_nor_of_another() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = chain(storage, [], [])
    await workflow.run(1, run_id="r")
    await workflow.run(2, run_id="other")
    ids = await storage.list_checkpoint_ids(run_id="r")
    with pytest.raises(RunError, match="leave run_id out"):
        await workflow.run(checkpoint_id=ids[0], run_id="r")
    with pytest.raises(RunError, match="stored already"):
        await workflow.run(checkpoint_id=ids[0], run_id="other")


async def test_the_history_of_messages_reaches_over_a_fork_and_as_far_as_it_is_stored() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = chain(storage, [], [])
    await workflow.run(1, run_id="r")
    ids = await storage.list_checkpoint_ids(run_id="r")
    await workflow.run(checkpoint_id=ids[1], run_id="s")
    head = (await storage.list_checkpoint_ids(run_id="s"))[-1]
    assert [(m.source_id, m.data) for m in await storage.message_history(head)] == [(None, 1), ("a", 2)]
    for id in ids:
        assert await storage.delete(id)
    assert [(m.source_id, m.data) for m in await storage.message_history(head)] == [("a", 2)]


async def test_a_driver_that_lost_the_run_to_another_cannot_commit_over_it() -> None:
    storage, ran = InMemoryCheckpointStorage(), list[str]()
    workflow = chain(storage, ran, [])
    stream = workflow.run(1, run_id="r", stream=True)
    events = aiter(stream)
    async for event in events:
        if event.type == "superstep_completed":
            break
    drive = stream._watched.drive  # type: ignore[union-attr]
    assert drive._lease.held is not None
    await storage._store.release("r", drive._lease.held.owner)  # as if its lease had ended while it slept
    assert (await workflow.run(run_id="r")).get_outputs() == ["a1", "good2", "bad2"]
    count = len(await storage.list_checkpoint_ids(run_id="r"))
    told = []

    async def read_on() -> None:
        async for event in events:
            told.append(event)

    with pytest.raises(CommitConflict):
        await read_on()
    assert told[-1].state is WorkflowRunState.FAILED
    assert len(await storage.list_checkpoint_ids(run_id="r")) == count


async def test_an_input_that_cannot_be_stored_is_refused_with_its_path_and_nothing_is_stored() -> None:
    @executor(id="any")
    async def anything(value: list, ctx: WorkflowContext) -> None:  # type: ignore[type-arg]
        raise AssertionError("must not run")

    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=anything, checkpoint_storage=storage).build()
    with pytest.raises(CodecError, match=r"\$\.input\[1\]"):
        await workflow.run([1, object()], run_id="r")
    assert await storage.list_checkpoint_ids() == []


async def test_a_save_hook_that_fails_at_the_input_says_whose_it_was() -> None:
    class Broken(Executor):
        @handler
        async def handle(self, n: int, ctx: WorkflowContext) -> None: ...

        async def on_checkpoint_save(self) -> dict[str, Any]:
            raise OSError("no")

    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=Broken("b"), checkpoint_storage=storage).build()
    with pytest.raises(RunError, match=r"on_checkpoint_save of .b. failed.*OSError: no"):
        await workflow.run(1)
    assert await storage.list_checkpoint_ids() == []
