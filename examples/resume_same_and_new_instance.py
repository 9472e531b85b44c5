"""Resuming a run: with the workflow object that started it, and with a new one.

The newest checkpoint continues the run itself. An older checkpoint starts a new run with that
lineage, and leaves the first run unchanged. The second workflow object has no storage: it is passed
to `run`.
"""

import asyncio

from stepwell import CheckpointStorage, InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.workflows import status_word


@executor
async def draft(topic: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(f"{topic}: a draft")


@executor
async def review(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(f"{text}, reviewed")


@executor
async def publish(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"{text}, published")


def build(storage: CheckpointStorage | None = None) -> Workflow:
    builder = WorkflowBuilder(name="article", start_executor=draft, checkpoint_storage=storage)
    return builder.add_chain([draft, review, publish]).build()


async def main() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = build(storage)

    async for event in workflow.run("tides", stream=True, run_id="tides"):
        if event.type == "superstep_completed" and event.iteration == 2:
            break  # leaving the stream stops the run at its last commit
    head = await storage.get_latest(run_id="tides")
    assert head is not None
    print(f"left after superstep {head.iteration_count}: the run is {status_word(head.status)}")

    result = await workflow.run(checkpoint_id=head.checkpoint_id)
    print(f"same object, from the head: run {result.run_id!r}, {result.get_outputs()}")

    result = await workflow.run(run_id="tides")
    print(f"a completed run returns its stored outputs: {result.get_outputs()}")

    older = (await storage.list_checkpoints(run_id="tides"))[1]
    result = await build().run(checkpoint_id=older.checkpoint_id, checkpoint_storage=storage, run_id="tides-2")
    print(f"new object, from an older checkpoint: run {result.run_id!r}, {result.get_outputs()}")
    first = (await storage.list_checkpoints(run_id="tides-2"))[0]
    print(f"its lineage leads to the older checkpoint: {first.previous_checkpoint_id == older.checkpoint_id}")


if __name__ == "__main__":
    asyncio.run(main())
