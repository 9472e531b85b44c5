"""Check a JSON value against a JSON schema, and say what does not match. Pure functions.

Covers the keywords that response schemas use: types, enums, fields, items, unions, limits, patterns
and the common formats. Unknown keywords are ignored, because the process that drives the run
validates the response again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeGuard
from uuid import UUID

from stepwell.admin.diffs.json_diff import Path, format_path

HOPS = 50  # references followed without a step into the value: more is a cycle
_SHOWN = 60  # characters of a value in a message

_KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
KINDS = {
    "null": "null",
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "object",
}
"""The name of each type in messages."""

_FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "date-time": ("date and time like 2027-01-31T12:00:00Z", lambda text: datetime.fromisoformat(text.upper())),
    "date": ("date like 2027-01-31", date.fromisoformat),
    "uuid": ("UUID", UUID),
    "decimal": ("decimal number", Decimal),
}


def resolved(root: Any, schema: Any) -> dict[str, Any]:
    """Follow references, and merge what stands beside them.

    Returns {}, which accepts anything, for a cycle.
    """
    known: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(HOPS):
        parts = known.get("allOf")
        if isinstance(known.get("$ref"), str):
            target = _target(root, known.pop("$ref"))
        elif isinstance(parts, list) and len(parts) == 1:
            target = known.pop("allOf")[0]
        else:
            return known
        known = {**target, **known} if isinstance(target, Mapping) else known
    return {}


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema names; none if it accepts any."""
    said = schema.get("type")
    return [kind for kind in (said if isinstance(said, list) else [said]) if isinstance(kind, str) and kind in KINDS]


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
    known = schema.get("properties")
    return dict(known) if isinstance(known, Mapping) else {}


