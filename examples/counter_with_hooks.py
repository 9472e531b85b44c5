"""An executor keeps a number in an attribute; two hooks save it to, and restore it from, each checkpoint.

The counter counts to five. Then a new workflow object continues from a checkpoint in the middle: the
saved number is restored, and it counts only the rest.
"""

import asyncio
from typing import Any

from stepwell import Executor, InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler


class Counter(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0

    @handler
    async def step(self, _: None, ctx: WorkflowContext[None, int]) -> None:
        self.count += 1
        print(f"  counted to {self.count}")
        if self.count < 5:
            await ctx.send_message(None)
        else:
            await ctx.yield_output(self.count)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def build(storage: InMemoryCheckpointStorage) -> Workflow:
    counter = Counter("counter")
    builder = WorkflowBuilder(name="counting", start_executor=counter, checkpoint_storage=storage)
    return builder.add_edge(counter, counter).build()


async def main() -> None:
    storage = InMemoryCheckpointStorage()

    print("from the start:")
    result = await build(storage).run()
    print(f"output: {result.get_outputs()}")

    checkpoints = await storage.list_checkpoints(workflow_name="counting")
    middle = next(checkpoint for checkpoint in checkpoints if checkpoint.iteration_count == 3)
    print(f"saved after superstep 3: {middle.executor_states['counter']}")

    print("from there, with a new workflow object:")
    result = await build(storage).run(checkpoint_id=middle.checkpoint_id)
    print(f"output after the resume: {result.get_outputs()}")


if __name__ == "__main__":
    asyncio.run(main())
