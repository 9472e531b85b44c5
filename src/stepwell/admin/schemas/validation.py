"""Check a JSON value against a JSON schema, and say in plain English what does not match.

`jsonschema-rs` does the checking. A schema may come from a tool of unknown origin: nothing that it
refers to is fetched, its patterns have limits, and one that would keep the library busy for ages is
refused, because nothing can interrupt the library.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from jsonschema_rs import ValidationError, ValidationErrorKind, Validator, is_valid, validator_for

from stepwell.admin.diffs.json_diff import Path, format_path
from stepwell.admin.schemas.json_schema import (
    BOUNDS,
    FORMATS,
    KINDS,
    brief,
    closed,
    fields_of,
    find_target,
    kinds_of,
    named,
    part_at,
    resolved,
)

MOST_SCHEMAS = 1_000  # that may apply to one value
_SHOWN = 300  # characters of a message of the library
_VALUES = ("const", "enum", "default", "examples")  # keywords with values, not schemas
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_READERS: dict[str, Callable[[str], object]] = {
    "date-time": lambda text: datetime.fromisoformat(text.upper()),
    "date": date.fromisoformat,
    "uuid": UUID,
    "decimal": Decimal,
}
# Keywords that are left out of the check unless their value is such.
_USABLE: dict[str, Callable[[Any], bool]] = {
    "$id": lambda _: False,
    "id": lambda name: not isinstance(name, str),  # the same in old drafts
    "format": lambda name: isinstance(name, str) and name in FORMATS,
    "pattern": lambda pattern: _can_read(lambda pattern: validator_for({"pattern": pattern}, offline=True), pattern),
}
_UNITS = {"Length": "character", "Items": "item", "Properties": "field"}
# By keyword; the others are rare, and have the messages of the library.
_MESSAGES = {
    **{keyword: f"{{value}} is not {words} {{limit}}" for keyword, words in BOUNDS.items()},
    **{f"min{what}": f"has {{size}} {unit}{{s}}, expected at least {{limit}}" for what, unit in _UNITS.items()},
    **{f"max{what}": f"has {{size}} {unit}{{s}}, expected at most {{limit}}" for what, unit in _UNITS.items()},
    "type": "{value} is not {limit}",
    "enum": "{value} is not one of {limit}",
    "const": "{value} is not one of {limit}",
    "multipleOf": "{value} is not a multiple of {limit}",
    "pattern": "{value} does not match the pattern {limit}",
    "format": "{value} is not a {limit}",
    "falseSchema": "{value} is not allowed here",
}


class UnusableSchema(ValueError):
    """No value can be checked against the schema. The message says why."""


class Flaw(NamedTuple):
    """Where in a value something does not match its schema, and what."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}" if self.path else self.message


def problems(schema: Any, value: Any) -> list[str]:
    """Return a message for each mismatch between a value and a schema. Raises UnusableSchema."""
    return list(map(str, find_flaws(schema, value)))


def find_flaws(schema: Any, value: Any) -> list[Flaw]:
    """Return each mismatch between a value and a schema, with its place. Raises UnusableSchema."""
    try:
        validator = _compile(schema)
    except RecursionError:
        raise UnusableSchema("the schema is nested too deeply") from None
    except ValueError as error:
        reason = error.message if isinstance(error, ValidationError) else error
        raise UnusableSchema(f"the schema cannot be used: {reason}") from None
    try:
        flaws = [flaw for error in validator.iter_errors(value) for flaw in _explain(schema, error)]
    except UnicodeEncodeError:
        return [Flaw((), f"{brief(value)} contains half of a surrogate pair")]
    return list(dict.fromkeys(flaws))


def _compile(schema: Any) -> Validator:
    parts, counts = list[dict[str, Any]](), dict[int, float]()
    strict = _make_strict(schema, parts)
    if any(_count_in_place(strict, part, counts) > MOST_SCHEMAS for part in parts):
        raise ValueError(f"it refers to itself, to nothing, or to more than {MOST_SCHEMAS} schemas for one value")
    formats: dict[str, Callable[..., bool]] = {name: partial(_can_read, read) for name, read in _READERS.items()}
    return validator_for(strict, formats=formats, validate_formats=True, offline=True)