def needed_in(schema: Mapping[str, Any]) -> list[str]:
    """Return the required fields."""
    needed = schema.get("required")
    return [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return bool(one == other)


def problems(root: Any, value: Any, schema: Any = None, path: Path = ()) -> Iterator[str]:
    """Yield one message per mismatch between a value and a schema, by default the root schema."""
    return _problems(root, root if schema is None else schema, value, path, HOPS)


def _problems(root: Any, schema: Any, value: Any, path: Path, hops: int) -> Iterator[str]:
    if schema is False:
        yield _said(path, f"{_brief(value)} is not allowed here")
        return
    schema = resolved(root, schema)
    if not hops or not schema:
        return
    members = members_of(root, schema)
    if members:
        yield from _in_none(root, members, value, path, hops)
    for part in _all_of(schema):
        yield from _problems(root, part, value, path, hops - 1)
    kinds = kinds_of(schema)
    if kinds and not any(_KINDS[kind](value) for kind in kinds):
        yield _said(path, f"{_brief(value)} is not {' or '.join(map(_with_article, kinds))}")
        return
    choices = choices_of(schema)
    if choices is not None and not any(same(value, one) for one in choices):
        yield _said(path, f"{_brief(value)} is not one of {', '.join(map(_brief, choices))}")
    yield from (_said(path, problem) for problem in _limits(schema, value))
    if isinstance(value, dict):
        yield from _in_fields(root, schema, value, path)
    elif isinstance(value, list):
        yield from _in_items(root, schema, value, path)


def _in_none(root: Any, members: list[dict[str, Any]], value: Any, path: Path, hops: int) -> Iterator[str]:
    """Yield why a value matches no member of a union, in detail if only one is not null."""
    found = [list(_problems(root, member, value, path, hops - 1)) for member in members]
    if not all(found):
        return
    real = [why for member, why in zip(members, found, strict=True) if kinds_of(member) != ["null"]]
    if len(real) == 1:
        yield from real[0]
    else:
        yield _said(path, f"{_brief(value)} matches none of: {', '.join(named(member) for member in members)}")


def named(schema: Mapping[str, Any]) -> str:
    """Return a name for a schema."""
    title = schema.get("title")
    if isinstance(title, str) and title:
        return title
    choices = choices_of(schema)
    if choices is not None:
        return " or ".join(map(_brief, choices))
    kinds = kinds_of(schema)
    return " or ".join(KINDS[kind] for kind in kinds) if kinds else "anything"


def _in_fields(root: Any, schema: Mapping[str, Any], value: dict[str, Any], path: Path) -> Iterator[str]:
    known = fields_of(schema)
    for name in needed_in(schema):
        if name not in value:
            yield _said((*path, name), "is missing")
    for name, inner in value.items():
        if name in known:
            yield from _problems(root, known[name], inner, (*path, name), HOPS)
        else:
            yield from _unlisted(root, schema, name, inner, path)
        names = resolved(root, schema.get("propertyNames"))
        yield from (_said((*path, name), f"the name: {why}") for why in _problems(root, names, name, (), HOPS))


def _unlisted(root: Any, schema: Mapping[str, Any], name: str, value: Any, path: Path) -> Iterator[str]:
    """Yield what is wrong with a field that is not listed."""
    patterns = schema.get("patternProperties")
    fitting = [
        inner
        for pattern, inner in (patterns.items() if isinstance(patterns, Mapping) else ())
        if _matches(pattern, name)
    ]
    for inner in fitting:
        yield from _problems(root, inner, value, (*path, name), HOPS)
    if fitting:
        return
    if closed(schema):
        there = ", ".join(map(repr, fields_of(schema))) or "none"
        yield _said((*path, name), f"unknown field; the fields are {there}")
    else:
        yield from _problems(root, schema.get("additionalProperties", {}), value, (*path, name), HOPS)


def _in_items(root: Any, schema: Mapping[str, Any], value: list[Any], path: Path) -> Iterator[str]:
    first = first_items(schema)
    for at, item in enumerate(value):
        inner = first[at] if at < len(first) else schema.get("items", {})
        yield from _problems(root, inner, item, (*path, at), HOPS)
    if schema.get("uniqueItems") is True:
        for at, item in enumerate(value):
            if any(same(item, before) for before in value[:at]):
                yield _said((*path, at), f"{_brief(item)} appears twice")


def first_items(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of the first items of a list, if each has its own."""
    listed = schema.get("prefixItems")
    return listed if isinstance(listed, list) else []


def _all_of(schema: Mapping[str, Any]) -> list[Any]:
    parts = schema.get("allOf")
    return parts if isinstance(parts, list) else []


def _limits(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    if _is_number(value):
        yield from _of_number(schema, value)
    elif isinstance(value, str):
        yield from _of_size(schema, len(value), "Length", "character")
        yield from _of_text(schema, value)
    elif isinstance(value, list):
        yield from _of_size(schema, len(value), "Items", "item")
    elif isinstance(value, dict):
        yield from _of_size(schema, len(value), "Properties", "field")


def _of_number(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    for keyword, fits, words in _BOUNDS:
        bound = schema.get(keyword)
        if _is_number(bound) and not fits(value, bound):
            yield f"{_brief(value)} is not {words} {bound}"
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{_brief(value)} is not a multiple of {step}"


def _is_multiple(value: Any, step: Any) -> bool:
    try:
        return not Decimal(repr(value)) % Decimal(repr(step))
    except InvalidOperation:  # too many digits to compute the remainder
        return True


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lambda value, bound: value >= bound, "at least"),
    ("maximum", lambda value, bound: value <= bound, "at most"),
    ("exclusiveMinimum", lambda value, bound: value > bound, "more than"),
    ("exclusiveMaximum", lambda value, bound: value < bound, "less than"),
)


def _of_size(schema: Mapping[str, Any], size: int, what: str, one: str) -> Iterator[str]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if _is_number(least) and size < least:
        yield f"has {size} {one}{'' if size == 1 else 's'}, expected at least {least}"
    if _is_number(most) and size > most:
        yield f"has {size} {one}{'' if size == 1 else 's'}, expected at most {most}"


def _of_text(schema: Mapping[str, Any], value: str) -> Iterator[str]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield f"{_brief(value)} does not match the pattern {pattern}"
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        words, read = known
        try:
            read(value)
        except (ValueError, InvalidOperation):
            yield f"{_brief(value)} is not a {words}"


def wanted_text(schema: Mapping[str, Any]) -> str:
    """Describe the kind of text that a schema expects."""
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        return known[0]
    if schema.get("contentEncoding") == "base64":
        return "bytes in base64"
    return str(schema["format"]) if isinstance(schema.get("format"), str) else KINDS["string"]


def bounds_of(schema: Mapping[str, Any]) -> str:
    """Describe the limits of a number; empty if it has none."""
    said = [f"{words} {schema[keyword]}" for keyword, _, words in _BOUNDS if _is_number(schema.get(keyword))]
    return " and ".join(said)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # another dialect of regular expressions: the process that drives the run checks it
        return True


def _target(root: Any, reference: str) -> Any:
    """Return the target of a reference inside the schema; {} if there is none."""
    if reference == "#":
        return root
    found = root
    for part in reference.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return found if reference.startswith("#/") else {}


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _said(path: Path, problem: str) -> str:
    return f"{format_path(path)}: {problem}" if path else problem


def _with_article(kind: str) -> str:
    name = "string" if kind == "string" else KINDS[kind]  # "text" takes no article
    return name if kind == "null" else f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
