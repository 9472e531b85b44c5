"""Programs whose process dies in the middle: `python -m tests.compat.killed_programs NAME KILL_AT`, in a folder.

Each call of a model or a tool, and each step, is a line of `calls.txt`. The process kills itself where line KILL_AT
would be written, once. What the program yields is printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationLayer,
)

from stepwell.compat import agent_framework as af
from stepwell.compat.agent_framework.orchestrations import MagenticBuilder, SequentialBuilder
from tests.compat.scripted import call

CALLS, KILLED = Path("calls.txt"), Path("killed")
KILL_AT = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def note(line: str) -> None:
    lines = CALLS.read_text().splitlines() if CALLS.exists() else []
    if len(lines) + 1 == KILL_AT and not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    CALLS.write_text("\n".join([*lines, line]) + "\n")


class Thinks(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A model that asks for two tools, one after the other, and then answers; as a manager, it plans."""

    def _inner_get_response(self, *, messages: Sequence[af.Message], stream: bool, options: Any, **kwargs: Any) -> Any:
        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            for content in self._reply(messages, bool(options.get("tools"))):
                yield ChatResponseUpdate(contents=[content], role="assistant", message_id="m")

        async def whole() -> ChatResponse[Any]:
            contents = self._reply(messages, bool(options.get("tools")))
            return ChatResponse(messages=[af.Message("assistant", contents)])

        return self._build_response_stream(pieces()) if stream else whole()

    def _reply(self, messages: Sequence[af.Message], has_tools: bool) -> list[af.Content]:
        heard = [content for message in messages for content in message.contents]
        results = [content for content in heard if content.type == "function_result"]
        note(f"model {len(messages)} {len(results)}")
        if has_tools and len(results) < 2:
            return [call("charge", f"call-{len(results)}", amount=len(results))]
        if "is_request_satisfied" in messages[-1].text:
            is_done = any("charged" in message.text for message in messages)
            answers = {"is_request_satisfied": is_done, "is_in_loop": False, "is_progress_being_made": True,
                       "next_speaker": "worker", "instruction_or_question": "charge"}  # fmt: skip
            ledger = {key: {"reason": "so", "answer": answer} for key, answer in answers.items()}
            return [af.Content.from_text(json.dumps(ledger))]
        return [af.Content.from_text(" and ".join(str(result.result) for result in results) or "a plan")]


def charge(amount: int) -> str:
    """Charge an amount."""
    note(f"tool {amount}")
    return f"charged {amount}"


def build(name: str, storage: Any) -> Any:
    worker: af.Agent[Any] = af.Agent(Thinks(), name="worker", description="charges", tools=[charge])
    match name:
        case "agent" | "streamed_agent":
            return af.WorkflowBuilder(name=name, start_executor=worker, checkpoint_storage=storage).build()
        case "sequence":
            second: af.Agent[Any] = af.Agent(Thinks(), name="second")
            return SequentialBuilder(participants=[worker, second], checkpoint_storage=storage).build()
        case "magentic":
            manager: af.Agent[Any] = af.Agent(Thinks(), name="manager")
            return MagenticBuilder(participants=[worker], manager_agent=manager, checkpoint_storage=storage).build()
        case "sub_workflow":
            inner = af.WorkflowBuilder(name="inner", start_executor=worker).build()
            nested = af.WorkflowExecutor(inner, "nested", allow_direct_output=True)
            return af.WorkflowBuilder(name=name, start_executor=nested, checkpoint_storage=storage).build()
    return function.build(checkpoint_storage=storage)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @af.step
    async def first(amount: int) -> str:
        return charge(amount)

    @af.step
    async def asks_an_agent(text: str) -> str:
        worker: af.Agent[Any] = af.Agent(Thinks(), name="worker", tools=[charge])
        return (await worker.run(text)).text

    @af.workflow(name="function")  # type: ignore[untyped-decorator]
    async def function(amount: str) -> list[str]:
        return [await first(1), await first(2), await asks_an_agent("charge")]


async def main(name: str) -> None:
    storage = af.FileCheckpointStorage("checkpoints")
    workflow = build(name, storage)
    latest = await storage.get_latest(workflow_name=workflow.name)
    start = {"message": "charge"} if latest is None else {"checkpoint_id": latest.checkpoint_id}
    stream = workflow.run(stream=name.startswith("streamed"), **start)
    result = await (stream.get_final_response() if name.startswith("streamed") else stream)
    checkpoints = await storage.native.list_checkpoints(workflow_name=workflow.name)
    last = [done for checkpoint in checkpoints for done in checkpoint.position.get("done", ())][-1]
    print(result.get_final_state().value, last["executor"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
