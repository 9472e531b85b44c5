"""What agents and their teams ask: the form offers what can be said to it, and comes to what the program takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import Message
from stepwell.admin.schemas.validation import problems
from stepwell.admin.values import to_lines
from stepwell.agents import AgentExecutorResponse, AgentResponse
from stepwell.agents.requests import (
    AgentInputRequest,
    AgentInputResponse,
    BudgetRequest,
    BudgetResponse,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
)
from stepwell.cli.forms.agent_forms import schema_for
from stepwell.cli.forms.schema_form import build_form
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative.messages import NodeApprovalRequest, NodeApprovalResponse
from stepwell.orchestrations.handoff.agents import HandoffAgentUserRequest
from stepwell.orchestrations.magentic.values import MagenticPlanReviewRequest, MagenticPlanReviewResponse
from stepwell.orchestrations.review import AgentRequestInfoResponse
from stepwell.storage.response_types import answer_as, schema_of, type_words

PARAMETERS = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"$ref": "#/$defs/Money"}, "urgent": {"type": "boolean"}},
    "required": ["to", "amount"],
    "$defs": {"Money": {"type": "integer", "minimum": 1}},
}
PAY = ToolApprovalRequest("clerk", "pay", {"to": "ada", "amount": 300}, "call-0", parameters=PARAMETERS)
PAID = ToolOutcomeRequest("clerk", "pay", {}, "call-0", "key-0")
SPENT = BudgetRequest("clerk", "cost", 5.0, 6.5, whole_run=False)
OWN = AgentInputRequest("clerk", "how many?", {"type": "integer", "minimum": 1})
NODE = NodeApprovalRequest("draft", "a text")
SAID = AgentResponse([Message("assistant", "done")])
PLAN = MagenticPlanReviewRequest(Message("assistant", "1. tea"))
USER = HandoffAgentUserRequest(SAID)
ANSWERED = AgentExecutorResponse("writer", SAID)


def filled(schema: Any, texts: Iterator[str]) -> Any:
    form = build_form(schema)
    try:
        next(form)
        while True:
            form.send(next(texts))
    except StopIteration as ended:
        assert next(texts, None) is None
        return ended.value


@pytest.mark.parametrize(
    ("question", "wanted", "typed", "meant"),
    [
        (PAY, ToolApprovalResponse, ["approve"], PAY.approve()),
        (PAY, ToolApprovalResponse, ["edit", "", "250", ""], PAY.approve({"to": "ada", "amount": 250})),
        (
            PAY,
            ToolApprovalResponse,
            ["e", "bob", "0", "1", "y"],
            PAY.approve({"to": "bob", "amount": 1, "urgent": True}),
        ),
        (PAY, ToolApprovalResponse, ["deny", ""], PAY.deny()),
        (PAY, ToolApprovalResponse, ["deny", "too much"], PAY.deny("too much")),
        (PAY, ToolApprovalResponse, ["answer", '{"paid": 1}'], PAY.answer({"paid": 1})),
        (PAID, ToolOutcomeResponse, ["ran", "all of it"], PAID.ran("all of it")),
        (PAID, ToolOutcomeResponse, ["ran", ""], PAID.ran()),
        (PAID, ToolOutcomeResponse, ["did"], PAID.did_not_run()),
        (PAID, ToolOutcomeResponse, ["3"], PAID.retry()),
        (SPENT, BudgetResponse, ["5", "10"], SPENT.raise_to(10)),
        (OWN, AgentInputResponse, ["many", "0", "2"], OWN.answer(2)),
        (NODE, NodeApprovalResponse, ["approve"], NODE.approve()),
        (NODE, NodeApprovalResponse, ["edit", "another"], NODE.approve("another")),
        (NODE, NodeApprovalResponse, ["deny", "dull"], NODE.deny("dull")),
        (PLAN, MagenticPlanReviewResponse, ["approve"], PLAN.approve()),
        (PLAN, MagenticPlanReviewResponse, ["revise", "no tea"], PLAN.revise("no tea")),
        (USER, list[Message], ["say", "hello"], USER.create_response("hello")),
        (USER, list[Message], ["end"], USER.terminate()),
        (ANSWERED, AgentRequestInfoResponse, ["approve"], AgentRequestInfoResponse.approve()),
        (ANSWERED, AgentRequestInfoResponse, ["2", "shorter"], AgentRequestInfoResponse.from_strings(["shorter"])),
    ],
)
def test_what_is_typed_comes_to_what_the_program_would_have_said(
    question: Any, wanted: Any, typed: list[str], meant: Any
) -> None:
    stored, schema = json.loads(DEFAULT_CODEC.encode(question, "$")), json.loads(schema_of(wanted))
    value = filled(schema_for(stored, type_words(wanted), schema), iter(typed))
    assert not list(problems(schema, value))
    assert _plain(answer_as(value, [wanted])) == _plain(meant)
    assert not [line for line in to_lines(stored) if line.startswith(("parameters", "response_schema"))]


def _plain(said: Any) -> Any:
    """No messages in a list and none in a tuple are the same to whoever reads them."""
    return json.loads(DEFAULT_CODEC.encode(said, "$").replace(b'{"$":"tuple","v":[]}', b"[]"))


def test_what_is_not_known_is_asked_by_its_schema() -> None:
    schema = {"type": "boolean"}
    stored = json.loads(DEFAULT_CODEC.encode(PAY, "$"))
    alien = {"$": "shop:ToolApprovalRequest", "v": stored["v"]}
    questions: list[Any] = [stored, alien, {"$": []}, "text", None, ["a"]]
    for question in questions:
        assert schema_for(question, "bool", schema) is schema
