"""A workflow where an agent is expected: a session that goes on in other processes, and a question carried through.

    python workflow_as_agent.py

The script starts itself three times as a child. Whoever talks to the agent keeps one small dict between the
calls, the session; everything else is in the database.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stepwell import AgentExecutor, Message, SQLiteCheckpointStorage, WorkflowAgent, WorkflowBuilder
from stepwell.agents import Calls, ScriptedAgent, ToolApprovalRequest
from stepwell.workflows import AgentSession


def plan(messages: list[Message]) -> str | Calls:
    """What a model would do: it sees the whole conversation, and what tools gave in this turn."""
    if messages[-1].role == "tool":
        return messages[-1].text
    if "book" in messages[-1].text:
        return Calls(("book", {"place": messages[0].text}))
    return f"{messages[0].text} is fine in May"


def check(messages: list[Message]) -> str:
    return f"checked, after {len(messages)} messages"


def book(place: str) -> str:
    return f"booked: two nights in {place}"


def build(storage: SQLiteCheckpointStorage) -> WorkflowAgent:
    planner = AgentExecutor(ScriptedAgent("planner", plan, tools={"book": book}), approve=["book"])
    checker = ScriptedAgent("checker", check)
    builder = WorkflowBuilder(name="travel", start_executor=planner, checkpoint_storage=storage)
    return builder.add_edge(planner, checker).build().as_agent()


async def talk(said: str, directory: Path) -> None:
    agent = build(SQLiteCheckpointStorage(directory / "travel.db"))
    kept = directory / "session.json"
    session = AgentSession.from_dict(json.loads(kept.read_text())) if kept.exists() else agent.create_session("ada")
    if said == "yes":
        asked = (await agent.run(session=session)).user_input_requests  # what is open is told again
        answers = {one.request_id: one.data.approve() for one in asked if isinstance(one.data, ToolApprovalRequest)}
        response = await agent.run(session=session, responses=answers)
    else:
        response = await agent.run(said, session=session)
    for message in response.messages:
        print(f"  {message.author_name}: {message.text}")
    for request in response.user_input_requests:
        print(f"  may {request.data.agent} call {request.data.tool} with {request.data.arguments}?")
    kept.write_text(json.dumps(session.to_dict()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"process {os.getpid()}: {sys.argv[1]}")
        asyncio.run(talk(sys.argv[1], Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            for said in ("Lisbon", "then book it", "yes"):
                subprocess.run([sys.executable, __file__, said, directory], check=True)
