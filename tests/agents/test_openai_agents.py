"""Agents of the OpenAI Agents SDK: what is true of them beyond the contract that all libraries share."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelProvider,
    RunConfig,
    RunContextWrapper,
    Runner,
    ShellTool,
    ToolOutputImage,
    ToolOutputText,
    Usage,
    WebSearchTool,
    function_tool,
)
from pydantic import BaseModel

from stepwell import AgentExecutor, DefinitionError, HandlerFailed, WorkflowBuilder
from stepwell.agents import Budget, ScriptedAgent, ToolOutcomeRequest, current_tool_call
from stepwell.agents.adapters.openai_agents import OpenAIAgent
from tests.agents.openai_agents_scripts import Echo, alone, asked, big, calls, results, script


async def test_an_agent_is_known_by_its_name_and_says_what_it_is_for() -> None:
    agent = Agent(name="clerk", handoff_description="Helps.", model=script("hello"))
    workflow = WorkflowBuilder(start_executor=agent).build()
    (executor,) = workflow.executors.values()
    assert (executor.id, executor.description) == ("clerk", "Helps.")
    assert (await workflow.run("go")).get_outputs()[0].text == "hello"
    assert AgentExecutor(OpenAIAgent(agent, name="porter")).id == "porter"


async def test_tools_get_the_context_and_the_key_of_their_call() -> None:
    keys: list[str] = []

    @function_tool
    def look(ctx: RunContextWrapper[int]) -> int:
        keys.append(current_tool_call().idempotency_key)
        return ctx.context

    model = script(calls(("look", {})), "done")
    await alone(OpenAIAgent(Agent(name="clerk", model=model, tools=[look]), context=7)).run("go")
    assert (results(model), len(keys)) == (["7"], 1)


async def test_models_that_are_named_come_from_the_provider_in_the_settings() -> None:
    named: list[str | None] = []

    class Provider(ModelProvider):
        def get_model(self, model_name: str | None) -> Model:
            named.append(model_name)
            return script("hello")

    agent = OpenAIAgent(Agent(name="clerk", model="small"), run_config=RunConfig(model_provider=Provider()))
    assert (await alone(agent).run("go")).get_outputs()[0].text == "hello"
    assert named == ["small"]


async def test_a_model_in_the_settings_goes_for_every_agent() -> None:
    model = script("hello")
    agent = OpenAIAgent(Agent(name="clerk", model=script()), run_config=RunConfig(model=model))
    (answer,) = (await alone(agent).run("go")).get_outputs()
    assert (answer.text, answer.usage.calls, len(model.calls)) == ("hello", 1, 1)


async def test_what_other_agents_said_is_said_by_users_with_their_names() -> None:
    model = script("noted")
    writer, critic = ScriptedAgent("writer", ["a text"]), Agent(name="critic", model=model)
    await WorkflowBuilder(start_executor=writer).add_edge(writer, critic).build().run("write")
    assert asked(model) == [
        {"role": "user", "content": "write"},
        {"role": "user", "content": "writer: a text"},
    ]


class Parcel(BaseModel):
    weight: int


async def test_what_tools_give_is_the_same_when_it_is_recalled() -> None:
    ran: list[str] = []

    @function_tool
    def parcel() -> Parcel:
        ran.append("parcel")
        return Parcel(weight=3)

    @function_tool
    def table() -> dict[str, Any]:
        return {"a": 1}

    @function_tool
    def pictures() -> list[Any]:
        return [ToolOutputText(text="look"), ToolOutputImage(image_url="http://example.org/a.png")]

    @function_tool
    def broken() -> str:
        ran.append("broken")
        raise ValueError("no paper")

    wanted = calls(("parcel", {}), ("table", {}), ("pictures", {}), ("broken", {}))
    model = script(wanted, ConnectionError("gone"), "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[parcel, table, pictures, broken]))
    with pytest.raises(HandlerFailed, match="gone"):
        await workflow.run("go", run_id="r")
    before = results(model)
    assert (await workflow.run(run_id="r")).get_outputs()[0].text == "done"
    assert results(model) == before
    assert before[0] == str(Parcel(weight=3))
    assert before[1] == str({"a": 1})
    assert [part["type"] for part in before[2]] == ["input_text", "input_image"]
    assert "An error occurred" in before[3]
    assert ran == ["parcel", "broken"]


async def test_a_tool_that_took_too_long_is_not_called_again() -> None:
    ran: list[str] = []

    @function_tool(timeout=0.01)
    async def slow() -> str:
        ran.append("slow")
        await asyncio.Event().wait()
        return "never"

    model = script(calls(("slow", {})), OSError("gone"), "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[slow]))
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    await workflow.run(run_id="r")
    assert "timed out" in results(model)[0]
    assert ran == ["slow"]


Decide = Callable[[Any], Any]


DECISIONS: list[tuple[Decide, list[int], str]] = [
    (lambda asked: asked.approve(), [500], "paid 500"),
    (lambda asked: asked.approve({"amount": 2}), [2], "paid 2"),
    (lambda asked: asked.deny("too dear"), [], "The call was denied: too dear"),
    (lambda asked: asked.answer("paid by hand"), [], "paid by hand"),
]


@pytest.mark.parametrize(("decide", "really", "told"), DECISIONS)
@pytest.mark.parametrize("needs_approval", [True, big])
async def test_what_needs_approval_is_asked_about_whoever_decides_that(
    needs_approval: Any, decide: Decide, really: list[int], told: str
) -> None:
    paid: list[int] = []
    looked: list[int] = []

    @function_tool(needs_approval=needs_approval)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    @function_tool
    def look() -> int:
        looked.append(1)
        return len(looked)

    model = script(calls(("look", {}), ("pay", {"amount": 500})), "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[look, pay]))
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert (event.data.tool, event.data.arguments, event.data.description) == ("pay", {"amount": 500}, "Pay.")
    assert event.data.parameters["properties"]["amount"]["type"] == "integer"
    assert not paid
    result = await workflow.run(run_id="r", responses={event.request_id: decide(event.data)})
    assert result.get_outputs()[0].text == "done"
    assert (paid, results(model), looked) == (really, ["1", told], [1])


async def test_several_that_the_sdk_held_back_are_asked_about_together_and_small_ones_are_not() -> None:
    @function_tool(needs_approval=big)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    model = script(calls(("pay", {"amount": 1}), ("pay", {"amount": 200}), ("pay", {"amount": 300})), "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[pay]))
    first, second = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={second.request_id: second.data.approve()})
    await workflow.run(run_id="r", responses={first.request_id: first.data.deny("no")})
    assert results(model) == ["paid 1", "The call was denied: no", "paid 300"]
    assert len(model.calls) == 2


async def test_changed_arguments_that_do_not_fit_are_told_to_the_model() -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    model = script(calls(("pay", {"amount": 500})), "I see")
    workflow = alone(Agent(name="clerk", model=model, tools=[pay]))
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={event.request_id: event.data.approve({"amount": "many"})})
    assert "An error occurred" in results(model)[0]


async def test_output_of_a_type_is_a_value() -> None:
    agent = Agent(name="clerk", model=script('{"weight": 4}'), output_type=Parcel)
    (answer,) = (await alone(agent).run("go")).get_outputs()
    assert (answer.value, json.loads(answer.text)) == (Parcel(weight=4), {"weight": 4})


async def test_a_model_that_cannot_speak_in_pieces_speaks_at_once() -> None:
    workflow = alone(Agent(name="clerk", instructions="Hello", model=Echo()))
    told = [event async for event in workflow.run("go", stream=True) if event.type in ("update", "output")]
    assert [event.data.text for event in told] == ["Hello: "]


async def test_the_agents_are_left_as_they_are() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    agent = Agent(name="clerk", model=script(calls(("pay", {})), "done", calls(("pay", {}), reply=2)), tools=[pay])
    before = dict(vars(agent))
    workflow = alone(agent)
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert vars(agent) == before
    assert len((await Runner.run(agent, "go")).interruptions) == 1


def test_tools_that_would_act_again_are_refused() -> None:
    async def shell(request: Any) -> str:
        return "done"

    with pytest.raises(DefinitionError, match="'shell' is a ShellTool"):
        AgentExecutor(Agent(name="clerk", tools=[ShellTool(executor=shell)]))
    assert AgentExecutor(Agent(name="clerk", tools=[WebSearchTool()])).id == "clerk"


async def test_pieces_are_told_and_what_a_stream_used_up_is_asked_for() -> None:
    model = script("one two")
    model.set_default_usage(Usage(requests=1, input_tokens=5, output_tokens=2, total_tokens=7))
    workflow = alone(Agent(name="clerk", model=model))
    told = [event async for event in workflow.run("go", stream=True) if event.type in ("update", "output")]
    assert "".join(event.data.text for event in told[:-1]) == "one two"
    assert told[-1].data.usage.tokens == 7
    assert model.last_call is not None
    assert model.last_call.model_settings.include_usage


@pytest.mark.parametrize("needs_approval", [True, big])
async def test_a_tool_that_both_the_agent_and_the_executor_hold_back_is_asked_about_once(needs_approval: Any) -> None:
    @function_tool(needs_approval=needs_approval)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    model = script(calls(("pay", {"amount": 500})), "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[pay]), approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve({"amount": 2})})
    assert result.get_outputs()[0].text == "done"
    assert results(model) == ["paid 2"]


async def test_a_budget_stops_it_and_what_must_not_be_repeated_is_asked_about() -> None:
    sent: list[str] = []

    @function_tool(failure_error_function=None)
    def send() -> str:
        sent.append(current_tool_call().idempotency_key)
        if len(sent) == 1:
            raise ConnectionError("no answer")
        return "sent"

    model = script(calls(("send", {})), "done")
    workflow = alone(Agent(name="clerk", model=model, tools=[send]), unsafe=["send"], budget=Budget(calls=1))
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    (event,) = (await workflow.run(run_id="r")).get_request_info_events()
    assert event.data == ToolOutcomeRequest("clerk", "send", {}, "call-1-0", sent[0])
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.ran("sent by then")})
    (event,) = result.get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(2)})
    assert result.get_outputs()[0].text == "done"
    assert (results(model), len(sent)) == (["sent by then"], 1)


@pytest.mark.process
def test_a_program_may_have_a_module_of_that_name_itself(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("async def writer(text: str) -> str:\n    return text.upper()\n")
    program = """
import asyncio
from agents import writer
from stepwell import AgentExecutor, WorkflowBuilder
print(asyncio.run(WorkflowBuilder(start_executor=AgentExecutor(writer)).build().run("done")).get_outputs()[0].text)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "DONE\n", done.stderr
