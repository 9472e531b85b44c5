"""A workflow used as an agent: a session that continues in other processes, and a request passed through.

    python workflow_as_agent.py

The script starts itself three times as a child process. Between the calls, the caller keeps only one
small dict, the session; everything else is in the database.
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
    """Decide as a model would: it sees the conversation and the results of tools in this turn."""
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


async def talk(text: str, directory: Path) -> None:
    agent = build(SQLiteCheckpointStorage(directory / "travel.db"))
    file = directory / "session.json"
    session = AgentSession.from_dict(json.loads(file.read_text())) if file.exists() else agent.create_session("ada")
    if text == "yes":
        # A run without input returns the open requests.
        requests = (await agent.run(session=session)).user_input_requests
        responses = {r.request_id: r.data.approve() for r in requests if isinstance(r.data, ToolApprovalRequest)}
        response = await agent.run(session=session, responses=responses)
    else:
        response = await agent.run(text, session=session)
    for message in response.messages:
        print(f"  {message.author_name}: {message.text}")
    for request in response.user_input_requests:
        print(f"  may {request.data.agent} call {request.data.tool} with {request.data.arguments}?")
    file.write_text(json.dumps(session.to_dict()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"process {os.getpid()}: {sys.argv[1]}")
        asyncio.run(talk(sys.argv[1], Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            for text in ("Lisbon", "then book it", "yes"):
                subprocess.run([sys.executable, __file__, text, directory], check=True)
