"""Forms for the requests of agents and teams. Pure functions.

The response type of such a request has a field for every possible response. Which fields belong
together is known only here; what an edited tool call or an agent's own request expects is part of
the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.cli.forms.json_schema import fields_of, needed_in

_FOR_FORMS = ("parameters", "response_schema")  # schemas inside a request: a person sees the form instead


def schema_for(question: Any, response_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the form: for known requests a narrower one than the response has."""
    build = _find_schema_builder(question, response_type)
    return schema if build is None else build(question["v"])


def select_visible(question: Any, response_type: str) -> Any:
    """Return the part of a request that a person should see."""
    if _find_schema_builder(question, response_type) is None:
        return question
    return {name: value for name, value in question["v"].items() if name not in _FOR_FORMS}


def _find_schema_builder(question: Any, response_type: str) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
    if not isinstance(question, Mapping) or not isinstance(question.get("v"), Mapping):
        return None
    return _SCHEMA_BUILDERS.get((str(question.get("$")), response_type))


def _approval(question: Mapping[str, Any]) -> dict[str, Any]:
    text = {"type": "string", "default": "", "description": "Passed on to the agent."}
    result = {"description": "Passed on to the agent as the result of the tool."}
    # `edit` is an approval with arguments. As a choice of its own it need not ask for them when
    # nothing is edited.
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
    result = {"description": "The result of the tool.", "default": None}
    return {
        "oneOf": [
            _object("ran", {"happened": {"const": "ran"}, "result": result}),
            _object("did not run", {"happened": {"const": "did not run"}}),
            _object("retry", {"happened": {"const": "retry"}}),
        ]
    }


def _budget(question: Mapping[str, Any]) -> dict[str, Any]:
    spent = question.get("spent")
    # A limit that is not above what is spent would stop the agent at once, with the same request.
    limit = {"type": "number", "exclusiveMinimum": spent, "description": "The new limit."}
    return _object("BudgetResponse", {"limit": limit}, "limit")


def _input(question: Mapping[str, Any]) -> dict[str, Any]:
    wanted = question.get("response_schema")
    return {**_object("AgentInputResponse", {"value": wanted or {}}, "value"), "$defs": _find_definitions(wanted)}


def _node(question: Mapping[str, Any]) -> dict[str, Any]:
    reason = {"type": "string", "default": ""}
    output = {"description": "Used instead of the output of the node."}
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
    # An empty list of messages ends the conversation, which nobody would guess: so it has a label.
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
"""By request type and response type."""


def _object(title: str, fields: dict[str, Any], *needed: str) -> dict[str, Any]:
    # Constants are required: they tell the members of a union apart.
    fixed = [name for name, schema in fields.items() if "const" in schema]
    return {"title": title, "type": "object", "properties": fields, "required": [*fixed, *needed]}


def _arguments(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, with the proposed ones as defaults."""
    # Both come from a stored request, written by a model and a tool of unknown origin: they may be
    # anything.
    arguments, parameters = question.get("arguments"), question.get("parameters")
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {}
    parameters = dict(parameters) if isinstance(parameters, Mapping) else {}
    declared = fields_of(parameters)
    fields = {name: {**_as_dict(declared.get(name)), "default": value} for name, value in arguments.items()}
    # Every proposed argument is required, so that Enter keeps it instead of leaving it out.
    needed = [*arguments, *(name for name in needed_in(parameters) if name not in arguments)]
    return {**parameters, "type": "object", "properties": {**declared, **fields}, "required": needed}


def _find_definitions(schema: Any) -> dict[str, Any]:
    """Return the definitions of a schema, which its references need at the root."""
    definitions = schema.get("$defs") if isinstance(schema, Mapping) else None
    return dict(definitions) if isinstance(definitions, Mapping) else {}


def _as_dict(schema: Any) -> dict[str, Any]:
    return dict(schema) if isinstance(schema, Mapping) else {}


def _message_schema() -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return _object("Message", {"role": {"const": "user"}, "text": text}, "text")


# A list of messages, of which a person types one. A fixed length: the form does not ask for
# another.
_MESSAGES = {"type": "array", "prefixItems": [_message_schema()], "items": False, "minItems": 1, "maxItems": 1}
