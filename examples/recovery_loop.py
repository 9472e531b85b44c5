"""A worker that sends itself the remaining work, fails now and then, and is resumed where it stopped.

The loop below keeps the newest checkpoint from the stream's `checkpoint` events. After each failure it
builds a new workflow and continues from there: no number is factored twice.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    handler,
)

BAD_MOMENTS = {4, 6, 9}  # numbers at which the worker fails once
FACTORED: list[int] = []  # every call that really happened; not part of any run


@dataclass
class Remaining:
    numbers: list[int]


class Start(Executor):
    @handler
    async def plan(self, upto: int, ctx: WorkflowContext[Remaining]) -> None:
        await ctx.send_message(Remaining(list(range(2, upto + 1))))


class Worker(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.factors: dict[int, list[int]] = {}

    @handler
    async def factor(self, work: Remaining, ctx: WorkflowContext[Remaining, dict[int, list[int]]]) -> None:
        number = work.numbers.pop(0)
        if number in BAD_MOMENTS:
            BAD_MOMENTS.remove(number)
            raise ConnectionError(f"connection lost at {number}")
        self.factors[number] = [n for n in range(2, number) if number % n == 0]
        FACTORED.append(number)
        if work.numbers:
            await ctx.send_message(work)
        else:
            await ctx.yield_output(self.factors)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"factors": self.factors}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.factors = state.get("factors", {})


async def main() -> None:
    start, worker = Start("start"), Worker("worker")
    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
    builder.add_edge(start, worker).add_edge(worker, worker)

    latest: WorkflowCheckpoint | None = None
    for attempt in range(1, 10):
        workflow = builder.build()
        if latest is None:
            stream = workflow.run(10, stream=True)
        else:
            stream = workflow.run(checkpoint_id=latest.checkpoint_id, stream=True)
        try:
            async for event in stream:
                if event.type == "checkpoint":
                    latest = event.data
                elif event.type == "output":
                    print(f"attempt {attempt}: done, {event.data}")
            break
        except HandlerFailed as failed:
            print(f"attempt {attempt}: {failed.__cause__}")
    print(f"factored, in this order: {FACTORED}")


if __name__ == "__main__":
    asyncio.run(main())
