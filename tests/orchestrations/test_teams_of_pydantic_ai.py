"""Agents of a library hand over to each other, and one of them leads a team."""

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stepwell.orchestrations import HandoffBuilder, MagenticBuilder
from stepwell.testing import crash_everywhere
from tests.orchestrations.managed import PROMPTS, ledger


def text_of(messages: list[ModelMessage]) -> str:
    return str(messages[-1].parts[-1].content)  # type: ignore[union-attr]


def front(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    offered = [tool.name for tool in info.function_tools]
    assert offered == ["handoff_to_back"]
    return ModelResponse([TextPart("One moment."), ToolCallPart(offered[0], {}, "call-1")])


def back(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if "thanks" in text_of(messages):
        return ModelResponse([TextPart("You are welcome.")])
    return ModelResponse([TextPart(f"Here is the back office, after {len(messages[-1].parts)} messages.")])


def handing_over() -> HandoffBuilder:
    agents = [Agent(FunctionModel(front), name="front"), Agent(FunctionModel(back), name="back")]
    builder = HandoffBuilder(participants=agents).with_start_agent("front").add_handoff("front", ["back"])
    return builder.enable_return_to_previous()


@pytest.mark.long
async def test_agents_of_a_library_hand_over_and_die_everywhere() -> None:
    def answer(event: Any) -> Any:
        over = "welcome" in event.data.agent_response.text
        return event.data.terminate() if over else event.data.create_response("thanks")

    result = await handing_over().build().run("hello")
    assert [one.text for one in result.get_outputs()] == ["One moment.", "Here is the back office, after 2 messages."]
    report = await crash_everywhere(handing_over().build(), "hello", answer=answer)
    assert report.crashes > 15


def lead(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    asked, said = text_of(messages), [str(part.content) for part in messages[-1].parts]  # type: ignore[union-attr]
    if asked.startswith("PROGRESS"):
        return ModelResponse([TextPart(ledger("writer", "write it", done=any("a lamp" in one for one in said)))])
    return ModelResponse([TextPart(f"{asked.split()[0]} in {len(said)}")])


def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([TextPart("a lamp is a lamp")])


@pytest.mark.long
async def test_an_agent_of_a_library_leads_a_team_and_dies_everywhere() -> None:
    def build() -> MagenticBuilder:
        writer = Agent(FunctionModel(write), name="writer")
        return MagenticBuilder(participants=[writer], manager_agent=Agent(FunctionModel(lead), name="lead"), **PROMPTS)

    result = await build().build().run("a poem")
    assert [one.text for one in result.get_outputs()] == ["ANSWER? in 4"]
    report = await crash_everywhere(build().build(), "a poem")
    assert report.crashes > 20
