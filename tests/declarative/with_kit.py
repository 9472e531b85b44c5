"""A workflow with an agent of a library: begun by one process, gone on with by another, which has only the agent."""

import asyncio
import sys
from importlib import import_module

from stepwell import Message, SQLiteCheckpointStorage
from stepwell.declarative import AgentWorkflow, greater
from tests.agents.kits.deeds import Report


async def after(messages: list[Message]) -> str:
    return f"<{messages[-1].text}>"


async def main(kit: str, url: str, database: str, phase: str) -> None:
    make = import_module(f"tests.agents.kits.{kit}").agent
    agents = {"clerk": make("clerk", url), "reporter": make("reporter", url), "after": after}
    storage = SQLiteCheckpointStorage(database)
    if phase == "begin":
        workflow = (
            AgentWorkflow.create()
            .with_name("by-name")
            .with_checkpointing()
            .with_workflow_store(storage)
            .add_agent("report", "reporter", output=Report, input_key="input.report")
            .add_agent("clerk", input_key="input.clerk")
            .add_agent("after", input_template="{{clerk}} {{report.city}}")
            .from_("report")
            .to("clerk", when=greater("degrees", -100))
            .from_("clerk")
            .to("after")
            .with_agents(agents)
            .build()
        )
        result = await workflow.run({"report": "report Rome", "clerk": "pay 40"}, run_id="r")
        print([type(asked).__name__ for asked in result.requests.values()])
    else:
        found = await AgentWorkflow.of_run(storage, "r")
        workflow = found.with_agents(agents).with_types(Report).build()
        waiting = await workflow.resume("r")
        result = await workflow.resume("r", responses={id: one.approve() for id, one in waiting.requests.items()})
        print(result.values["report"].city, "-", result.output)


asyncio.run(main(*sys.argv[1:]))
