"""A sub-workflow asks a person, and its state is part of every checkpoint of the run around it.

    python sub_workflow_checkpoint.py

A product launch has its text written and approved by a sub-workflow, which waits for the approval. New
workflow objects, as another process would build them, bring the response. Continuing from the
checkpoint at which the run waited starts a second run, whose sub-workflow gets another response.
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    Executor,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)


@dataclass
class Draft:
    text: str


@dataclass
class Approval:
    granted: bool
    note: str = ""


@executor(id="write")
async def write(product: str, ctx: WorkflowContext[Draft]) -> None:
    print(f"writing about the {product}")
    await ctx.send_message(Draft(f"The {product} is here."))


class Review(Executor):
    @handler
    async def ask(self, draft: Draft, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(draft, Approval)

    @response_handler
    async def decide(self, original_request: Draft, response: Approval, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(original_request.text if response.granted else f"(not published: {response.note})")


@executor(id="plan")
async def plan(product: str, ctx: WorkflowContext[str]) -> None:
    print(f"planning the launch of the {product}")
    await ctx.send_message(product)


@executor(id="publish")
async def publish(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"launched with: {text}")


def build(storage: SQLiteCheckpointStorage) -> Workflow:
    text = WorkflowBuilder(name="text", start_executor=write).add_edge(write, Review("review")).build()
    launch = WorkflowBuilder(name="launch", start_executor=plan, checkpoint_storage=storage)
    return launch.add_chain([plan, WorkflowExecutor(text, "text"), publish]).build()


async def main(storage: SQLiteCheckpointStorage) -> None:
    waiting = await build(storage).run("lamp", run_id="lamp")
    (question,) = waiting.get_request_info_events()
    print(f"{question.source_executor_id} asks about {question.data}")
    here = await storage.get_latest(run_id="lamp")
    assert here is not None
    print("approved, with new workflow objects:")
    done = await build(storage).run(run_id="lamp", responses={question.request_id: Approval(True)})
    print(f"  {done.get_outputs()[0]}")
    print("refused, in a new run from the checkpoint at which it waited:")
    refused = {question.request_id: {"granted": False, "note": "too loud"}}  # as from a form
    other = await build(storage).run(checkpoint_id=here.checkpoint_id, run_id="lamp again", responses=refused)
    print(f"  {other.get_outputs()[0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(SQLiteCheckpointStorage(Path(directory) / "launches.db")))
