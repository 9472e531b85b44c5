"""Programs with agents as people write them: wherever they die, no call is made again whose result was noted."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    CheckpointMissing,
    Executor,
    Message,
    Workflow,
    WorkflowAgent,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.agents import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Budget,
    BudgetRequest,
    Calls,
    ModelReply,
    ScriptedAgent,
    ToolOutcomeRequest,
    Turn,
    current_tool_call,
)
from stepwell.agents.scripted import Says
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore, FailingStore, ScriptedHuman, crash_everywhere
from stepwell.testing.faults.wrapped_store import WrappedStore
from stepwell.workflows import AgentSession


class Noted(WrappedStore):
    """Knows every text that was really written."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.texts: list[str] = []

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        result = await call()
        bodies = [arg if isinstance(arg, bytes) else getattr(arg, "body", b"") for arg in args]
        self.texts += [body.decode() for body in bodies if body]
        return result

    def has(self, text: str) -> bool:
        return any(text in written for written in self.texts)


class Calling:
    """Sees to it that no call is made whose result the store of the run has. What calls give is unlike anything else
    in the run, and so is found in what was written."""

    def __init__(self) -> None:
        self.store = Noted()
        self.made: list[str] = []

    def new_store(self) -> Noted:
        self.store = Noted()
        return self.store

    def make(self, result: str) -> str:
        assert not self.store.has(result), f"{result!r} was noted, and is asked for again"
        self.made.append(result)
        return result


class Careful(ScriptedAgent):
    """A scripted agent whose model is watched: its replies are told by their number."""

    def __init__(self, name: str, script: Any, calling: Calling, **options: Any) -> None:
        super().__init__(name, script, **options)
        self._calling = calling

    async def _speak(self, move: str | Says | Calls, turn: Turn) -> ModelReply:
        said = move if isinstance(move, str) else move.text
        self._calling.make(said)
        return await super()._speak(move, turn)


class Desk(Executor):
    """Shows each draft to a person, and passes on what the person wants."""

    @handler
    async def show(self, response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest, str]) -> None:
        said = [one.author_name for one in response.full_conversation(ctx)]
        await ctx.request_info(len(said), str)

    @response_handler
    async def seen(self, length: int, said: str, ctx: WorkflowContext[AgentExecutorRequest, str]) -> None:
        if said == "approve":
            await ctx.yield_output(f"printed after {length} messages")
        else:
            await ctx.send_message(AgentExecutorRequest([Message("user", said)]))


def writing(calling: Calling) -> Workflow:
    writer = Careful("writer", ["first draft", "second draft", "third draft"], calling)
    desk = Desk("desk")
    return WorkflowBuilder(name="copy", start_executor=writer).add_edge(writer, desk).add_edge(desk, writer).build()


def paying(calling: Calling) -> Workflow:
    """Two payments at once and one alone; each is asked about, and so is going on after the second call."""

    def pay(amount: int) -> str:
        assert current_tool_call().tool == "pay"
        return calling.make(f"receipt no {amount}")

    script = [
        Calls(("rate", {}), text="reply zero"),
        Calls(("pay", {"amount": 1}), ("pay", {"amount": 2}), text="reply one"),
        Calls(("pay", {"amount": 3}), text="reply two"),
        "reply three",
    ]
    tools = {"pay": pay, "rate": lambda: calling.make("rate no 7")}
    clerk = AgentExecutor(Careful("clerk", script, calling, tools=tools), approve=["pay"], budget=Budget(calls=2))
    boss = Careful("boss", ["well done"], calling)
    return WorkflowBuilder(name="office", start_executor=clerk).add_edge(clerk, boss).build()


def travelling(calling: Calling) -> Workflow:
    """A workflow inside another, as an agent, whose question is asked outside."""
    tools = {"book": lambda: calling.make("booking no 5")}
    script = [Calls(("book", {}), text="let us see"), "it is booked"]
    planner = AgentExecutor(Careful("planner", script, calling, tools=tools), approve=["book"])
    checker = Careful("checker", ["all is well"], calling)
    inside = WorkflowBuilder(name="travel", start_executor=planner).add_edge(planner, checker).build().as_agent()
    host = Careful("host", ["where to?"], calling)
    last = Careful("last", ["good journey"], calling)
    return WorkflowBuilder(name="agency", start_executor=host).add_edge(host, inside).add_edge(inside, last).build()