def _make_strict(schema: Any, parts: list[dict[str, Any]]) -> Any:
    """Return the schema as it is checked, and add each schema inside it to `parts`.

    Fields that are not listed are an error: they are typos. Left out are patterns in other dialects
    of regular expressions; formats other than ours, because types of Python accept more than the
    standard does, such as a time without a time zone; and `$id`, which would change what references
    mean.
    """
    if isinstance(schema, list):
        return [_make_strict(part, parts) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    strict: dict[str, Any] = {"additionalProperties": False} if closed(schema) else {}
    for key, part in schema.items():
        if key in _BY_NAME and isinstance(part, Mapping):
            strict[key] = {name: _make_strict(inner, parts) for name, inner in part.items()}
        elif _USABLE.get(key, lambda _: True)(part):
            strict[key] = part if key in _VALUES else _make_strict(part, parts)
    parts.append(strict)
    return strict


def _can_read(read: Callable[[Any], object], value: Any) -> bool:
    try:
        read(value)
    except (ValueError, InvalidOperation):
        return False
    return True


def _count_in_place(root: Any, schema: Any, counts: dict[int, float]) -> float:
    """Return how many schemas apply to a value if this one does; those of its parts do not count.

    Infinite if the schema refers to itself, or to something that cannot be found.
    """
    if isinstance(schema, list):
        return sum(_count_in_place(root, part, counts) for part in schema)
    if not isinstance(schema, Mapping):
        return 0 if isinstance(schema, bool) else math.inf
    if id(schema) not in counts:
        counts[id(schema)] = math.inf  # until it is counted: only a cycle leads here before
        inside = [schema[keyword] for keyword in _IN_PLACE if keyword in schema]
        inside += [find_target(root, schema[keyword]) for keyword in _REFERENCES if keyword in schema]
        if isinstance(dependent := schema.get("dependentSchemas"), Mapping):
            inside += dependent.values()
        counts[id(schema)] = 1 + sum(_count_in_place(root, part, counts) for part in inside)
    return counts[id(schema)]


def _explain(root: Any, error: ValidationError) -> Iterator[Flaw]:
    path, keyword, detail = tuple(error.instance_path), error.kind.name, error.kind.value
    match error.kind:
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            yield from _explain_union(root, error, detail)
        case ValidationErrorKind.Required():
            yield Flaw((*path, detail), "is missing")
        case ValidationErrorKind.AdditionalProperties():
            fields = ", ".join(map(repr, fields_of(part_at(root, error.schema_path[:-1]) or {}))) or "none"
            yield from (Flaw((*path, name), f"unknown field; the fields are {fields}") for name in detail)
        case ValidationErrorKind.PropertyNames():
            yield from (Flaw((*path, detail.instance), f"the name: {why}") for why in _explain(root, detail))
        case ValidationErrorKind.UniqueItems():
            yield _describe_repeated_item(path, error.instance)
        case ValidationErrorKind.BacktrackLimitExceeded() | ValidationErrorKind.RegexEngineFailure():
            return  # a pattern that takes too long is left to the process that drives the run
        case _:
            yield Flaw(path, _describe(error, keyword, detail))


def _explain_union(root: Any, error: ValidationError, context: list[list[ValidationError]]) -> Iterator[Flaw]:
    """Yield why a value matches no member of a union, in detail if only one is not null."""
    members = [resolved(root, member) for member in part_at(root, error.schema_path) or ()]
    real = [why for member, why in zip(members, context, strict=False) if kinds_of(member) != ["null"]]
    if len(real) == 1:
        yield from (flaw for inner in real[0] for flaw in _explain(root, inner))
    else:
        names = ", ".join(named(member) for member in members)
        yield Flaw(tuple(error.instance_path), f"{brief(error.instance)} matches none of: {names}")


def _describe_repeated_item(path: Path, items: Any) -> Flaw:
    # Where a beginning of the list begins to have an item twice.
    ends = range(1, len(items) + 1)
    at = bisect_left(ends, True, key=lambda end: not is_valid({"uniqueItems": True}, items[:end]))
    return Flaw((*path, at), f"{brief(items[at])} appears twice")


def _describe(error: ValidationError, keyword: str, detail: Any) -> str:
    if keyword not in _MESSAGES:
        return error.message if len(error.message) <= _SHOWN else f"{error.message[: _SHOWN - 1]}…"
    value: Any = error.instance
    size = len(value) if isinstance(value, str | list | dict) else 0
    if keyword == "type":
        # null is left out: who gives another value did not mean it.
        detail = " or ".join(map(_add_article, [kind for kind in detail if kind != "null"] or detail))
    elif keyword == "format":
        detail = FORMATS[detail]
    elif keyword in ("enum", "const"):
        detail = ", ".join(map(brief, detail if keyword == "enum" else [detail]))
    return _MESSAGES[keyword].format(value=brief(value), limit=detail, size=size, s="" if size == 1 else "s")


def _add_article(kind: str) -> str:
    name = "string" if kind == "string" else KINDS[kind]  # "text" takes no article
    return name if kind == "null" else f"an {name}" if name[0] in "aeiou" else f"a {name}"
