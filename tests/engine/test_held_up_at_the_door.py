"""A program that is held up while it opens a run: what was committed meanwhile is not done again by it."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import CommitConflict, HandlerFailed, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import OpenedRun
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock
from stepwell.testing.faults.wrapped_store import WrappedStore


def workflow(ran: list[str], trouble: list[str]) -> Workflow:
    @executor(id="begin")
    async def begin(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="good")
    async def good(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("good")
        await ctx.yield_output("good")

    @executor(id="bad")
    async def bad(n: int, ctx: WorkflowContext[None, str]) -> None:
        if trouble:
            raise ConnectionError(trouble.pop())
        ran.append("bad")
        await ctx.yield_output("bad")

    return WorkflowBuilder(name="w", start_executor=begin).add_fan_out_edges(begin, [good, bad]).build()


class HeldUp(WrappedStore):
    """A store whose program is held up right after it has opened the run, and is overtaken there."""

    def __init__(self, inner: MemoryStore, overtake: Any) -> None:
        super().__init__(inner)
        self._overtake = overtake

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        opened = await super().open(run_id, owner=owner, seconds=seconds)
        await self._overtake()
        return opened


async def test_a_memory_that_is_gone_is_not_taken_for_one_that_never_was() -> None:
    store, ran, trouble = MemoryStore(), list[str](), ["the network went down"]
    work = workflow(ran, trouble)
    with pytest.raises(HandlerFailed):
        await work.run(1, run_id="r", checkpoint_storage=BuiltInStorage(store))
    assert ran == ["good"]

    with FakeClock() as later:

        async def overtake() -> None:
            later(minutes=5)  # the claim of whoever is held up is over
            result = await work.run(run_id="r", checkpoint_storage=BuiltInStorage(store))
            assert result.get_outputs() == ["good", "bad"]

        with pytest.raises(CommitConflict, match="run 'r' was acquired by another process"):
            await work.run(run_id="r", checkpoint_storage=BuiltInStorage(HeldUp(store, overtake)))
    # What it had opened was of one moment, and is no longer true: it may call a handler again, and store nothing.
    assert ran == ["good", "bad", "bad"]
    assert (await work.run(run_id="r", checkpoint_storage=BuiltInStorage(store))).get_outputs() == ["good", "bad"]
