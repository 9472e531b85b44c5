"""`persistent(...)` declares an attribute that belongs to the run: it is saved and restored with it.

One executor instance serves three runs at the same time, each with its own values. Then a new run
continues from a checkpoint of one of them, with the values of that checkpoint.
"""

import asyncio

from stepwell import Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler, persistent


class Tally(Executor):
    total = persistent(0)
    seen: persistent[list[int]] = persistent([])

    @handler
    async def add(self, numbers: list[int], ctx: WorkflowContext[list[int], str]) -> None:
        first, *rest = numbers
        self.total += first
        self.seen.append(first)
        await asyncio.sleep(0)  # let the other runs interleave
        if rest:
            await ctx.send_message(rest)
        else:
            await ctx.yield_output(f"{self.seen} make {self.total}")


async def main() -> None:
    storage = InMemoryCheckpointStorage()
    tally = Tally("tally")
    builder = WorkflowBuilder(name="tally", start_executor=tally, checkpoint_storage=storage)
    workflow = builder.add_edge(tally, tally).build()

    lists = {"small": [1, 2, 3], "large": [100, 200, 300], "odd": [7, 7, 7]}
    results = await asyncio.gather(*(workflow.run(numbers, run_id=name) for name, numbers in lists.items()))
    for name, result in zip(lists, results, strict=True):
        print(f"run {name!r}: {result.get_outputs()[0]}")

    checkpoints = await storage.list_checkpoints(run_id="large")
    second = checkpoints[2]
    print(f"after superstep 2 of 'large': {second.executor_states['tally']}")
    again = await workflow.run(checkpoint_id=second.checkpoint_id)
    print(f"continued from there: {again.get_outputs()[0]}")


if __name__ == "__main__":
    asyncio.run(main())
