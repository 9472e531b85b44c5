"""Agents of the OpenAI Agents SDK that hand over to each other, or use each other as tools."""

import re
from typing import Any

import pytest
from agents import (
    Agent,
    HandoffInputData,
    Model,
    ModelProvider,
    RunConfig,
    RunContextWrapper,
    Runner,
    Tool,
    function_tool,
    handoff,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext

from stepwell import AgentExecutor, InMemoryCheckpointStorage, RunError, WorkflowBuilder
from stepwell.agents import current_tool_call, usage_in
from stepwell.agents.adapters.openai_agents import OpenAIAgent
from stepwell.testing import crash_everywhere
from tests.agents.openai_agents_scripts import Echo, alone, asked, big, calls, results, say, script


def offices(*replies: Any) -> tuple[Agent[Any], ScriptedModel, ScriptedModel]:
    """Two agents that hand over to each other, one way by a handoff of its own kind, and what the second one says."""
    front_model, back_model = script(calls(("to_back", {}))), script(*replies)
    back = Agent(name="back", model=back_model)
    kept = handoff(back, tool_name_override="to_back")
    front = Agent(name="front", model=front_model, handoffs=[kept])
    back.handoffs.append(front)
    return front, front_model, back_model


async def test_who_was_handed_over_to_within_the_sdk_takes_the_next_turn() -> None:
    front, front_model, back_model = offices("the back speaks", "still the back")
    workflow = alone(front)
    result = await workflow.run("go", run_id="r")
    assert result.get_outputs()[0].text == "the back speaks"
    assert await say(workflow, "more", "r") == "still the back"
    assert [item["content"] for item in asked(back_model) if item.get("role") == "user"] == ["go", "more"]
    assert (len(front_model.calls), len(back_model.calls)) == (1, 2)
    front_model.extend([[assistant_message("the front again")]])
    back_model.extend([calls(("transfer_to_front", {}), reply=2)])
    assert await say(workflow, "and back", "r") == "the front again"


async def test_a_filter_of_a_handoff_rewrites_the_conversation_for_good() -> None:
    def shorten(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=({"role": "user", "content": "in short"},), pre_handoff_items=(), new_items=())

    back_model = script("one", "two")
    back = Agent(name="back", model=back_model)
    front = Agent(
        name="front",
        model=script(calls(("to_back", {}))),
        handoffs=[handoff(back, tool_name_override="to_back", input_filter=shorten)],
    )
    workflow = alone(front)
    await workflow.run("a long story", run_id="r")
    assert asked(back_model) == [{"role": "user", "content": "in short"}]
    await say(workflow, "more", "r")
    assert [item["content"] for item in asked(back_model) if item.get("role") == "user"] == ["in short", "more"]


async def test_who_hands_over_in_the_middle_owes_no_results() -> None:
    @function_tool
    def look() -> int:
        return 1

    together = [assistant_message("One moment."), *calls(("look", {}), ("boss", {}), reply=2)]
    model = script(calls(("look", {})), together, "back again")
    workflow = alone(Agent(name="clerk", model=model, tools=[look]), handoffs={"boss": "Decides."})
    (answer,) = (await workflow.run("go", run_id="r")).get_outputs()
    assert (answer.text, answer.handoff) == ("One moment.", "boss")
    assert await say(workflow, "and now?", "r") == "back again"
    assert results(model) == ["1", "Not called.", "Handed over to boss."]
    assert [item["content"] for item in asked(model) if item.get("role") == "user"] == ["go", "and now?"]


class One(ModelProvider):
    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        return self._model


def team(paid: list[str], needs_approval: Any, model: Model | str) -> Agent[Any]:
    """An agent that uses two others as tools, which use tools in turn."""

    @function_tool(needs_approval=needs_approval)
    def pay(amount: int) -> str:
        paid.append(f"pay {current_tool_call().tool_call_id}")
        return f"paid {amount}"

    @function_tool
    def look() -> str:
        paid.append(f"look {current_tool_call().tool_call_id}")
        return "seen"

    hands = Agent(name="hands", instructions="hands", model=model, tools=[pay, look])
    eyes = Agent(name="eyes", instructions="eyes", model=model, tools=[look])
    tools: list[Tool] = [hands.as_tool("hands", "Pays."), eyes.as_tool("eyes", "Looks.")]
    return Agent(name="head", instructions="head", model=model, tools=tools)


@pytest.mark.parametrize("needs_approval", [True, big])
@pytest.mark.parametrize("named", [True, False])
async def test_agents_that_are_tools_do_everything_once_and_ask(needs_approval: Any, named: bool) -> None:
    done: list[str] = []
    model = Echo()
    agent = team(done, needs_approval, "any" if named else model)
    storage = InMemoryCheckpointStorage()
    start = AgentExecutor(OpenAIAgent(agent, run_config=RunConfig(model_provider=One(model))), id="clerk")
    workflow = WorkflowBuilder(start_executor=start, checkpoint_storage=storage).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert (event.data.tool, event.data.arguments) == ("pay", {"amount": 200})
    assert "pay" not in str(done)
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve({"amount": 3})})
    assert sorted(re.split("[:,] ", result.get_outputs()[0].text)) == [
        "eyes",
        "hands",
        "head",
        "paid 3",
        "seen",
        "seen",
    ]
    assert sorted(done) == ["look call-eyes/call-look", "look call-hands/call-look", "pay call-hands/call-pay"]
    assert model.calls == 6
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    used = usage_in(checkpoint.state)["clerk"]
    assert (used.calls, used.input_tokens) == (6, 30)


