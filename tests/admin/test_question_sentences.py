"""A request reads as a question."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.admin.questions import question_of
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message
from stepwell.agents.requests import AgentInputRequest, BudgetRequest, ToolApprovalRequest, ToolOutcomeRequest
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative.messages import NodeApprovalRequest
from stepwell.orchestrations.handoff.agents import HandoffAgentUserRequest
from stepwell.orchestrations.magentic.values import MagenticPlanReviewRequest
from tests.support.operating_runs import Order

SAID = AgentResponse([Message("assistant", "hello")])


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ("Ship it?", "Ship it?"),
        (Order(7, ["tea"]), '{"id":7,"lines":["tea"]}'),
        (
            ToolApprovalRequest("clerk", "pay", {"to": "Ada", "amount": 5}, "c", parameters={"type": "object"}),
            'May clerk call pay(to="Ada", amount=5)?',
        ),
        (
            ToolOutcomeRequest("clerk", "pay", {}, "c", "key"),
            "Did pay() of clerk run? It must not be repeated, and its result was lost.",
        ),
        (
            BudgetRequest("clerk", "tokens", 100, 120, whole_run=False),
            "clerk has stopped: clerk has spent 120 of 100 tokens. What is the new limit?",
        ),
        (AgentInputRequest("clerk", "Which size?"), "Which size?"),
        (
            AgentInputRequest("clerk", "Which?", problem="no size"),
            "Which? (the last response was rejected: no size)",
        ),
        (NodeApprovalRequest("draft", "a text"), "Is this output of draft right? a text"),
        (NodeApprovalRequest("draft", "a text", "Good enough?"), "Good enough? a text"),
        (HandoffAgentUserRequest(SAID), "What do you say to the agents? hello"),
        (AgentExecutorResponse("writer", SAID), "Is this answer of writer right? hello"),
        (MagenticPlanReviewRequest(Message("assistant", "first tea")), "Is this plan right? first tea"),
        (
            MagenticPlanReviewRequest(Message("assistant", "first\n\ntea", data={"facts": ["hot"]})),
            "Is this plan right? first tea",
        ),
    ],
)
def test_a_request_reads_as_a_question(request_: Any, sentence: str) -> None:
    assert question_of(json.loads(DEFAULT_CODEC.encode(request_))) == sentence


def test_a_class_of_the_user_is_not_taken_for_one_of_ours() -> None:
    assert question_of({"$": "shop:BudgetRequest", "v": {"agent": "a"}}) == '{"agent":"a"}'
    assert question_of({"$": "stepwell:BudgetRequest", "v": 3}) == "3"


def test_the_text_of_a_users_own_question_is_shown_without_the_rest_of_it() -> None:
    assert question_of({"$": "shop:Refund", "v": {"amount": 3, "question": "Refund 3?"}}) == "Refund 3?"
    assert question_of({"prompt": "Which colour?", "colours": ["red"]}) == "Which colour?"
    assert question_of({"question": "", "amount": 3}) == '{"question":"","amount":3}'


def test_a_long_question_is_cut() -> None:
    request = ToolApprovalRequest("clerk", "pay", {"memo": "x" * 500}, "c")
    stored = json.loads(DEFAULT_CODEC.encode(request))
    assert question_of(stored, longest=40) == 'May clerk call pay(memo="xxxxxxxxxxxxxxx... (248 characters)'
