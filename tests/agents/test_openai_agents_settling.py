"""Agents of the OpenAI Agents SDK: in which order calls are asked about, and what is closed when a turn is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agents import Agent, MultiProvider, RunConfig, ToolApprovalItem, function_tool
from agents.testing import function_call

from stepwell import HandlerFailed
from stepwell.agents.adapters.openai_agents import OpenAIAgent, agent
from tests.agents.openai_agents_scripts import alone, big, calls, results, script


@pytest.mark.parametrize("turned", [False, True])
async def test_calls_that_the_sdk_holds_back_are_asked_about_in_the_order_of_their_ids(
    turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the SDK lists them: they are listed anew each time the turn is taken, and answers belong to places."""
    plain = agent._approvals
    times: list[int] = []

    async def listed(items: Sequence[ToolApprovalItem], steps: Any) -> Any:
        times.append(len(items))
        back = turned is (len(times) % 2 == 0)  # in another order when the turn is taken again
        return await plain(items[::-1] if back else items, steps)

    monkeypatch.setattr(agent, "_approvals", listed)

    @function_tool(needs_approval=big)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    ids = ["c", "a", "b"]
    reply = [function_call("pay", {"amount": 200 + n}, call_id=id) for n, id in enumerate(ids)]
    model = script(reply, "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[pay]))
    asked = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert [event.data.tool_call_id for event in asked] == ["a", "b", "c"]
    decided = {"a": asked[0].data.approve(), "b": asked[1].data.deny("no"), "c": asked[2].data.approve({"amount": 9})}
    await workflow.run(run_id="r", responses={event.request_id: decided[event.data.tool_call_id] for event in asked})
    assert results(model) == ["paid 9", "paid 201", "The call was denied: no"]
    assert times == [3, 3]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[MultiProvider]:
    found: list[MultiProvider] = []
    plain = MultiProvider.aclose

    async def noted(self: MultiProvider) -> None:
        found.append(self)
        await plain(self)

    monkeypatch.setattr(MultiProvider, "aclose", noted)
    return found


async def test_a_provider_of_ours_is_closed_when_the_turn_is_over(closed: list[MultiProvider]) -> None:
    await alone(Agent(name="clerk", model=script("hello"))).run("go")
    assert len(closed) == 1


async def test_it_is_closed_too_if_the_turn_fails_or_waits(closed: list[MultiProvider]) -> None:
    with pytest.raises(HandlerFailed):
        await alone(Agent(name="clerk", model=script(OSError("away")))).run("go")
    assert len(closed) == 1

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    waits = Agent(name="clerk", model=script(calls(("pay", {"amount": 1})), "done"), tools=[pay])
    assert (await alone(waits).run("go")).get_request_info_events()
    assert len(closed) == 2
    assert closed[0] is not closed[1]


async def test_a_provider_that_was_given_is_left_to_who_gave_it(closed: list[MultiProvider]) -> None:
    config = RunConfig(model_provider=MultiProvider())
    await alone(OpenAIAgent(Agent(name="clerk", model=script("hello")), run_config=config)).run("go")
    assert closed == []