@pytest.mark.long
@pytest.mark.parametrize("needs_approval", [True, big])
async def test_agents_that_are_tools_come_to_the_same_wherever_a_run_dies(needs_approval: Any) -> None:
    workflow = WorkflowBuilder(start_executor=team([], needs_approval, Echo())).build()
    report = await crash_everywhere(workflow, "go", answer=lambda event: event.data.approve())
    assert report.crashes > 20


async def test_agents_that_are_tools_are_as_ever_outside_of_runs() -> None:
    done: list[str] = []

    @function_tool
    def look() -> str:
        done.append("looked")
        return "seen"

    eyes = Agent(name="eyes", instructions="eyes", model=Echo(), tools=[look])
    head = Agent(name="head", instructions="head", model=Echo(), tools=[eyes.as_tool("eyes", "Looks.")])
    await alone(head).run("go")
    assert (await Runner.run(eyes, "go")).final_output == "eyes: seen"
    assert (await Runner.run(head, "go")).final_output == "head: eyes: seen"
    assert done == ["looked"] * 3


async def test_a_tool_may_run_agents_of_its_own_in_one_step() -> None:
    inner = Agent(name="inner", instructions="inner", model=script("deep inside"))

    @function_tool
    async def ask(ctx: RunContextWrapper[Any]) -> str:
        return str((await Runner.run(inner, "well?")).final_output)

    model = script(calls(("ask", {})), "done")
    (answer,) = (await alone(Agent(name="clerk", model=model, tools=[ask])).run("go")).get_outputs()
    assert (answer.text, results(model), answer.usage.calls) == ("done", ["deep inside"], 2)


async def test_two_calls_under_one_id_fail_the_run_even_inside_an_agent_that_is_a_tool() -> None:
    @function_tool
    def look() -> str:
        return "seen"

    twice = [function_call("look", {}, call_id="same"), function_call("look", {}, call_id="same")]
    eyes = Agent(name="eyes", model=script(twice), tools=[look])
    head = Agent(name="head", model=script(calls(("eyes", {"input": "go"}))), tools=[eyes.as_tool("eyes", "Looks.")])
    with pytest.raises(RunError, match="used one id for two tool calls"):
        await alone(head).run("go")


async def test_an_agent_of_the_sdk_that_hands_over_to_one_of_the_workflow_takes_the_next_turn() -> None:
    front, front_model, _ = offices(calls(("boss", {}), reply=2), "the back again")
    workflow = alone(front, handoffs={"boss": "Decides."})
    (answer,) = (await workflow.run("go", run_id="r")).get_outputs()
    assert answer.handoff == "boss"
    assert await say(workflow, "well?", "r") == "the back again"
    assert len(front_model.calls) == 1


async def test_a_tool_that_runs_its_own_agent_again_finds_it_as_it_is() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    @function_tool
    async def again(ctx: ToolContext[Any]) -> str:
        assert isinstance(ctx.agent, Agent)
        return str(len((await Runner.run(ctx.agent, "once more")).interruptions))

    model = script(calls(("again", {})), calls(("pay", {}), reply=2), "done")
    (answer,) = (await alone(Agent(name="clerk", model=model, tools=[again, pay])).run("go")).get_outputs()
    assert (answer.text, results(model)) == ("done", ["1"])
