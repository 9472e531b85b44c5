"""Whether a JSON value is what a JSON schema describes, and if not, why: pure.

What the schemas of answers say is looked at: types, enums, fields, items, unions, limits, patterns and the common
formats. A keyword that is not known is passed over, because whoever drives the run looks at the answer again.
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

HOPS = 50  # from one schema to the next, without a step into the value: more is a circle
_SHOWN = 60

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
    "null": "nothing",
    "boolean": "yes or no",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "fields",
}
"""A word for each type."""

_FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "date-time": ("date and time like 2027-01-31T12:00:00Z", lambda text: datetime.fromisoformat(text.upper())),
    "date": ("date like 2027-01-31", date.fromisoformat),
    "uuid": ("UUID", UUID),
    "decimal": ("decimal number", Decimal),
}


def resolved(root: Any, schema: Any) -> dict[str, Any]:
    """A schema itself where it only refers to another, with what is said beside the reference. {} takes anything."""
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
    """The types that a schema names; none if it leaves them open."""
    said = schema.get("type")
    return [kind for kind in (said if isinstance(said, list) else [said]) if isinstance(kind, str) and kind in KINDS]


def members_of(root: Any, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schemas of which a value must fit one; none if the schema is no union."""
    for name in ("anyOf", "oneOf"):
        members = schema.get(name)
        if isinstance(members, list) and members:
            return [resolved(root, member) for member in members]
    kinds = kinds_of(schema)
    return [{**schema, "type": kind} for kind in kinds] if len(kinds) > 1 else []


def choices_of(schema: Mapping[str, Any]) -> list[Any] | None:
    """The values that a schema lists, if it does."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) and listed else None


def closed(schema: Mapping[str, Any]) -> bool:
    """Whether other names than the listed ones are a slip: where fields are listed and more are not asked for."""
    more = schema.get("additionalProperties", schema.get("patternProperties"))
    return more is False or (more is None and isinstance(schema.get("properties"), Mapping))


def fields_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    known = schema.get("properties")
    return dict(known) if isinstance(known, Mapping) else {}


def needed_in(schema: Mapping[str, Any]) -> list[str]:
    """The fields that must be there."""
    needed = schema.get("required")
    return [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return bool(one == other)


def problems(root: Any, value: Any, schema: Any = None, path: Path = ()) -> Iterator[str]:
    """Why a value is not what a schema describes, a sentence each; none if it is. Without `schema`: the whole of it."""
    return _problems(root, root if schema is None else schema, value, path, HOPS)


def _problems(root: Any, schema: Any, value: Any, path: Path, hops: int) -> Iterator[str]:
    if schema is False:
        yield _said(path, f"{_brief(value)} is one too many")
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
        yield _said(path, f"{_brief(value)} is no {' or '.join(KINDS[kind] for kind in kinds)}")
        return
    choices = choices_of(schema)
    if choices is not None and not any(same(value, one) for one in choices):
        yield _said(path, f"{_brief(value)} is none of {', '.join(map(_brief, choices))}")
    yield from (_said(path, problem) for problem in _limits(schema, value))
    if isinstance(value, dict):
        yield from _in_fields(root, schema, value, path)
    elif isinstance(value, list):
        yield from _in_items(root, schema, value, path)


def _in_none(root: Any, members: list[dict[str, Any]], value: Any, path: Path, hops: int) -> Iterator[str]:
    """Why a value fits no member of a union; of the only one that is not null, its own reasons."""
    found = [list(_problems(root, member, value, path, hops - 1)) for member in members]
    if not all(found):
        return
    real = [why for member, why in zip(members, found, strict=True) if kinds_of(member) != ["null"]]
    if len(real) == 1:
        yield from real[0]
    else:
        yield _said(path, f"{_brief(value)} fits none of: {', '.join(named(member) for member in members)}")


def named(schema: Mapping[str, Any]) -> str:
    """What a schema is called."""
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
    """What is wrong with a field that is not listed."""
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
        yield _said((*path, name), f"there is no such field; the fields are {there}")
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
                yield _said((*path, at), f"{_brief(item)} is there twice")


def first_items(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas of the first items of a list, where each has its own."""
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
        yield f"{_brief(value)} is no multiple of {step}"


def _is_multiple(value: Any, step: Any) -> bool:
    try:
        return not Decimal(repr(value)) % Decimal(repr(step))
    except InvalidOperation:  # too far apart to be known
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
        yield f"has {size} {one}{'' if size == 1 else 's'}, and at least {least} are wanted"
    if _is_number(most) and size > most:
        yield f"has {size} {one}{'' if size == 1 else 's'}, and at most {most} are wanted"


def _of_text(schema: Mapping[str, Any], value: str) -> Iterator[str]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield f"{_brief(value)} is not of the form {pattern}"
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        words, read = known
        try:
            read(value)
        except (ValueError, InvalidOperation):
            yield f"{_brief(value)} is no {words}"


def wanted_text(schema: Mapping[str, Any]) -> str:
    """What kind of text a schema wants, in words."""
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        return known[0]
    if schema.get("contentEncoding") == "base64":
        return "bytes in base64"
    return str(schema["format"]) if isinstance(schema.get("format"), str) else KINDS["string"]


def bounds_of(schema: Mapping[str, Any]) -> str:
    """The limits of a number in words; empty if it has none."""
    said = [f"{words} {schema[keyword]}" for keyword, _, words in _BOUNDS if _is_number(schema.get(keyword))]
    return " and ".join(said)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # of another dialect: whoever drives the run knows it
        return True


def _target(root: Any, reference: str) -> Any:
    """What a reference inside the schema leads to; {} if nowhere."""
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


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
