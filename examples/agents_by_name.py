"""Two agents by name: killed between them, and resumed by a process that has only the agents.

    python agents_by_name.py

The script starts itself twice as a child. The first child builds the workflow and dies when the draft is written. The
second has never seen how it was built: the run itself says what it is, and knows its agents by their names.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from stepwell import LatestOnly, Message
from stepwell.declarative import AgentWorkflow, WorkflowAgentCompletedEvent


async def write(messages: list[Message]) -> str:
    print(f"  the writer is asked about {messages[-1].text}", flush=True)
    return f"All about {messages[-1].text}."


async def review(messages: list[Message]) -> str:
    print("  the reviewer is asked", flush=True)
    return f"good: {messages[-1].text}"


async def begin(directory: Path) -> None:
    """The first child: it ends at once when the draft is committed, without any chance to clean up."""
    workflow = (
        AgentWorkflow.create()
        .with_name("DurableReview")
        .with_checkpointing()
        .with_json_workflow_store(directory, retention=LatestOnly)
        .add_agent("draft", write, output_key="draft")
        .add_agent("review", review, input_key="draft")
        .from_("draft")
        .to("review")
        .build()
    )
    async for event in workflow.run("kelp", run_id="article"):
        if isinstance(event, WorkflowAgentCompletedEvent):
            print(f"  {event.agent} is done, and the process dies", flush=True)
            os._exit(9)


async def go_on(directory: Path) -> None:
    """The second child: whatever the run was, these are the agents."""
    found = await AgentWorkflow.of_run(directory, "article")
    workflow = found.with_agents({"draft": write, "review": review}).build()
    result = await workflow.resume("article")
    print(f"  output: {result.output}", flush=True)


async def main(directory: Path) -> None:
    for what in ("begin", "go on"):
        print(f"{what}:", flush=True)
        child = await asyncio.create_subprocess_exec(sys.executable, __file__, what, str(directory))
        print(f"  it ended with code {await child.wait()}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run({"begin": begin, "go on": go_on}[sys.argv[1]](Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
