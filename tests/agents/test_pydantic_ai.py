"""Agents of pydantic-ai: what is true of them beyond the contract that all libraries share."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.capabilities import ProcessEventStream, ProcessHistory
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from stepwell import AgentExecutor, DefinitionError, HandlerFailed, InMemoryCheckpointStorage, Message, WorkflowBuilder
from stepwell.agents import ScriptedAgent, current_tool_call
from stepwell.agents.adapters.pydantic_ai import PydanticAIAgent
from stepwell.testing import crash_everywhere
from tests.agents.pydantic_ai_scripts import Script, alone, calls, text_of


@pytest.mark.long
async def test_an_agent_is_known_by_its_name_and_must_have_one() -> None:
    agent = Agent(TestModel(custom_output_text="hello"), name="clerk", description="Helps.")
    workflow = WorkflowBuilder(start_executor=agent).build()
    (executor,) = workflow.executors.values()
    assert (executor.id, executor.description) == ("clerk", "Helps.")
    assert await text_of(workflow) == "hello"
    with pytest.raises(DefinitionError, match="has no name"):
        AgentExecutor(Agent(TestModel()))
    assert AgentExecutor(PydanticAIAgent(Agent(TestModel()), name="porter")).id == "porter"


async def test_tools_get_the_dependencies_and_the_key_of_their_call() -> None:
    keys: list[str] = []

    def look(ctx: RunContext[int]) -> int:
        keys.append(current_tool_call().idempotency_key)
        return ctx.deps

    script = Script(calls(("look", {})), "done")
    agent = Agent(script.model, deps_type=int, tools=[look])
    assert await text_of(alone(PydanticAIAgent(agent, deps=7, name="clerk"))) == "done"
    assert script.results() == [7]
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    "said", ["hello", [Message("system", "It is May."), Message("user", "hello"), "are you there?"]]
)
async def test_the_system_prompt_comes_first_and_once_over_all_turns(said: Any) -> None:
    script = Script("one", "two")
    agent = Agent(script.model, name="clerk", system_prompt="Be short.")
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=agent, checkpoint_storage=storage).build()
    result = await workflow.run(said)
    prompts = [part.content for part in script.parts(SystemPromptPart)]
    assert (prompts[0], prompts.count("Be short.")) == ("Be short.", 1)
    handle = workflow.attach(result.run_id, drive=True)
    await handle.send("go on")
    await handle.result()
    assert [part.content for part in script.parts(SystemPromptPart)] == prompts
    assert script.parts(UserPromptPart, TextPart)[-2].content == "one"
    assert script.parts(UserPromptPart)[-1].content == "go on"


async def test_what_other_agents_said_is_said_by_users_with_their_names() -> None:
    script = Script("noted")
    writer, critic = ScriptedAgent("writer", ["a text"]), Agent(script.model, name="critic")
    await WorkflowBuilder(start_executor=writer).add_edge(writer, critic).build().run("write")
    assert [part.content for part in script.parts(UserPromptPart)] == ["write", "writer: a text"]


class Parcel(BaseModel):
    weight: int
    sent: date


@dataclass
class Place:
    city: str


async def test_what_tools_give_is_the_same_when_it_is_recalled() -> None:
    ran: list[str] = []

    def parcel() -> Parcel:
        ran.append("parcel")
        return Parcel(weight=3, sent=date(2026, 5, 1))

    def places() -> list[Place]:
        return [Place("Rome")]

    def picture() -> BinaryContent:
        return BinaryContent(b"\x89PNG", media_type="image/png")

    def rich() -> ToolReturn:
        return ToolReturn("short", content="and at length", metadata={"page": 2})

    wanted = calls(("parcel", {}), ("places", {}), ("picture", {}), ("rich", {}))
    script = Script(wanted, ConnectionError("gone"), "done")
    workflow = alone(Agent(script.model, name="clerk", tools=[parcel, places, picture, rich]))
    with pytest.raises(HandlerFailed, match="gone"):
        await workflow.run("go", run_id="r")
    before = script.results()
    await workflow.run(run_id="r")
    assert script.results() == before
    assert before[:2] == [{"weight": 3, "sent": "2026-05-01"}, [{"city": "Rome"}]]
    assert isinstance(before[2], BinaryContent)
    assert before[3] == "short"
    assert script.parts(UserPromptPart)[-1].content == "and at length"
    assert script.parts(ToolReturnPart)[3].metadata == {"page": 2}
    assert ran == ["parcel"]


async def test_a_tool_that_wants_a_retry_or_failed_for_good_is_not_called_again_when_recalled() -> None:
    ran: list[str] = []

    def guess(number: int) -> str:
        ran.append(f"guess {number}")
        if number > 3:
            raise ModelRetry("too high")
        return "right"

    def find() -> str:
        ran.append("find")
        raise ToolFailed("nothing there")

    script = Script(
        calls(("guess", {"number": 9}), ("find", {})), OSError("gone"), calls(("guess", {"number": 2})), "done"
    )
    workflow = alone(Agent(script.model, name="clerk", tools=[guess, find], retries=3))
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    assert (await workflow.run(run_id="r")).get_outputs()[0].text == "done"
    assert sorted(ran[:2]) == ["find", "guess 9"]  # both in threads of their own, in whatever order
    assert ran[2:] == ["guess 2"]
    assert "too high" in str(script.given[2][-1].parts)
    assert "nothing there" in str(script.given[2][-1].parts)


async def test_output_of_a_type_is_a_value_and_validators_see_it_after_an_approval() -> None:
    def pay(amount: int) -> str:
        return "paid"

    final = ToolCallPart("final_result", {"weight": 4, "sent": "2026-05-02"}, "out")
    script = Script(calls(("pay", {"amount": 1})), [final])
    agent = Agent(script.model, name="clerk", tools=[Tool(pay, requires_approval=True)], output_type=Parcel)
    checked: list[int] = []

    @agent.output_validator
    def check(parcel: Parcel) -> Parcel:
        checked.append(parcel.weight)
        return parcel

    workflow = alone(agent)
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    (answer,) = (await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})).get_outputs()
    assert answer.value == Parcel(weight=4, sent=date(2026, 5, 2))
    assert answer.text == '{"weight":4,"sent":"2026-05-02"}'
    assert checked == [4]


async def test_pieces_are_told_if_the_model_can_speak_in_pieces() -> None:
    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("one ", "two"):
            yield word

    async def pieces(model: FunctionModel) -> list[str]:
        workflow = alone(Agent(model, name="clerk"))
        return [event.data.text async for event in workflow.run("go", stream=True) if event.type == "update"]

    assert await pieces(FunctionModel(stream_function=speak)) == ["one ", "two"]
    assert await pieces(Script("all").model) == []


async def test_a_handler_of_events_that_the_agent_has_hears_of_everything() -> None:
    heard: list[str] = []

    async def listen(ctx: RunContext[Any], events: Any) -> None:
        heard.extend([event.event_kind async for event in events])

    def look() -> int:
        return 1

    script = Script(calls(("look", {})), "done")
    agent = Agent(script.model, name="clerk", tools=[look], capabilities=[ProcessEventStream(listen)])
    assert await text_of(alone(agent)) == "done"
    assert {"part_start", "function_tool_call", "function_tool_result"} <= set(heard)


async def test_what_the_library_does_to_the_history_is_done_each_time_and_all_of_it_is_kept() -> None:
    def last(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-1:]

    script = Script("one", OSError("gone"), "two", "three")
    agent = Agent(script.model, name="clerk", capabilities=[ProcessHistory(last)])
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=agent, checkpoint_storage=storage).build()
    await workflow.run("a", run_id="r")
    handle = workflow.attach("r", drive=True)
    for text in ("b", "c"):
        await handle.send(text)
        try:
            await handle.result()
        except HandlerFailed:
            await workflow.run(run_id="r")
        assert [part.content for part in script.parts(UserPromptPart)] == [text]
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    kept = [part["content"] for message in checkpoint.state["agents/clerk/history"] for part in message["parts"]]
    assert kept == ["a", "one", "b", "two", "c", "three"]


@pytest.mark.long
async def test_it_comes_to_the_same_wherever_it_dies_with_the_test_model() -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    def look() -> int:
        return 1

    agent = Agent(TestModel(), name="clerk", tools=[Tool(pay, requires_approval=True), look], output_type=Parcel)
    workflow = WorkflowBuilder(start_executor=agent).build()
    report = await crash_everywhere(workflow, "go", answer=lambda event: event.data.approve())
    assert report.crashes > 10


async def test_who_hands_over_in_the_middle_owes_no_results() -> None:
    def look() -> int:
        return 1

    together = [TextPart("One moment."), *calls(("look", {}), ("boss", {}))]
    script = Script(calls(("look", {})), together, "back again")
    workflow = alone(Agent(script.model, name="clerk", tools=[look]), handoffs={"boss": "Decides."})
    (answer,) = (await workflow.run("go", run_id="r")).get_outputs()
    assert (answer.text, answer.handoff) == ("One moment.", "boss")
    handle = workflow.attach("r", drive=True)
    await handle.send("and now?")
    await handle.result()
    assert script.results() == [1, "Not called.", "Handed over to boss."]
    assert [part.content for part in script.parts(UserPromptPart)] == ["go", "and now?"]
