"""Has never seen how the workflow was built: it knows the agents by their names, and goes on with a run."""

import asyncio
import sys
from pathlib import Path

from holdfast import Message
from holdfast.declarative import AgentWorkflow


async def review(messages: list[Message]) -> str:
    return f"reviewed: {messages[-1].text}"


async def never(messages: list[Message]) -> str:
    raise AssertionError("the draft was committed, and is written again")


async def main(root: Path) -> None:
    found = await AgentWorkflow.of_run(root / "store", "r")
    workflow = found.with_agents({"draft": never, "review": review}).build()
    result = await workflow.resume("r")
    print(result.output)


asyncio.run(main(Path(sys.argv[1])))
