"""What was remembered inside a superstep is forgotten in the commit that holds it: it does not pile up."""

from __future__ import annotations

import asyncio
from typing import Any

from stepwell import Executor, WorkflowBuilder, WorkflowContext, executor, handler


class Worker(Executor):
    """One of several that finish one after the other, so that all but the last are remembered first."""

    def __init__(self, number: int, turns: list[asyncio.Event]) -> None:
        super().__init__(f"worker-{number}")
        self.number, self.turns = number, turns

    def clone(self) -> Worker:
        return Worker(self.number, self.turns)

    @handler
    async def work(self, text: str, ctx: WorkflowContext[str]) -> None:
        await self.turns[self.number].wait()
        self.turns[self.number + 1].set()
        await ctx.step("counted", len, text)
        await ctx.send_message(text)


async def test_nothing_is_remembered_of_supersteps_that_are_committed(storage: Any) -> None:
    remembered = list[str]()
    remember = storage._store.inner.write_log

    async def watched(run_id: str, place: int, key: str, body: bytes, **more: Any) -> bool:
        remembered.append(key)
        kept: bool = await remember(run_id, place, key, body, **more)
        return kept

    storage._store.inner.write_log = watched

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="end")
    async def end(texts: list[str], ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(len(texts))

    turns = [asyncio.Event() for _ in range(5)]
    turns[0].set()
    workers = [Worker(number, turns) for number in range(4)]
    builder = WorkflowBuilder(name="workers", start_executor=start, checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, workers).add_fan_in_edges(workers, end).build()
    result = await workflow.run("it", run_id="r")
    assert result.get_outputs() == [4]
    assert len([key for key in remembered if "/" in key]) == 4
    assert len([key for key in remembered if "/" not in key]) >= 3
    assert list((await storage._store.open("r")).log) == []
