"""The questions of agents and their teams: what can be said to each, and no more. Pure.

The type of such an answer has a field for everything that might be said. What belongs together is known only here, and
what an edited call or an agent's own question wants is said in the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.cli.forms.json_schema import fields_of, needed_in

_FOR_FORMS = ("parameters", "response_schema")  # parts of a question that are schemas: a person is shown the form


def schema_for(question: Any, response_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema to make a form of: that of the answer, or a closer one if it is known what is asked."""
    closer = _closer(question, response_type)
    return schema if closer is None else closer(question["v"])


def shown(question: Any, response_type: str) -> Any:
    """What a person is to see of a question."""
    if _closer(question, response_type) is None:
        return question
    return {name: value for name, value in question["v"].items() if name not in _FOR_FORMS}


def _closer(question: Any, response_type: str) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
    if not isinstance(question, Mapping) or not isinstance(question.get("v"), Mapping):
        return None
    return _CLOSER.get((str(question.get("$")), response_type))


def _approval(asked: Mapping[str, Any]) -> dict[str, Any]:
    text = {"type": "string", "default": "", "description": "The agent is told this."}
    result = {"description": "The agent is told that the tool gave this."}
    return {
        "oneOf": [
            _said("approve", {"decision": {"const": "approve"}}),
            _said("edit", {"decision": {"const": "approve"}, "arguments": _arguments(asked)}, "arguments"),
            _said("deny", {"decision": {"const": "deny"}, "reason": text}),
            _said("answer", {"decision": {"const": "answer"}, "result": result}, "result"),
        ],
        "$defs": _defined_in(asked.get("parameters")),
    }


def _outcome(asked: Mapping[str, Any]) -> dict[str, Any]:
    result = {"description": "What it gave.", "default": None}
    return {
        "oneOf": [
            _said("ran", {"happened": {"const": "ran"}, "result": result}),
            _said("did not run", {"happened": {"const": "did not run"}}),
            _said("retry", {"happened": {"const": "retry"}}),
        ]
    }


def _budget(asked: Mapping[str, Any]) -> dict[str, Any]:
    spent = asked.get("spent")
    limit = {"type": "number", "exclusiveMinimum": spent, "description": "The new limit."}
    return _said("BudgetResponse", {"limit": limit}, "limit")


def _input(asked: Mapping[str, Any]) -> dict[str, Any]:
    wanted = asked.get("response_schema")
    return {**_said("AgentInputResponse", {"value": wanted or {}}, "value"), "$defs": _defined_in(wanted)}


def _node(asked: Mapping[str, Any]) -> dict[str, Any]:
    reason = {"type": "string", "default": ""}
    output = {"description": "What is used instead of what the node gave."}
    return {
        "oneOf": [
            _said("approve", {"approved": {"const": True}}),
            _said("edit", {"approved": {"const": True}, "output": output}, "output"),
            _said("deny", {"approved": {"const": False}, "reason": reason}),
        ]
    }


def _plan(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [_said("approve", {}), _said("revise", {"review": _MESSAGES}, "review")]}


def _reviewed(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [_said("approve", {}), _said("answer again", {"messages": _MESSAGES}, "messages")]}


def _user(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"title": "say", **_MESSAGES}, {"title": "end the conversation", "type": "array", "maxItems": 0}]}


_CLOSER: dict[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    ("stepwell:ToolApprovalRequest", "ToolApprovalResponse"): _approval,
    ("stepwell:ToolOutcomeRequest", "ToolOutcomeResponse"): _outcome,
    ("stepwell:BudgetRequest", "BudgetResponse"): _budget,
    ("stepwell:AgentInputRequest", "AgentInputResponse"): _input,
    ("stepwell:AgentExecutorResponse", "AgentRequestInfoResponse"): _reviewed,
    ("stepwell:NodeApprovalRequest", "NodeApprovalResponse"): _node,
    ("stepwell:HandoffAgentUserRequest", "list[Message]"): _user,
    ("stepwell:MagenticPlanReviewRequest", "MagenticPlanReviewResponse"): _plan,
}
"""By what is asked and what is wanted for it."""


def _said(title: str, fields: dict[str, Any], *needed: str) -> dict[str, Any]:
    fixed = [name for name, schema in fields.items() if "const" in schema]
    return {"title": title, "type": "object", "properties": fields, "required": [*fixed, *needed]}


def _arguments(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tool, each as it was asked about unless it is typed anew."""
    given, parameters = asked.get("arguments"), asked.get("parameters")
    given = dict(given) if isinstance(given, Mapping) else {}
    parameters = dict(parameters) if isinstance(parameters, Mapping) else {}
    known = fields_of(parameters)
    fields = {name: {**_mapping(known.get(name)), "default": value} for name, value in given.items()}
    needed = [*given, *(name for name in needed_in(parameters) if name not in given)]
    return {**parameters, "type": "object", "properties": {**known, **fields}, "required": needed}


def _defined_in(schema: Any) -> dict[str, Any]:
    """What references inside a schema lead to, when it is part of another."""
    defined = schema.get("$defs") if isinstance(schema, Mapping) else None
    return dict(defined) if isinstance(defined, Mapping) else {}


def _mapping(schema: Any) -> dict[str, Any]:
    return dict(schema) if isinstance(schema, Mapping) else {}


def _one_message() -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return _said("Message", {"role": {"const": "user"}, "text": text}, "text")


_MESSAGES = {"type": "array", "prefixItems": [_one_message()], "items": False, "minItems": 1, "maxItems": 1}
