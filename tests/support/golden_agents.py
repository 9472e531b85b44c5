"""Workflows of agents whose runs are kept in golden stores. They must stay as they are for ever."""

from __future__ import annotations

from functools import partial
from typing import Any

from stepwell import (
    AgentExecutor,
    Executor,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.agents import Answer, Budget, ModelReply, ToolCall, Turn, Usage, current_tool_call


class Clerk:
    """Books what it is told to: looks, pays in two parts, and says so. `made` is what it really did, `keys` the keys
    that its tools were given."""

    name = "clerk"

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.made: list[str] = []
        self.keys: list[str] = []

    async def take_turn(self, turn: Turn) -> Answer:
        heard: list[Any] = []
        while True:
            reply = await turn.model(partial(self._speak, turn, heard))
            if not reply.calls:
                break
            heard += [await turn.tool(call, partial(self._use, call.name)) for call in reply.calls]
        said = Message("assistant", reply.text, data=reply.data)
        return Answer([said], history=[["heard", *heard]], state={"turns": len(turn.history) + 1})

    async def _speak(self, turn: Turn, heard: list[Any]) -> ModelReply:
        if self.broken and heard:
            raise ConnectionError("the line is down")
        self.made.append("model")
        usage = Usage(10, 2, calls=1)
        match len(heard):
            case 0:
                return ModelReply("looks", "let me look", [ToolCall("a", "look")], usage)
            case 1:
                calls = [ToolCall(id, "pay", {"amount": amount}, True) for id, amount in (("a", 1), ("b", 2))]
                return ModelReply("pays", "", calls, usage)
        told = f"{turn.messages[-1].text}: {', '.join(heard)} ({turn.state}, {turn.history})"
        return ModelReply({"booked": True}, told, usage=usage)

    async def _use(self, name: str, arguments: dict[str, Any]) -> str:
        self.made.append(name)
        self.keys.append(current_tool_call().idempotency_key)
        if self.broken and name == "send":
            raise ConnectionError("nobody answered")
        return f"{name} done"


class Sender(Clerk):
    """Sends a letter, which must not be sent twice."""

    name = "sender"

    async def _speak(self, turn: Turn, heard: list[Any]) -> ModelReply:
        self.made.append("model")
        calls = [] if heard else [ToolCall("a", "send", {"to": "ada"})]
        return ModelReply(None, " ".join(heard), calls, Usage(10, 2, calls=1))


class Asker(Executor):
    @handler
    async def ask(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("one moment")
        await ctx.request_info("which colour?", str, request_id="golden colour")

    @response_handler
    async def told(self, asked: str, colour: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"it is {colour}")


async def boss(messages: list[Message]) -> str:
    return f"{len(messages)} heard, {messages[-1].author_name} spoke"


def build_booking(storage: Any, clerk: Clerk) -> Workflow:
    """An agent that may make few calls and asks before it pays; another one hears it."""
    books, hears = AgentExecutor(clerk, budget=Budget(calls=1)), AgentExecutor(boss)
    builder = WorkflowBuilder(name="booking", start_executor=books, checkpoint_storage=storage)
    return builder.add_edge(books, hears).build()


def build_unlimited(storage: Any, clerk: Clerk) -> Workflow:
    start = AgentExecutor(clerk, unsafe=["send"])
    return WorkflowBuilder(name="unlimited", start_executor=start, checkpoint_storage=storage).build()


def build_around(storage: Any) -> Workflow:
    """A workflow that stands for an agent, and asks."""
    guest = WorkflowBuilder(name="asking colours", start_executor=Asker("asks")).build().as_agent("guest")
    hears = AgentExecutor(boss)
    builder = WorkflowBuilder(name="around", start_executor=guest, checkpoint_storage=storage)
    return builder.add_edge(guest, hears).build()
