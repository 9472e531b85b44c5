"""The questions that agents ask: a schema for each that offers what can be said to it, no more. Pure.

The type of such an answer has a field for everything that might be said. What belongs together is known only here, and
what an edited call or an agent's own question wants is said in the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .schemas import fields_of, needed_in

_ROOM = "holdfast.agents.asking:"


def schema_for(question: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema to make a form of: that of the answer, or a closer one if an agent asks."""
    if not isinstance(question, Mapping) or not isinstance(question.get("v"), Mapping):
        return schema
    closer = _CLOSER.get(str(question.get("$")).removeprefix(_ROOM)) if _ROOM in str(question.get("$")) else None
    return schema if closer is None else closer(question["v"])


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


_CLOSER: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "ToolApprovalRequest": _approval,
    "ToolOutcomeRequest": _outcome,
    "BudgetRequest": _budget,
    "AgentInputRequest": _input,
}


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
