"""The JSON schema (draft 2020-12) of a definition file, made from the form that is read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.declarative.conditions.operators import OPERATORS, Takes
from stepwell.declarative.definition import FORMAT, Approval, Definition, Edge, Node, Retries
from stepwell.declarative.files.fields import (
    FORMS,
    Choice,
    ConditionShape,
    Data,
    Flag,
    Number,
    Part,
    RecordListShape,
    RecordShape,
    Shape,
    Text,
    Texts,
    defaults,
)
from stepwell.declarative.files.reader import GROUPS, SCHEMA_KEY

_NAMES: Mapping[type, str] = {Node: "node", Edge: "edge", Retries: "retries", Approval: "approval"}
_NAME = {"type": "string", "minLength": 1}
_CONDITION = {"$ref": "#/$defs/condition"}
_GIVEN: Mapping[Takes, Any] = {
    "value": {"not": {"type": "null"}},
    "bound": {"type": ["number", "string"]},
    "text": {"type": "string"},
    "pattern": {"type": "string", "format": "regex"},
    "values": {"type": "array", "minItems": 1},
}


def schema() -> dict[str, Any]:
    """The schema. What it accepts can still be refused if one part refers to another, or for a wrong pattern."""
    whole = _record(Definition)
    whole["properties"]["format"] = {"const": FORMAT, "description": "the format of this file"}
    whole["properties"][SCHEMA_KEY] = {"type": "string", "description": "where this schema is, for editors"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:stepwell:agent-workflow:{FORMAT}",
        "title": "A Stepwell workflow of named agents",
        **whole,
        "$defs": {**{name: _record(of) for of, name in _NAMES.items()}, "condition": _condition()},
    }


def _record(of: type) -> dict[str, Any]:
    usual = defaults(of)
    return _object(
        {part.name: _part(part, usual) for part in FORMS[of]},
        [part.name for part in FORMS[of] if part.attribute not in usual],
    )


def _object(properties: Mapping[str, Any], required: Iterable[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _part(part: Part, usual: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {**_shape(part.shape), "description": part.description}
    default = usual.get(part.attribute)
    if isinstance(default, bool | int | float | str) and default != "":
        entry["default"] = str(default) if isinstance(default, str) else default
    if part.attribute == "nodes":
        entry["minItems"] = 1
    return entry


def _shape(shape: Shape) -> dict[str, Any]:
    match shape:
        case Text(filled=filled):
            return dict(_NAME) if filled else {"type": "string"}
        case Texts(alone=False):
            return {"type": "array", "items": _NAME}
        case Texts():
            return {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}]}
        case Number(above=above, least=least, whole=whole):
            bounds = {"exclusiveMinimum": above, "minimum": least}
            stated = {key: bound for key, bound in bounds.items() if bound is not None}
            return {"type": "integer" if whole else "number", **stated}
        case Flag():
            return {"type": "boolean"}
        case Choice(words=words):
            return {"enum": [str(word) for word in words]}
        case Data():
            return {"type": "object"}
        case ConditionShape():
            return dict(_CONDITION)
        case RecordShape(of=of):
            return {"$ref": f"#/$defs/{_NAMES[of]}"}
        case RecordListShape(of=of):
            return {"type": "array", "items": {"$ref": f"#/$defs/{_NAMES[of]}"}}


def _condition() -> dict[str, Any]:
    """One shape for each way of being given something; `kind` says which one it is."""
    shapes = []
    for takes in dict.fromkeys(kind.takes for kind in OPERATORS.values()):
        kinds = {"enum": [name for name, kind in OPERATORS.items() if kind.takes == takes]}
        properties: dict[str, Any] = {"kind": kinds, "field": {**_NAME, "description": "a path such as review.score"}}
        if takes != "nothing":
            properties["value"] = _GIVEN[takes]
        shapes.append(_object(properties, properties))
    for name, (key, _) in GROUPS.items():
        inner = {"type": "array", "items": _CONDITION, "minItems": 1} if key == "conditions" else _CONDITION
        shapes.append(_object({"kind": {"const": name}, key: inner}, ["kind", key]))
    return {"oneOf": shapes}
