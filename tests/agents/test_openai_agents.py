"""Agents of the OpenAI Agents SDK: what is true of them beyond the contract that all libraries share."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from pydantic import BaseModel

from agents import (
    Agent,
    HandoffInputData,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    Runner,
    ShellTool,
    ToolOutputImage,
    ToolOutputText,
    Usage,
    WebSearchTool,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from holdfast import (
    AgentExecutor,
    DefinitionError,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RunError,
    Workflow,
    WorkflowBuilder,
)
from holdfast.agents import Budget, ScriptedAgent, ToolOutcomeRequest, current_tool_call, usage_in
from holdfast.agents.adapters.openai_agents import OpenAIAgent
from holdfast.testing import crash_everywhere


@pytest.fixture(autouse=True)
def nothing_is_sent_away() -> Iterator[None]:
    set_tracing_disabled(True)
    yield
    set_tracing_disabled(False)


def script(*replies: Any) -> ScriptedModel:
    """A model that says these texts, makes these calls, fails with these errors."""
    return ScriptedModel([[assistant_message(one)] if isinstance(one, str) else one for one in replies])


def calls(*tools: tuple[str, dict[str, Any]], reply: int = 1) -> list[Any]:
    return [function_call(name, given, call_id=f"call-{reply}-{n}") for n, (name, given) in enumerate(tools)]


def alone(agent: Any, **options: Any) -> Workflow:
    start = AgentExecutor(agent, id="clerk", **options)
    return WorkflowBuilder(name="alone", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()


def asked(model: ScriptedModel) -> list[Any]:
    """What the model was asked last."""
    assert model.last_call is not None
    items: list[Any] = model.last_call.input
    return items


def results(model: ScriptedModel) -> list[Any]:
    return [item["output"] for item in asked(model) if item.get("type") == "function_call_output"]


async def say(workflow: Workflow, text: str, run_id: str) -> str:
    """Say something more to a run that is done."""
    handle = workflow.attach(run_id)
    await handle.send(text)
    answer: str = (await handle.result()).get_outputs()[-1].text
    return answer


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


async def big(ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
    return bool(arguments["amount"] > 100)


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


async def test_output_of_a_type_is_a_value() -> None:
    agent = Agent(name="clerk", model=script('{"weight": 4}'), output_type=Parcel)
    (answer,) = (await alone(agent).run("go")).get_outputs()
    assert (answer.value, json.loads(answer.text)) == (Parcel(weight=4), {"weight": 4})


class Echo(Model):
    """Replies by what it is given alone, and at once: it calls each tool that it has, and says what they gave."""

    def __init__(self) -> None:
        self.calls = 0

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *given: Any, **known: Any
    ) -> ModelResponse:
        self.calls += 1
        items = [] if isinstance(input, str) else input
        said = [item["output"] for item in items if item.get("type") == "function_call_output"]
        output = [function_call(tool.name, self._arguments(tool), call_id=f"call-{tool.name}") for tool in tools]
        if said or not tools:
            output = [assistant_message(f"{system_instructions}: {', '.join(said)}")]
        return ModelResponse(output, Usage(requests=1, input_tokens=5, output_tokens=2, total_tokens=7), None)

    def _arguments(self, tool: Any) -> dict[str, Any]:
        values = {"integer": 200, "string": "go on"}
        return {name: values[about["type"]] for name, about in tool.params_json_schema["properties"].items()}

    def stream_response(self, *given: Any, **known: Any) -> Any:
        raise NotImplementedError


class One(ModelProvider):
    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        return self._model


async def test_a_model_that_cannot_speak_in_pieces_speaks_at_once() -> None:
    workflow = alone(Agent(name="clerk", instructions="Hello", model=Echo()))
    told = [event async for event in workflow.run("go", stream=True) if event.type in ("update", "output")]
    assert [event.data.text for event in told] == ["Hello: "]


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
    tools = [hands.as_tool("hands", "Pays."), eyes.as_tool("eyes", "Looks.")]
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
    with pytest.raises(RunError, match="under one id"):
        await alone(head).run("go")


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


async def test_an_agent_of_the_sdk_that_hands_over_to_one_of_the_workflow_takes_the_next_turn() -> None:
    front, front_model, _ = offices(calls(("boss", {}), reply=2), "the back again")
    workflow = alone(front, handoffs={"boss": "Decides."})
    (answer,) = (await workflow.run("go", run_id="r")).get_outputs()
    assert answer.handoff == "boss"
    assert await say(workflow, "well?", "r") == "the back again"
    assert len(front_model.calls) == 1


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
