"""An agent that leads a team is asked for its decision in the format of its model, where its library has one."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import agent_framework
import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stepwell import InMemoryCheckpointStorage, Message
from stepwell.orchestrations import GroupChatBuilder, MagenticBuilder
from stepwell.orchestrations.group_chat.values import AgentOrchestrationOutput
from stepwell.orchestrations.magentic.values import MagenticProgressLedger
from tests.compat.scripted import Client

SPEAK = {"terminate": False, "reason": "so", "next_speaker": "writer"}
END = {"terminate": True, "reason": "done", "final_message": "ended"}


def ledger(satisfied: bool) -> str:
    answers = {"is_request_satisfied": satisfied, "is_in_loop": False, "is_progress_being_made": True,
               "next_speaker": "writer", "instruction_or_question": "write"}  # fmt: skip
    return json.dumps({key: {"reason": "so", "answer": answer} for key, answer in answers.items()})


async def writer(messages: list[Message]) -> str:
    return "a poem"


def leader(*replies: str, **options: Any) -> tuple[Client, agent_framework.Agent[Any]]:
    client = Client(*replies)
    return client, agent_framework.Agent(client, name="leader", **options)


async def test_a_leader_of_agent_framework_is_asked_for_a_decision() -> None:
    client, lead = leader(json.dumps(SPEAK), json.dumps(END))
    storage = InMemoryCheckpointStorage()
    team = GroupChatBuilder(participants=[writer], orchestrator_agent=lead, checkpoint_storage=storage).build()
    result = await team.run("write")
    assert "ended" in result.get_outputs()[-1].text
    formats = [options["response_format"] for options in client.options]
    assert [list(model.model_fields) for model in formats] == [[f.name for f in fields(AgentOrchestrationOutput)]] * 2


async def test_a_participant_is_not_asked_for_a_decision() -> None:
    client, lead = leader(json.dumps(SPEAK), json.dumps(END))
    poet = Client("a poem")
    participant: agent_framework.Agent[Any] = agent_framework.Agent(poet, name="writer")
    await GroupChatBuilder(participants=[participant], orchestrator_agent=lead).build().run("write")
    assert "response_format" not in poet.options[0]
    assert client.options


async def test_a_leader_with_a_format_of_its_own_keeps_it() -> None:
    own = {"type": "json_object"}
    client, lead = leader(json.dumps(SPEAK), json.dumps(END), default_options={"response_format": own})
    await GroupChatBuilder(participants=[writer], orchestrator_agent=lead).build().run("write")
    assert client.options[0]["response_format"] == own


async def test_an_answer_that_is_not_a_decision_is_explained_to_the_leader() -> None:
    client, lead = leader("let me think", json.dumps(SPEAK), json.dumps(END))
    result = await GroupChatBuilder(participants=[writer], orchestrator_agent=lead).build().run("write")
    assert "ended" in result.get_outputs()[-1].text
    assert "could not be used" in client.requests[1][-1][1]


async def test_a_manager_of_agent_framework_is_asked_for_a_ledger() -> None:
    client, manager = leader("facts", "plan", ledger(False), ledger(True), "answered")
    team = MagenticBuilder(participants=[writer], manager_agent=manager).build()
    result = await team.run("write")
    assert "answered" in result.get_outputs()[-1].text
    asked = [options.get("response_format") for options in client.options]
    names = [field.name for field in fields(MagenticProgressLedger)]
    assert [model and list(model.model_fields) for model in asked] == [None, None, names, names, None]


@pytest.mark.parametrize("by_tool", [True, False])
async def test_a_leader_of_pydantic_ai_may_decide_by_its_output_tool_or_in_text(by_tool: bool) -> None:
    decisions = [SPEAK, END]
    tools: list[list[str]] = []

    def decide(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools.append([tool.name for tool in info.output_tools])
        decision = decisions[len(tools) - 1]
        part = ToolCallPart(tools[-1][0], decision) if by_tool else TextPart(json.dumps(decision))
        return ModelResponse([part])

    lead = PydanticAgent(FunctionModel(decide), name="leader")
    storage = InMemoryCheckpointStorage()
    team = GroupChatBuilder(participants=[writer], orchestrator_agent=lead, checkpoint_storage=storage).build()
    result = await team.run("write")
    assert "ended" in result.get_outputs()[-1].text
    assert [len(offered) for offered in tools] == [1, 1]
