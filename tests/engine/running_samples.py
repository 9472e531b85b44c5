"""What the tests of running share."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from stepwell import (
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    executor,
)

Ctx = WorkflowContext[Any, Any]


class Chain:
    """`steps` executors in a row that count their calls; the last yields what the first was given."""

    def __init__(self, steps: int = 3, storage: Any = None) -> None:
        self.steps = steps
        self.storage: Any = storage if storage is not None else InMemoryCheckpointStorage()
        self.calls: Counter[str] = Counter()
        self.hold: dict[str, asyncio.Event] = {}
        self.failing: set[str] = set()
        self.cleaned: list[str] = []

    def build(self, **options: Any) -> Workflow:
        made = [self.step(f"s{n}", last=n == self.steps) for n in range(1, self.steps + 1)]
        builder = WorkflowBuilder(start_executor=made[0], **{"checkpoint_storage": self.storage, **options})
        return (builder.add_chain(made) if len(made) > 1 else builder).build()

    def step(self, id: str, *, last: bool) -> Any:
        @executor(id=id)
        async def go(message: Any, ctx: Ctx) -> None:
            self.calls[id] += 1
            if id in self.failing:
                raise ValueError(f"{id} is in trouble")
            if id in self.hold:
                try:
                    await self.hold[id].wait()
                finally:
                    self.cleaned.append(id)
            ctx.append_state("log", id)
            await (ctx.yield_output(message) if last else ctx.send_message(message))

        return go

    async def reached(self, id: str) -> None:
        """Wait until that step has been called."""
        while not self.calls[id]:  # noqa: ASYNC110 - a counter tells nobody that it has moved
            await asyncio.sleep(0.001)

    async def heads(self, run_id: str) -> list[WorkflowCheckpoint]:
        found: list[WorkflowCheckpoint] = await self.storage.list_checkpoints(run_id=run_id)
        return found
