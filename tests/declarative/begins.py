"""Builds a workflow, runs it, and dies between its agents."""

import asyncio
import os
import sys
from pathlib import Path

from stepwell import LatestOnly, Message, PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.agents import ScriptedAgent
from stepwell.declarative import AgentWorkflow, WorkflowAgentCompletedEvent


def with_store(workflow: AgentWorkflow, root: Path, kind: str) -> AgentWorkflow:
    match kind:
        case "files":
            return workflow.with_json_workflow_store(root / "store", retention=LatestOnly)
        case "sqlite":
            return workflow.with_workflow_store(SQLiteCheckpointStorage(root / "runs.db"))
    return workflow.with_workflow_store(PostgresCheckpointStorage(kind))


async def dies(messages: list[Message]) -> str:
    os._exit(9)


async def main(root: Path, kind: str) -> None:
    def draft(messages: list[Message]) -> str:
        with open(root / "drafted", "a") as file:
            file.write("x")
        return f"all about {messages[-1].text}"

    workflow = (
        with_store(AgentWorkflow.create(), root, kind)
        .with_name("DurableReview")
        .with_checkpointing()
        .add_agent("draft", ScriptedAgent("draft", draft), output_key="draft")
        .add_agent("review", dies, input_key="draft")
        .from_("draft")
        .to("review")
        .build()
    )
    async for event in workflow.run("kelp", run_id="r"):
        if isinstance(event, WorkflowAgentCompletedEvent):
            print(event.agent, flush=True)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
