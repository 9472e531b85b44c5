"""Values by their paths: `review.score`, `items.0.name`. Keys, fields of records and places in lists; nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

MISSING: Any = object()
"""What is not there."""


def read_part(value: Any, name: str) -> Any:
    """One part of a value, or MISSING. Fields only: no way leads from a file to other attributes."""
    if isinstance(value, Mapping):
        return value.get(name, MISSING)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value[int(name)] if name.isdecimal() and int(name) < len(value) else MISSING
    return getattr(value, name, MISSING) if name in field_names(value) else MISSING


def look_up(path: str, values: Any, part: Callable[[Any, str], Any] = read_part) -> Any:
    """The value at a path, or MISSING. A key that has dots itself is found before its parts are."""
    value = part(values, path)
    if value is MISSING and "." in path:
        first, rest = path.split(".", 1)
        inner = part(values, first)
        return MISSING if inner is MISSING else look_up(rest, inner, part)
    return value


def as_fields(value: Any) -> dict[str, Any]:
    """The fields of an object; of one that has none, nothing."""
    if isinstance(value, Mapping):
        return {str(key): field_value for key, field_value in value.items()}
    return {name: getattr(value, name) for name in field_names(value)}


def field_names(value: Any) -> Iterable[str]:
    """The fields that a record says it has."""
    if is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in fields(value)]
    for attribute in ("model_fields", "__struct_fields__"):  # pydantic's models and msgspec's structs name theirs
        names = getattr(type(value), attribute, None)
        if isinstance(names, Mapping | tuple):
            return names
    return ()
