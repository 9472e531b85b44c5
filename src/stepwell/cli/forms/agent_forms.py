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
    build = _find_schema_builder(question, response_type)
    return schema if build is None else build(question["v"])


def select_visible(question: Any, response_type: str) -> Any:
    """What a person is to see of a question."""
    if _find_schema_builder(question, response_type) is None:
        return question
    return {name: value for name, value in question["v"].items() if name not in _FOR_FORMS}


def _find_schema_builder(question: Any, response_type: str) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
    if not isinstance(question, Mapping) or not isinstance(question.get("v"), Mapping):
        return None
    return _SCHEMA_BUILDERS.get((str(question.get("$")), response_type))


def _approval(question: Mapping[str, Any]) -> dict[str, Any]:
    text = {"type": "string", "default": "", "description": "The agent is told this."}
    result = {"description": "The agent is told that the tool gave this."}
    return {
        "oneOf": [
            _object("approve", {"decision": {"const": "approve"}}),
            _object("edit", {"decision": {"const": "approve"}, "arguments": _arguments(question)}, "arguments"),
            _object("deny", {"decision": {"const": "deny"}, "reason": text}),
            _object("answer", {"decision": {"const": "answer"}, "result": result}, "result"),
        ],
        "$defs": _find_definitions(question.get("parameters")),
    }


def _outcome(question: Mapping[str, Any]) -> dict[str, Any]:
    result = {"description": "What it gave.", "default": None}
    return {
        "oneOf": [
            _object("ran", {"happened": {"const": "ran"}, "result": result}),
            _object("did not run", {"happened": {"const": "did not run"}}),
            _object("retry", {"happened": {"const": "retry"}}),
        ]
    }


def _budget(question: Mapping[str, Any]) -> dict[str, Any]:
    spent = question.get("spent")
    limit = {"type": "number", "exclusiveMinimum": spent, "description": "The new limit."}
    return _object("BudgetResponse", {"limit": limit}, "limit")


def _input(question: Mapping[str, Any]) -> dict[str, Any]:
    wanted = question.get("response_schema")
    return {**_object("AgentInputResponse", {"value": wanted or {}}, "value"), "$defs": _find_definitions(wanted)}


def _node(question: Mapping[str, Any]) -> dict[str, Any]:
    reason = {"type": "string", "default": ""}
    output = {"description": "What is used instead of what the node gave."}
    return {
        "oneOf": [
            _object("approve", {"decision": {"const": "approve"}}),
            _object("edit", {"decision": {"const": "approve"}, "output": output}, "output"),
            _object("deny", {"decision": {"const": "deny"}, "reason": reason}),
        ]
    }


def _plan(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [_object("approve", {}), _object("revise", {"review": _MESSAGES}, "review")]}


def _review(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [_object("approve", {}), _object("answer again", {"messages": _MESSAGES}, "messages")]}


def _user(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"title": "say", **_MESSAGES}, {"title": "end the conversation", "type": "array", "maxItems": 0}]}


_SCHEMA_BUILDERS: dict[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    ("stepwell:ToolApprovalRequest", "ToolApprovalResponse"): _approval,
    ("stepwell:ToolOutcomeRequest", "ToolOutcomeResponse"): _outcome,
    ("stepwell:BudgetRequest", "BudgetResponse"): _budget,
    ("stepwell:AgentInputRequest", "AgentInputResponse"): _input,
    ("stepwell:AgentExecutorResponse", "AgentRequestInfoResponse"): _review,
    ("stepwell:NodeApprovalRequest", "NodeApprovalResponse"): _node,
    ("stepwell:HandoffAgentUserRequest", "list[Message]"): _user,
    ("stepwell:MagenticPlanReviewRequest", "MagenticPlanReviewResponse"): _plan,
}
"""By what is asked and what is wanted for it."""


def _object(title: str, fields: dict[str, Any], *needed: str) -> dict[str, Any]:
    fixed = [name for name, schema in fields.items() if "const" in schema]
    return {"title": title, "type": "object", "properties": fields, "required": [*fixed, *needed]}


def _arguments(question: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tool, each as it was asked about unless it is typed anew."""
    arguments, parameters = question.get("arguments"), question.get("parameters")
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {}
    parameters = dict(parameters) if isinstance(parameters, Mapping) else {}
    declared = fields_of(parameters)
    fields = {name: {**_as_dict(declared.get(name)), "default": value} for name, value in arguments.items()}
    needed = [*arguments, *(name for name in needed_in(parameters) if name not in arguments)]
    return {**parameters, "type": "object", "properties": {**declared, **fields}, "required": needed}


def _find_definitions(schema: Any) -> dict[str, Any]:
    """What references inside a schema lead to, when it is part of another."""
    definitions = schema.get("$defs") if isinstance(schema, Mapping) else None
    return dict(definitions) if isinstance(definitions, Mapping) else {}


def _as_dict(schema: Any) -> dict[str, Any]:
    return dict(schema) if isinstance(schema, Mapping) else {}


def _one_message() -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return _object("Message", {"role": {"const": "user"}, "text": text}, "text")


_MESSAGES = {"type": "array", "prefixItems": [_one_message()], "items": False, "minItems": 1, "maxItems": 1}