def decide(event: Any) -> Any:
    return {"limit": 9} if isinstance(event.data, BudgetRequest) else event.data.approve()


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "answer", "calls"),
    [
        (writing, ScriptedHuman(["shorter", "longer", "approve"]), 3),
        (paying, decide, 9),
        (travelling, decide, 6),
    ],
    ids=["a writer and a person", "a clerk who pays", "a workflow as an agent"],
)
async def test_no_call_whose_result_is_noted_is_made_again_wherever_it_dies(
    program: Any, answer: Any, calls: int
) -> None:
    calling = Calling()
    report = await crash_everywhere(program(calling), "begin", answer=answer, store=calling.new_store)
    assert report.crashes > 2 * calls  # each result is noted by a write of its own
    assert len(set(calling.made)) == calls
    assert all(calling.store.has(result) for result in calling.made)  # so it would have been found
    assert (
        calls * report.runs < len(calling.made) <= (calls + 2) * report.runs
    )  # at most what was under way, two side by side


async def test_a_session_goes_on_wherever_it_died() -> None:
    """Two things are said to a workflow that stands for an agent; it dies at each write, and the session goes on."""
    expected, writes, calling = await session_that_dies(None)
    assert (len(calling.made), expected) == (2, ["one heard", "two heard"])
    for at in range(1, writes + 1):
        for after in (False, True):
            told, _, calling = await session_that_dies(at, after=after)
            assert told == expected, (at, after)
            assert set(calling.made) == set(expected)
            assert len(calling.made) <= 3


async def session_that_dies(at: int | None, *, after: bool = False) -> tuple[list[str], int, Calling]:
    """What the agent said, all together; how often was written; and which calls were made."""
    calling, told, kept = Calling(), [], {"session_id": "ada"}
    crashing = CrashingStore(calling.store, at, after=after)
    store: Any = crashing
    for text in ("one", "two"):
        session = AgentSession.from_dict(kept)
        try:
            said = await said_once(heard_by(calling, store), text, session)
        except Crash:  # another process, which has nothing but the store and what was kept of the session
            store, session = calling.store, AgentSession.from_dict(kept)
            said = await said_once(heard_by(calling, store), text, session)
        told += said
        kept = session.to_dict()
    return told, crashing.writes, calling


async def said_once(agent: WorkflowAgent, text: str, session: AgentSession) -> list[str]:
    """The answer to a text, which may have been said before: then it is only heard."""
    try:
        response = await agent.run(session=session)
    except CheckpointMissing:
        response = AgentResponse()
    if not response.messages:
        response = await agent.run(text, session=session)
    return [message.text for message in response.messages]


def heard_by(calling: Calling, store: Any) -> WorkflowAgent:
    def script(messages: list[Message]) -> str:
        return f"{messages[-1].text} heard"

    workflow = WorkflowBuilder(name="heard", start_executor=Careful("listener", script, calling)).build()
    return workflow.as_agent(checkpoint_storage=BuiltInStorage(store))


def interrupting(calling: Calling) -> Workflow:
    """More is said while the agent waits for an approval: it answers that too. One tool must not be repeated."""

    @executor(id="host")
    async def host(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        for word in ("first", "second", "third"):
            await ctx.send_message(AgentExecutorRequest([Message("user", word)]))

    def script(messages: list[Message]) -> Any:
        if messages[-1].role == "tool":
            return f"answer after {len(messages)}"
        return Calls(("pay", {}), ("send", {}), text=f"reply after {len(messages)}")

    guest = Careful("guest", script, calling, tools={"pay": int, "send": int})
    member = AgentExecutor(guest, approve=["pay"], unsafe=["send"])
    return WorkflowBuilder(name="interrupting", start_executor=host).add_edge(host, member).build()


@pytest.mark.long
@pytest.mark.parametrize("fault", [CrashingStore, FailingStore])
async def test_what_is_said_to_an_agent_that_waits_is_answered_wherever_it_dies(fault: Any) -> None:
    def say(event: Any) -> Any:
        return event.data.did_not_run() if isinstance(event.data, ToolOutcomeRequest) else event.data.approve()

    calling = Calling()
    await crash_everywhere(interrupting(calling), "begin", answer=say, store=calling.new_store, fault=fault)
    assert set(calling.made) == {"reply after 1", "answer after 3", "reply after 4", "answer after 6"}
