"""Read the parts of a JSON schema that forms and messages need. Pure functions.

A schema may come from a tool of unknown origin, so any part of it may be anything: what makes no
sense is ignored here. `validation` checks values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

HOPS = 50  # references followed in a row: more is a cycle
_SHOWN = 60  # characters of a value in a message

# The name of each type in messages.
KINDS = {
    "null": "null",
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "object",
}

BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}

# The formats that are checked, in words.
FORMATS = {
    "date-time": "date and time like 2027-01-31T12:00:00Z",
    "date": "date like 2027-01-31",
    "uuid": "UUID",
    "decimal": "decimal number",
}


def resolved(root: Any, schema: Any) -> dict[str, Any]:
    """Follow references, and merge what stands beside them.

    Returns {}, which accepts anything, for a cycle.
    """
    known: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(HOPS):
        parts = known.get("allOf")
        if isinstance(known.get("$ref"), str):
            target = find_target(root, known.pop("$ref"))
        elif isinstance(parts, list) and len(parts) == 1:
            target = known.pop("allOf")[0]
        else:
            return known
        known = {**target, **known} if isinstance(target, Mapping) else known
    return {}


def find_target(root: Any, reference: Any) -> Any:
    """Return the target of a reference inside the schema; None if there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    parts = unquote(reference).split("/")[1:]
    return part_at(root, [part.replace("~1", "/").replace("~0", "~") for part in parts]) if parts else root


def part_at(schema: Any, path: Sequence[str | int]) -> Any:
    """Return the part of a schema at a path; None if there is none."""
    for step in path:
        if isinstance(schema, list) and str(step).isdecimal() and int(step) < len(schema):
            schema = schema[int(step)]
        else:
            schema = schema.get(step) if isinstance(schema, Mapping) else None
    return schema


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema names; none if it accepts any."""
    types = schema.get("type")
    return [kind for kind in (types if isinstance(types, list) else [types]) if isinstance(kind, str) and kind in KINDS]


def members_of(root: Any, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the members of a union; none if the schema is not a union."""
    for name in ("anyOf", "oneOf"):
        members = schema.get(name)
        if isinstance(members, list) and members:
            return [resolved(root, member) for member in members]
    kinds = kinds_of(schema)
    return [{**schema, "type": kind} for kind in kinds] if len(kinds) > 1 else []


def choices_of(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that a schema lists; None if it lists none."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) and listed else None


def closed(schema: Mapping[str, Any]) -> bool:
    """Return whether fields that are not listed are an error."""
    more = schema.get("additionalProperties", schema.get("patternProperties"))
    return more is False or (more is None and isinstance(schema.get("properties"), Mapping))


def fields_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    return dict(fields) if isinstance(fields, Mapping) else {}


def needed_in(schema: Mapping[str, Any]) -> list[str]:
    """Return the required fields."""
    needed = schema.get("required")
    return [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []


def first_items(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of the first items of a list, if each has its own."""
    listed = schema.get("prefixItems")
    return listed if isinstance(listed, list) else []


def named(schema: Mapping[str, Any]) -> str:
    """Return a name for a schema."""
    title = schema.get("title")
    if isinstance(title, str) and title:
        return title
    choices = choices_of(schema)
    if choices is not None:
        return " or ".join(map(brief, choices))
    kinds = kinds_of(schema)
    return " or ".join(KINDS[kind] for kind in kinds) if kinds else "anything"


def wanted_text(schema: Mapping[str, Any]) -> str:
    """Describe the kind of text that a schema expects."""
    if schema.get("contentEncoding") == "base64":
        return "bytes in base64"
    format = schema.get("format")
    return FORMATS.get(format, format) if isinstance(format, str) else KINDS["string"]


def bounds_of(schema: Mapping[str, Any]) -> str:
    """Describe the limits of a number; empty if it has none."""
    bounds = {keyword: schema.get(keyword) for keyword in BOUNDS}
    return " and ".join(f"{BOUNDS[keyword]} {bound}" for keyword, bound in bounds.items() if bound is not None)


def brief(value: Any) -> str:
    """Return a value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def shape_of(root: Any, schema: Any = None, *, depth: int = 3) -> str:
    """Describe the JSON that a schema accepts in one line: `{"approved": true or false, "reason"?: text}`."""
    known = resolved(root, root if schema is None else schema)
    choices, fields, items = choices_of(known), fields_of(known), known.get("items")
    if choices is not None:
        return " or ".join(map(brief, choices))
    if known.get("type") == "boolean":
        return "true or false"
    if depth and fields:
        needed = needed_in(known)
        parts = [
            f"{brief(name)}{'' if name in needed else '?'}: {shape_of(root, field, depth=depth - 1)}"
            for name, field in fields.items()
        ]
        return f"{{{', '.join(parts)}}}"
    if depth and (members := members_of(root, known)):
        shapes = [shape_of(root, member, depth=depth - 1) for member in members]
        return " or ".join(dict.fromkeys(shapes))
    if depth and isinstance(items, Mapping):
        return f"[{shape_of(root, items, depth=depth - 1)}, ...]"
    return named({name: value for name, value in known.items() if name != "title"})
