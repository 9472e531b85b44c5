"""What holds of a turn that is put aside in its middle: for its tools, its approvals and its budget."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    ResponseRejected,
    Workflow,
    WorkflowBuilder,
)
from stepwell.agents import (
    Answer,
    Budget,
    BudgetRequest,
    Calls,
    Interrupted,
    ModelReply,
    ScriptedAgent,
    ToolApprovalRequest,
    ToolCall,
    ToolOutcomeRequest,
    Turn,
    usage_in,
)
from stepwell.orchestrations import SequentialBuilder
from stepwell.workflows import AgentSession


class Written:
    """An agent whose turn is a function."""

    name = "clerk"

    def __init__(self, turn: Callable[[Turn], Awaitable[str]]) -> None:
        self._turn = turn

    async def take_turn(self, turn: Turn) -> Answer:
        return Answer([Message("assistant", await self._turn(turn))])


def alone(agent: Any, **options: Any) -> Workflow:
    start = AgentExecutor(agent, **options)
    return WorkflowBuilder(name="alone", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()


async def called(turn: Turn, *calls: ToolCall) -> list[ToolCall]:
    """The model of the turn wants these tools."""

    async def reply() -> ModelReply:
        return ModelReply(None, "", calls)

    return list((await turn.model(reply)).calls)


async def test_a_tool_that_must_not_be_repeated_is_not_repeated_after_a_wait() -> None:
    sent: list[int] = []

    async def send(arguments: dict[str, Any]) -> str:
        sent.append(1)
        if len(sent) == 1:
            raise ConnectionError("sent, or not sent?")
        return "sent"

    async def pay(arguments: dict[str, Any]) -> str:
        return "paid"

    async def carries_on(turn: Turn) -> str:
        (letter,) = await called(turn, ToolCall("1", "send"))
        try:
            outcome = await turn.tool(letter, send)
        except ConnectionError:
            outcome = "lost"
        (money,) = await called(turn, ToolCall("2", "pay"))
        return f"{outcome}, {await turn.tool(money, pay)}"

    workflow = alone(Written(carries_on), approve=["pay"], unsafe=["send"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert event.request_type == "ToolApprovalRequest"
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    (event,) = result.get_request_info_events()
    assert (type(event.data), len(sent)) == (ToolOutcomeRequest, 1)
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.retry()})
    assert (result.get_outputs()[0].text, len(sent)) == ("sent, paid", 2)


async def test_what_was_said_about_one_call_says_nothing_about_the_next() -> None:
    sent: list[int] = []

    async def send(arguments: dict[str, Any]) -> str:
        sent.append(1)
        raise ConnectionError("sent, or not sent?")

    async def asks(turn: Turn) -> str:
        (letter,) = await called(turn, ToolCall("1", "send"))
        try:
            await turn.tool(letter, send)
        except ConnectionError:
            await turn.ask(f"after {len(sent)}", "It failed. What now?", str)
        return "over"

    workflow = alone(Written(asks), unsafe=["send"])
    result = await workflow.run("go", run_id="r")
    for times in (1, 2, 3):
        (event,) = result.get_request_info_events()
        if times > 1:
            assert (type(event.data), len(sent)) == (ToolOutcomeRequest, times - 1)
            result = await workflow.run(run_id="r", responses={event.request_id: event.data.retry()})
            (event,) = result.get_request_info_events()
        assert (event.request_type, len(sent)) == ("AgentInputRequest", times)
        result = await workflow.run(run_id="r", responses={event.request_id: event.data.answer("again")})


async def test_an_approval_holds_for_the_arguments_that_were_asked_about() -> None:
    paid: list[Any] = []
    amounts = iter((100, 999))

    async def pay(arguments: dict[str, Any]) -> str:
        paid.append(arguments["amount"])
        return "paid"

    async def wavers(turn: Turn) -> str:
        return str(await turn.tool(ToolCall("1", "pay", {"amount": next(amounts)}), pay))

    workflow = alone(Written(wavers), approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert event.data.arguments == {"amount": 100}
    await workflow.run(run_id="r", responses={event.request_id: {"decision": "approve"}})
    assert paid == [100]


async def test_an_agent_that_catches_everything_cannot_call_what_is_being_asked_about() -> None:
    paid: list[str] = []

    async def pay(arguments: dict[str, Any]) -> str:
        paid.append("paid")
        return "paid"

    async def stubborn(turn: Turn) -> str:
        call = ToolCall("1", "pay")
        with suppress(Interrupted):  # what an agent must not do
            await called(turn, call)
        return str(await turn.tool(call, pay))

    workflow = alone(Written(stubborn), approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert (type(event.data), paid) == (ToolApprovalRequest, [])
    await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert paid == ["paid"]


async def test_what_one_agent_may_use_up_says_nothing_about_the_whole_run() -> None:
    first = ScriptedAgent("first", [Calls(("look", {})), "one"], tools={"look": int})
    second = ScriptedAgent("second", [Calls(("look", {})), "two"], tools={"look": int})
    third = ScriptedAgent("third", ["three"])
    alone, shared = Budget(calls=1), Budget(calls=3, whole_run=True)
    team = [
        AgentExecutor(first, budget=alone),
        AgentExecutor(second, budget=shared),
        AgentExecutor(third, budget=shared),
    ]
    workflow = SequentialBuilder(participants=team, checkpoint_storage=InMemoryCheckpointStorage()).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(100)})
    (event,) = result.get_request_info_events()
    assert event.data == BudgetRequest("second", "calls", 3, 3, whole_run=True)
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(5)})
    assert result.get_outputs()[0].text == "three"  # what is raised for the run holds for all


async def test_everything_that_a_team_used_up_counts_where_it_stands_for_an_agent() -> None:
    members = [ScriptedAgent("ann", ["a red lamp"]), ScriptedAgent("bob", ["no"])]
    inside = SequentialBuilder(participants=members, name="team").build().as_agent()
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=inside, checkpoint_storage=storage).build()
    (response,) = (await workflow.run("go", run_id="r")).get_outputs()
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert (usage_in(head.state)["team"].calls, response.usage.calls) == (2, 2)


async def test_a_session_known_by_its_name_alone_gives_the_answer_and_not_what_came_before() -> None:
    def say(messages: list[Message]) -> str | Calls:
        if messages[-1].role == "tool":
            return "paid"
        return Calls(("pay", {})) if messages[-1].text == "pay" else f"{len(messages)} messages"

    agent = alone(ScriptedAgent("clerk", say, tools={"pay": int}), approve=["pay"]).as_agent()
    assert (await agent.run("one", session=AgentSession("anna"))).text == "1 messages"
    assert (await agent.run("two", session=AgentSession("anna"))).text == "3 messages"
    asked = (await agent.run("pay", session=AgentSession("anna"))).user_input_requests
    answers = {request.request_id: {"decision": "approve"} for request in asked}
    assert (await agent.run(session=AgentSession("anna"), responses=answers)).text == "paid"
    assert (await agent.run(session=AgentSession("anna"))).text == "1 messages\n3 messages\npaid"


async def test_what_an_attempt_that_died_had_done_is_recalled_after_a_question() -> None:
    """Three tools side by side: two are done when the third fails and nobody knows what became of it."""
    done: list[str] = []
    others = asyncio.Event()

    async def do(name: str, arguments: dict[str, Any]) -> str:
        done.append(name)
        if len(done) == 3:
            others.set()
        if name == "call" and done.count("call") == 1:
            await others.wait()
            raise ConnectionError("called, or not?")
        return name

    async def turn(turn: Turn) -> str:
        calls = await called(turn, *(ToolCall(name, name) for name in ("call", "pay", "look")))
        given = await asyncio.gather(*(turn.tool(one, partial(do, one.name)) for one in calls), return_exceptions=True)
        for one in given:
            if isinstance(one, BaseException):
                raise one
        return ", ".join(map(str, given))

    workflow = alone(Written(turn), unsafe=["call", "pay"])
    with pytest.raises(HandlerFailed, match="called, or not"):
        await workflow.run("go", run_id="r")
    (event,) = (await workflow.run(run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.did_not_run()})
    assert result.get_outputs()[0].text == "call, pay, look"
    assert sorted(done) == ["call", "call", "look", "pay"]


async def test_a_slip_in_an_answer_is_refused_and_nothing_is_called() -> None:
    paid: list[int] = []
    clerk = ScriptedAgent("clerk", [Calls(("pay", {"amount": 300})), "done"], tools={"pay": paid.append})
    workflow = alone(clerk, approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    with pytest.raises(ResponseRejected, match="it has no 'args', only 'decision', 'arguments', 'reason', 'result'"):
        await workflow.run(run_id="r", responses={event.request_id: {"decision": "approve", "args": {"amount": 1}}})
    assert paid == []
