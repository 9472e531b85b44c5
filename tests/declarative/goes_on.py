"""Has never seen how the workflow was built: it knows the agents by their names, and goes on with a run."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from stepwell import Message, PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.declarative import AgentWorkflow


async def review(messages: list[Message]) -> str:
    return f"reviewed: {messages[-1].text}"


async def never(messages: list[Message]) -> str:
    raise AssertionError("the draft was committed, and is written again")


def store(root: Path, kind: str) -> Any:
    match kind:
        case "files":
            return root / "store"
        case "sqlite":
            return SQLiteCheckpointStorage(root / "runs.db")
    return PostgresCheckpointStorage(kind)


async def main(root: Path, kind: str) -> None:
    found = await AgentWorkflow.of_run(store(root, kind), "r")
    workflow = found.with_agents({"draft": never, "review": review}).build()
    result = await workflow.resume("r")
    print(result.output)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
