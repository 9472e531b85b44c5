"""What a request asks, in one sentence. Pure: it reads the stored form, and no class of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.admin.values import TEXT, open_value, to_line

_OURS = "stepwell:"
_QUESTIONS = ("question", "prompt")  # fields in which users' classes have the text of a question


def question_of(stored: Any, *, longest: int | None = TEXT) -> str:
    """Return what a stored request asks: a sentence, its field `question` or `prompt`, or its value on one line."""
    sentence = sentence_for(stored, longest=longest)
    if sentence is None and isinstance(fields := open_value(stored).content, dict):
        texts = (fields.get(name) for name in _QUESTIONS)
        sentence = next((to_line(text, longest=longest) for text in texts if isinstance(text, str) and text), None)
    return sentence or to_line(stored, longest=longest)


def sentence_for(stored: Any, *, longest: int | None = TEXT) -> str | None:
    """Return the question of an agent or a team as a sentence; None for any other request."""
    opened = open_value(stored)
    # The class is compared with its tag: a user's class may have the same name.
    is_ours = isinstance(stored, Mapping) and stored.get("$") == f"{_OURS}{opened.class_name}"
    ask = _SENTENCES.get(opened.class_name) if is_ours and isinstance(opened.content, dict) else None
    if ask is None:
        return None
    text = ask(opened.content)
    return text if longest is None or len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def call_of(name: Any, arguments: Any) -> str:
    """Return a tool call as people write it: `refund(order=7, amount=900)`."""
    content = open_value(arguments).content
    named = content if isinstance(content, dict) else {}
    written = ", ".join(f"{to_line(key)}={_quote(value)}" for key, value in named.items())
    return f"{to_line(name)}({written})"


def _quote(value: Any) -> str:
    text = to_line(value)
    return f'"{text}"' if isinstance(open_value(value).content, str) and value else text


def _approval(fields: Mapping[str, Any]) -> str:
    return f"May {_name(fields, 'agent')} call {call_of(fields.get('tool'), fields.get('arguments'))}?"


def _outcome(fields: Mapping[str, Any]) -> str:
    call = call_of(fields.get("tool"), fields.get("arguments"))
    return f"Did {call} of {_name(fields, 'agent')} run? It must not be repeated, and its result was lost."


def _budget(fields: Mapping[str, Any]) -> str:
    whose = "the run" if fields.get("whole_run") else _name(fields, "agent")
    spent, limit = to_line(fields.get("spent")), to_line(fields.get("limit"))
    return (
        f"{_name(fields, 'agent')} has stopped: {whose} has spent {spent} of {limit} {_name(fields, 'budget')}. "
        f"What is the new limit?"
    )


def _input(fields: Mapping[str, Any]) -> str:
    problem = f" (the last response was rejected: {to_line(fields['problem'])})" if fields.get("problem") else ""
    return f"{question_of(fields.get('data'))}{problem}"


def _node(fields: Mapping[str, Any]) -> str:
    message = fields.get("message")
    ask = to_line(message) if message else f"Is this output of {_name(fields, 'node')} right?"
    return f"{ask} {to_line(fields.get('output'))}"


def _user(fields: Mapping[str, Any]) -> str:
    return f"What do you say to the agents? {to_line(fields.get('agent_response'))}"


def _review(fields: Mapping[str, Any]) -> str:
    return f"Is this answer of {_name(fields, 'executor_id')} right? {to_line(fields.get('agent_response'))}"


def _plan(fields: Mapping[str, Any]) -> str:
    plan = open_value(fields.get("plan")).content
    # Its `data` is for the manager of the team: people read its text.
    text = open_value(plan.get("text")).content if isinstance(plan, dict) else None
    return f"Is this plan right? {to_line(' '.join(text.split()) if isinstance(text, str) else fields.get('plan'))}"


def _name(fields: Mapping[str, Any], key: str) -> str:
    return to_line(fields.get(key))


_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "ToolApprovalRequest": _approval,
    "ToolOutcomeRequest": _outcome,
    "BudgetRequest": _budget,
    "AgentInputRequest": _input,
    "NodeApprovalRequest": _node,
    "HandoffAgentUserRequest": _user,
    "AgentExecutorResponse": _review,
    "MagenticPlanReviewRequest": _plan,
}
