"""Two agents by name: killed between them, and resumed by a process that has only the agents.

    python agents_by_name.py

The script starts itself twice as a child process. The first child builds the workflow and dies after
the draft is written. The second does not know the workflow: its definition is stored with the run,
and refers to the agents by name.
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
    """Run in the first child, which exits without any cleanup as soon as the draft is committed."""
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
            print(f"  {event.agent} has completed; the process dies", flush=True)
            os._exit(9)


async def resume(directory: Path) -> None:
    """Run in the second child, which supplies the agents and resumes the run."""
    definition = await AgentWorkflow.of_run(directory, "article")
    workflow = definition.with_agents({"draft": write, "review": review}).build()
    result = await workflow.resume("article")
    print(f"  output: {result.output}", flush=True)


async def main(directory: Path) -> None:
    for part in ("begin", "resume"):
        print(f"{part}:", flush=True)
        child = await asyncio.create_subprocess_exec(sys.executable, __file__, part, str(directory))
        print(f"  exit code {await child.wait()}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run({"begin": begin, "resume": resume}[sys.argv[1]](Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
