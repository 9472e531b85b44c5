"""An agent writes, a person asks for changes until the text is good, and no process waits for the person.

    python writer_with_a_human.py

The script starts itself three times as a child process. The first child has the agent write a draft,
and exits while the run waits. The second asks for a shorter text; the third approves. Each builds the
workflow again and has only the database: the agent's conversation is part of the run.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    AgentExecutor,
    Executor,
    Message,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.agents import AgentExecutorRequest, AgentExecutorResponse, ScriptedAgent


def write(messages: list[Message]) -> str:
    """Write as a model would: it sees the whole conversation."""
    if messages[-1].text == "shorter":
        return "Lamp: light."
    return f"{messages[0].text.title()}: it gives light wherever you need it."


@dataclass
class Draft:
    text: str
    number: int


class Desk(Executor):
    """Shows each draft to a person, and passes the person's wishes on to the agent."""

    @handler
    async def show(self, response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest, str]) -> None:
        drafts = [message for message in response.full_conversation(ctx) if message.role == "assistant"]
        await ctx.request_info(Draft(response.agent_response.text, len(drafts)), str)

    @response_handler
    async def apply(self, draft: Draft, feedback: str, ctx: WorkflowContext[AgentExecutorRequest, str]) -> None:
        if feedback == "approve":
            await ctx.yield_output(f"printed: {draft.text}")
        else:
            await ctx.send_message(AgentExecutorRequest([Message("user", feedback)]))


def build(storage: SQLiteCheckpointStorage) -> Workflow:
    writer, desk = AgentExecutor(ScriptedAgent("writer", write)), Desk("desk")
    builder = WorkflowBuilder(name="copy", start_executor=writer, output_from=[desk], checkpoint_storage=storage)
    return builder.add_edge(writer, desk).add_edge(desk, writer).build()


async def work(part: str, storage: SQLiteCheckpointStorage) -> None:
    workflow = build(storage)
    responses = {request.request_id: part for request in await storage.pending_requests(run_id="lamp")}
    if responses:
        result = await workflow.run(run_id="lamp", responses=responses)
    else:
        result = await workflow.run("lamp", run_id="lamp")
    for event in result.get_request_info_events():
        print(f"  draft {event.data.number}: {event.data.text}")
    for output in result.get_outputs():
        print(f"  {output}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"process {os.getpid()}: {sys.argv[1]}")
        asyncio.run(work(sys.argv[1], SQLiteCheckpointStorage(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            for part in ("write", "shorter", "approve"):
                subprocess.run([sys.executable, __file__, part, str(Path(directory) / "copy.db")], check=True)
