"""Schemas of responses as forms of the protocol: an object whose fields are plain, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stepwell.admin.schemas.json_schema import choices_of, fields_of, members_of, needed_in, resolved

SINGLE = "response"  # the field of a form whose response is not an object
_JSON_FIELD = {"type": "string", "description": "the response, as JSON"}
_LIMITS = {
    "string": ("minLength", "maxLength", "format"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
_FORMATS = ("date", "date-time", "email", "uri")
_VALUES = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list}


def make_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form for values of a schema. What no form can hold is asked as JSON, in one field.

    The form may allow more than the schema, whose rules it cannot all express.
    """
    fields = _fields(schema)
    if fields is not None:
        needed = [name for name in needed_in(schema) if name in fields and not _is_optional(schema, name)]
        return {"type": "object", "properties": fields, **({"required": needed} if needed else {})}
    needed = [] if _may_be_null(schema, schema) else [SINGLE]
    field = _field(schema, schema) or _JSON_FIELD
    return {"type": "object", "properties": {SINGLE: field}, **({"required": needed} if needed else {})}


def read_form(schema: Mapping[str, Any], content: Mapping[str, Any]) -> Any:
    """Return the value that a filled form holds: see `make_form`. Nothing is checked here."""
    if _fields(schema) is not None:
        left_out = [name for name in needed_in(schema) if name not in content and _is_optional(schema, name)]
        return {**content, **dict.fromkeys(left_out)}
    value = content.get(SINGLE)
    if _field(schema, schema) is not None or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _fields(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of an object, as a form has them; None if it is not one, or no form can hold it."""
    if schema.get("type") != "object":
        return None
    fields = {name: _field(schema, field) for name, field in fields_of(schema).items()}
    return fields if fields and None not in fields.values() else None


def _field(root: Mapping[str, Any], schema: Any) -> dict[str, Any] | None:
    """Return a schema as a field of a form has it; None if no field holds such values."""
    known = resolved(root, schema)
    members = [member for member in members_of(root, known) if member.get("type") != "null"]
    if len(members) == 1:
        known = {**known, **members[0]}
    elif members:
        return None
    kind, choices = known.get("type"), choices_of(known)
    if choices is not None:
        if not all(isinstance(choice, str) for choice in choices):
            return None
        field: dict[str, Any] = {"type": "string", "enum": choices}
    elif kind == "array":
        items = choices_of(resolved(root, known.get("items"))) or [None]
        if not all(isinstance(choice, str) for choice in items):
            return None
        field = {"type": "array", "items": {"type": "string", "enum": items}}
    elif isinstance(kind, str) and kind in _LIMITS:
        field = {"type": kind} | {name: known[name] for name in _LIMITS[kind] if known.get(name) is not None}
        if field.get("format") not in (None, *_FORMATS):
            del field["format"]
    else:
        return None
    field |= {name: known[name] for name in ("title", "description") if isinstance(known.get(name), str)}
    if isinstance(known.get("default"), _VALUES[field["type"]]):
        field["default"] = known["default"]
    return field


def _is_optional(schema: Mapping[str, Any], name: str) -> bool:
    """Return whether a form may leave out a field that the schema needs: then it is null."""
    return _may_be_null(schema, fields_of(schema).get(name))


def _may_be_null(root: Mapping[str, Any], schema: Any) -> bool:
    return any(member.get("type") == "null" for member in members_of(root, resolved(root, schema)))
