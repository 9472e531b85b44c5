"""Agents of pydantic-ai: what is asked before a tool is called, and what becomes of the answers."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ApprovalRequired, CallDeferred, RunContext, Tool
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition
from pydantic_ai.toolsets import ApprovalRequiredToolset, ExternalToolset, FunctionToolset

from stepwell import HandlerFailed
from stepwell.agents import AgentInputRequest, Budget, ToolOutcomeRequest, current_tool_call
from tests.agents.pydantic_ai_scripts import Script, alone, calls, text_of

Decide = Callable[[Any], Any]


DECISIONS: list[tuple[Decide, list[int], str]] = [
    (lambda asked: asked.approve(), [500], "paid 500"),
    (lambda asked: asked.approve({"amount": 2}), [2], "paid 2"),
    (lambda asked: asked.deny("too dear"), [], "The call was denied: too dear"),
    (lambda asked: asked.answer("paid by hand"), [], "paid by hand"),
]


def big(ctx: RunContext[Any], tool: ToolDefinition, arguments: dict[str, Any]) -> bool:
    return bool(arguments.get("amount", 0) > 100)


@pytest.mark.parametrize(("decide", "really", "told"), DECISIONS)
@pytest.mark.parametrize("how", ["declared", "toolset", "raised"])
async def test_what_needs_approval_is_asked_about_however_it_is_said(
    how: str, decide: Decide, really: list[int], told: str
) -> None:
    paid: list[int] = []
    looked: list[int] = []

    def pay(ctx: RunContext[Any], amount: int) -> str:
        """Pay."""
        if how == "raised" and not ctx.tool_call_approved:
            raise ApprovalRequired
        paid.append(amount)
        return f"paid {amount}"

    def look() -> int:
        looked.append(1)
        return len(looked)

    script = Script(calls(("look", {}), ("pay", {"amount": 500})), "done")
    toolset: Any = FunctionToolset([Tool(pay, requires_approval=how == "declared"), look])
    if how == "toolset":
        toolset = ApprovalRequiredToolset(toolset, big)
    workflow = alone(Agent(script.model, name="clerk", toolsets=[toolset]))
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert (event.data.tool, event.data.arguments, event.data.description) == ("pay", {"amount": 500}, "Pay.")
    assert event.data.parameters["properties"]["amount"]["type"] == "integer"
    assert not paid
    result = await workflow.run(run_id="r", responses={event.request_id: decide(event.data)})
    assert result.get_outputs()[0].text == "done"
    assert (paid, script.results(), looked) == (really, [1, told], [1])


async def test_several_that_were_held_back_are_asked_about_together() -> None:
    def pay(ctx: RunContext[Any], amount: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"paid {amount}"

    script = Script(calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), "done")
    workflow = alone(Agent(script.model, name="clerk", tools=[pay]))
    first, second = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={second.request_id: second.data.approve()})
    await workflow.run(run_id="r", responses={first.request_id: first.data.deny("no")})
    assert script.results() == ["The call was denied: no", "paid 2"]


async def test_nobody_is_asked_about_arguments_that_do_not_fit_and_the_model_hears_of_them() -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    script = Script(calls(("pay", {"amount": "much"})), calls(("pay", {"amount": 3})), "done")
    workflow = alone(Agent(script.model, name="clerk", tools=[Tool(pay, requires_approval=True)]))
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert event.data.arguments == {"amount": 3}
    answer = event.data.approve({"amount": "many"})
    script._replies.insert(0, "I see")
    result = await workflow.run(run_id="r", responses={event.request_id: answer})
    assert result.get_outputs()[0].text == "I see"
    assert "are not valid for the tool" in str(script.given[-1][-1].parts)


async def test_a_tool_that_others_run_is_asked_about_until_its_result_is_there() -> None:
    def later() -> str:
        raise CallDeferred

    outside = ExternalToolset(
        [ToolDefinition(name="press", parameters_json_schema={"type": "object", "properties": {}})]
    )
    script = Script(calls(("press", {}), ("later", {})), "done")
    workflow = alone(Agent(script.model, name="clerk", tools=[later], toolsets=[outside]))
    result = await workflow.run("go", run_id="r")
    for tool, value in (("press", {"pages": 2}), ("later", "came")):
        (event,) = result.get_request_info_events()
        assert isinstance(event.data, AgentInputRequest)
        assert event.data.data["tool"] == tool
        result = await workflow.run(run_id="r", responses={event.request_id: event.data.answer(value)})
    assert result.get_outputs()[0].text == "done"
    assert script.results() == [{"pages": 2}, "came"]


async def test_the_agent_is_left_as_it_is() -> None:
    def pay() -> str:
        return "paid"

    script = Script(calls(("pay", {})), "done", calls(("pay", {})))
    agent = Agent(script.model, name="clerk", tools=[Tool(pay, requires_approval=True)])
    workflow = alone(agent)
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    with pytest.raises(Exception, match="DeferredToolRequests"):
        await agent.run("go")


async def test_a_tool_that_both_the_agent_and_the_executor_hold_back_is_asked_about_once() -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    script = Script(calls(("pay", {"amount": 5})), "done")
    workflow = alone(Agent(script.model, name="clerk", tools=[Tool(pay, requires_approval=True)]), approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve({"amount": 2})})
    assert result.get_outputs()[0].text == "done"
    assert script.results() == ["paid 2"]


async def test_an_agent_that_decides_about_approvals_by_itself_goes_on_doing_so() -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    def all_right(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    script = Script(calls(("pay", {"amount": 5})), "done")
    tools = [Tool(pay, requires_approval=True)]
    agent = Agent(script.model, name="clerk", tools=tools, capabilities=[HandleDeferredToolCalls(all_right)])
    assert await text_of(alone(agent)) == "done"
    assert script.results() == ["paid 5"]


async def test_a_budget_stops_it_and_what_must_not_be_repeated_is_asked_about() -> None:
    sent: list[str] = []

    def send() -> str:
        sent.append(current_tool_call().idempotency_key)
        if len(sent) == 1:
            raise ConnectionError("no answer")
        return "sent"

    script = Script(calls(("send", {})), "done")
    workflow = alone(Agent(script.model, name="clerk", tools=[send]), unsafe=["send"], budget=Budget(calls=1))
    with pytest.raises(HandlerFailed, match="no answer"):
        await workflow.run("go", run_id="r")
    (event,) = (await workflow.run(run_id="r")).get_request_info_events()
    assert event.data == ToolOutcomeRequest("clerk", "send", {}, "call-0", sent[0])
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.ran("sent by then")})
    (event,) = result.get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(2)})
    assert result.get_outputs()[0].text == "done"
    assert (script.results(), len(sent)) == (["sent by then"], 1)
