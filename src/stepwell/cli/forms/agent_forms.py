"""Forms for the requests of agents and teams. Pure functions.

The response type of such a request has a field for every possible response. Which fields belong
together is known only here; what an edited tool call or an agent's own request expects is part of
the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.admin.schemas.json_schema import fields_of, needed_in


def schema_for(question: Any, response_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the form: for known requests a narrower one than the response has."""
    if not isinstance(question, Mapping) or not isinstance(question.get("v"), Mapping):
        return schema
    form = _FORMS.get((str(question.get("$")), response_type), schema)
    return form(question["v"]) if callable(form) else form


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


def _budget(question: Mapping[str, Any]) -> dict[str, Any]:
    spent = question.get("spent")
    # A limit that is not above what is spent would stop the agent at once, with the same request.
    limit = {"type": "number", "exclusiveMinimum": spent, "description": "The new limit."}
    return _object("BudgetResponse", {"limit": limit}, "limit")


def _input(question: Mapping[str, Any]) -> dict[str, Any]:
    wanted = question.get("response_schema")
    return {**_object("AgentInputResponse", {"value": wanted or {}}, "value"), "$defs": _find_definitions(wanted)}


def _object(title: str, fields: dict[str, Any], *needed: str) -> dict[str, Any]:
    # Constants are required: they tell the members of a union apart.
    fixed = [name for name, schema in fields.items() if "const" in schema]
    return {"title": title, "type": "object", "properties": fields, "required": [*fixed, *needed]}


def _arguments(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, with the proposed ones as defaults."""
    # Both come from a stored request, written by a model and a tool of unknown origin: they may be
    # anything.
    arguments, parameters = _as_dict(question.get("arguments")), _as_dict(question.get("parameters"))
    declared = fields_of(parameters)
    fields = {name: {**_as_dict(declared.get(name)), "default": value} for name, value in arguments.items()}
    # Every proposed argument is required, so that Enter keeps it instead of leaving it out.
    needed = [*arguments, *(name for name in needed_in(parameters) if name not in arguments)]
    return {**parameters, "type": "object", "properties": {**declared, **fields}, "required": needed}


def _find_definitions(schema: Any) -> dict[str, Any]:
    """Return the definitions of a schema, which its references need at the root."""
    return _as_dict(_as_dict(schema).get("$defs"))


def _as_dict(schema: Any) -> dict[str, Any]:
    return dict(schema) if isinstance(schema, Mapping) else {}


# A list of messages, of which a person types one. A fixed length: the form does not ask for
# another.
_MESSAGES = {
    "type": "array",
    "prefixItems": [
        _object("Message", {"role": {"const": "user"}, "text": {"type": "string", "minLength": 1}}, "text")
    ],
    "items": False,
    "minItems": 1,
    "maxItems": 1,
}

# By request type and response type: the schema, or what builds it from the request.
_FORMS: dict[tuple[str, str], dict[str, Any] | Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    ("stepwell:ToolApprovalRequest", "ToolApprovalResponse"): _approval,
    ("stepwell:ToolOutcomeRequest", "ToolOutcomeResponse"): {
        "oneOf": [
            _object(
                "ran",
                {"happened": {"const": "ran"}, "result": {"description": "The result of the tool.", "default": None}},
            ),
            _object("did not run", {"happened": {"const": "did not run"}}),
            _object("retry", {"happened": {"const": "retry"}}),
        ]
    },
    ("stepwell:BudgetRequest", "BudgetResponse"): _budget,
    ("stepwell:AgentInputRequest", "AgentInputResponse"): _input,
    ("stepwell:AgentExecutorResponse", "AgentRequestInfoResponse"): {
        "oneOf": [_object("approve", {}), _object("answer again", {"messages": _MESSAGES}, "messages")]
    },
    ("stepwell:NodeApprovalRequest", "NodeApprovalResponse"): {
        "oneOf": [
            _object("approve", {"decision": {"const": "approve"}}),
            _object(
                "edit",
                {
                    "decision": {"const": "approve"},
                    "output": {"description": "Used instead of the output of the node."},
                },
                "output",
            ),
            _object("deny", {"decision": {"const": "deny"}, "reason": {"type": "string", "default": ""}}),
        ]
    },
    # An empty list of messages ends the conversation, which nobody would guess: so it has a label.
    ("stepwell:HandoffAgentUserRequest", "list[Message]"): {
        "oneOf": [{"title": "say", **_MESSAGES}, {"title": "end the conversation", "type": "array", "maxItems": 0}]
    },
    ("stepwell:MagenticPlanReviewRequest", "MagenticPlanReviewResponse"): {
        "oneOf": [_object("approve", {}), _object("revise", {"review": _MESSAGES}, "review")]
    },
}
