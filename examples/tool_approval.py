"""An agent wants to pay, a person in another process approves, and despite two kills it pays once.

    python tool_approval.py

The script starts itself three times as a child process. The first child runs until the agent requests
approval, and is killed. The second brings the response, and is killed after the tool has paid, before
the model answers. The third resumes the run: the payment is recalled, not repeated.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from stepwell import AgentExecutor, Message, SQLiteCheckpointStorage, Workflow, WorkflowBuilder
from stepwell.agents import Calls, ScriptedAgent, current_tool_call


def die() -> None:
    print(f"  process {os.getpid()} is killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


class Bank:
    """An external system: a file with a line for each payment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pay(self, to: str, amount: int) -> str:
        # The same whenever this call is repeated; a real bank would refuse to book it twice.
        key = current_tool_call().idempotency_key
        with self.path.open("a") as book:
            book.write(f"{key}: {amount} to {to}\n")
        return f"paid {amount} to {to}"


def build(directory: Path, *, killed_after_paying: bool = False) -> Workflow:
    def think(messages: list[Message]) -> str | Calls:
        """Decide as a model would: it sees the conversation and the results of tools in this turn."""
        if messages[-1].role != "tool":
            return Calls(("pay", {"to": "ada", "amount": 300}))
        if killed_after_paying:
            die()
        return f"done: {messages[-1].text}"

    clerk = ScriptedAgent("clerk", think, tools={"pay": Bank(directory / "bank.txt").pay})
    storage = SQLiteCheckpointStorage(directory / "runs.db")
    start = AgentExecutor(clerk, approve=["pay"])
    return WorkflowBuilder(name="office", start_executor=start, checkpoint_storage=storage).build()


async def ask(directory: Path) -> None:
    result = await build(directory).run("ada wants her 300", run_id="ada")
    for event in result.get_request_info_events():
        print(f"  may {event.data.agent} {event.data.tool} {event.data.arguments}?", flush=True)
    die()


async def answer(directory: Path) -> None:
    storage = SQLiteCheckpointStorage(directory / "runs.db")
    (pending,) = await storage.pending_requests()
    # Plain JSON, as a web form would send it.
    edited = {"decision": "approve", "arguments": {"to": "ada", "amount": 250}}
    workflow = build(directory, killed_after_paying=True)
    await workflow.run(run_id=pending.run_id, responses={pending.request_id: edited})


async def finish(directory: Path) -> None:
    result = await build(directory).run(run_id="ada")
    print(f"  {result.get_outputs()[0].text}")
    print(f"  payments recorded by the bank: {len((directory / 'bank.txt').read_text().splitlines())}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"process {os.getpid()}: {sys.argv[1]}", flush=True)
        asyncio.run({"ask": ask, "answer": answer, "finish": finish}[sys.argv[1]](Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            for part in ("ask", "answer", "finish"):
                ended = subprocess.run([sys.executable, __file__, part, directory]).returncode
                assert ended == (0 if part == "finish" else -signal.SIGKILL)
