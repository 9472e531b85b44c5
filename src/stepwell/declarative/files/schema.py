"""The JSON schema (draft 2020-12) of a definition file, generated from `fields.FIELDS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.declarative.conditions.operators import OPERATORS, Operand
from stepwell.declarative.definition import FORMAT, Definition
from stepwell.declarative.files.fields import CONDITION, FIELDS, NAME, RECORD_NAMES, FieldSpec, get_defaults
from stepwell.declarative.files.reader import GROUPS, SCHEMA_KEY

_OPERAND_SCHEMAS: Mapping[Operand, Any] = {
    "value": {"not": {"type": "null"}},
    "bound": {"type": ["number", "string"]},
    "text": {"type": "string"},
    "pattern": {"type": "string", "format": "regex"},
    "values": {"type": "array", "minItems": 1},
}


def schema() -> dict[str, Any]:
    """Return the schema.

    The reader checks more: references between nodes and edges, and whether patterns are valid.
    """
    root = _record(Definition)
    root["properties"]["format"] = {"const": FORMAT, "description": "the format of this file"}
    root["properties"][SCHEMA_KEY] = {"type": "string", "description": "the location of this schema, for editors"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:stepwell:agent-workflow:{FORMAT}",
        "title": "A Stepwell workflow of named agents",
        **root,
        "$defs": {**{name: _record(of) for of, name in RECORD_NAMES.items()}, "condition": _condition()},
    }


def _record(of: type) -> dict[str, Any]:
    defaults = get_defaults(of)
    return _object(
        {spec.name: _field(spec, defaults) for spec in FIELDS[of]},
        [spec.name for spec in FIELDS[of] if spec.attribute not in defaults],
    )


def _object(properties: Mapping[str, Any], required: Iterable[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _field(spec: FieldSpec, defaults: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {**spec.shape.schema, "description": spec.description}
    default = defaults.get(spec.attribute)
    # None and empty values mean "not set"; as a stated default they would only confuse editors.
    if isinstance(default, bool | int | float | str) and default != "":
        entry["default"] = str(default) if isinstance(default, str) else default
    if spec.attribute == "nodes":
        entry["minItems"] = 1
    return entry


def _condition() -> dict[str, Any]:
    """Return the schema of a condition: one alternative for each type of operand."""
    shapes = []
    # Kinds with the same operand share an alternative: fewer alternatives give better editor
    # messages.
    for operand in dict.fromkeys(operator.operand for operator in OPERATORS.values()):
        kinds = {"enum": [name for name, operator in OPERATORS.items() if operator.operand == operand]}
        properties: dict[str, Any] = {
            "kind": kinds,
            "field": {**NAME.schema, "description": "a path such as review.score"},
        }
        if operand != "nothing":
            properties["value"] = _OPERAND_SCHEMAS[operand]
        shapes.append(_object(properties, properties))
    for name, key in GROUPS.items():
        condition = CONDITION.schema
        inner = {"type": "array", "items": condition, "minItems": 1} if key == "conditions" else condition
        shapes.append(_object({"kind": {"const": name}, key: inner}, ["kind", key]))
    return {"oneOf": shapes}
