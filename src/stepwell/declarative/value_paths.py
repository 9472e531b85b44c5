"""Look up values by path: `review.score`, `items.0.name`.

A path reaches keys, declared fields and list items only. Paths come from files, so properties,
methods and other attributes must stay out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

MISSING: Any = object()
"""Stands for a value that does not exist; None is a value."""


def read_part(value: Any, name: str) -> Any:
    """Return one key, item or declared field of a value, or MISSING."""
    if isinstance(value, Mapping):
        return value.get(name, MISSING)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value[int(name)] if name.isdecimal() and int(name) < len(value) else MISSING
    return getattr(value, name, MISSING) if name in (field_names(type(value)) or ()) else MISSING


def look_up(path: str, values: Any, part: Callable[[Any, str], Any] = read_part) -> Any:
    """Return the value at a path, or MISSING. A key that contains dots wins over a nested value."""
    value = part(values, path)
    if value is MISSING and "." in path:
        first, rest = path.split(".", 1)
        inner = part(values, first)
        return MISSING if inner is MISSING else look_up(rest, inner, part)
    return value


def as_fields(value: Any) -> dict[str, Any]:
    """Return the items of a mapping or the declared fields of an object; empty if it has none."""
    if isinstance(value, Mapping):
        return {str(key): field_value for key, field_value in value.items()}
    return {name: getattr(value, name) for name in field_names(type(value)) or ()}


def field_names(cls: type) -> Collection[str] | None:
    """Return the names of the declared fields of a dataclass, pydantic model or msgspec struct; else None."""
    if is_dataclass(cls):
        return [field.name for field in fields(cls)]
    # pydantic and msgspec list the fields on the class. Looked up by attribute, so neither is
    # imported.
    for attribute in ("model_fields", "__struct_fields__"):
        names = getattr(cls, attribute, None)
        if isinstance(names, Mapping | tuple):
            return names
    return None
