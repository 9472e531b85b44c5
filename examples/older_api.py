"""The fluent API of older programs; each of its methods is a short form of a newer one."""

import asyncio

from stepwell import InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, executor


@executor(id="wash")
async def wash(fruit: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(f"clean {fruit}")


@executor(id="cut")
async def cut(fruit: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(f"sliced {fruit}")


@executor(id="plate")
async def plate(fruit: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"a plate of {fruit}")


@executor(id="jar")
async def jar(fruit: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"a jar of {fruit}")


def describe() -> WorkflowBuilder:
    builder = WorkflowBuilder()
    builder.set_start_executor(wash)
    builder.add_edge(wash, cut)
    builder.add_edge(cut, plate)
    builder.add_edge(cut, jar)
    return builder


async def main() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = describe().with_checkpointing(storage).build()

    async for event in workflow.run_streaming("apples"):
        if event.type == "output":
            print(f"first run: {event.data}")

    checkpoints = await storage.list_checkpoints()
    print(f"checkpoints: {len(checkpoints)}, one for the input and one for each superstep")
    saved = checkpoints[2]

    async for event in workflow.run_stream_from_checkpoint(saved.checkpoint_id):
        if event.type == "output":
            print(f"same workflow: {event.data}")

    without_storage = describe().build()
    async for event in without_storage.run_stream_from_checkpoint(saved.checkpoint_id, storage):
        if event.type == "output":
            print(f"new workflow: {event.data}")


if __name__ == "__main__":
    asyncio.run(main())
