"""Values compared to the last bit, and put into each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy
from pydantic import BaseModel

from tests.properties.every_type import Base, Frozen, Point, Row, Slotted, Struct, grown

WRAPPINGS: list[Any] = [
    lambda value: value,
    lambda value: [value],
    lambda value: {"key": value},
    lambda value: {"$": value, 1: None},
    lambda value: (0, value),
    lambda value: Base(value),
    lambda value: Slotted(value=value),
    lambda value: Frozen(value=value),
    lambda value: Struct(the_value=value),
    lambda value: Row(value),
    lambda value: Point(value, value),
    lambda value: grown(ValueError(value), ["a note"], KeyError(value)),
]
"""Ways to stand in another value."""


def spelled(value: Any) -> Any:
    """All there is to know of a value: two are spelled alike only if nothing differs."""
    kind = type(value)
    if isinstance(value, numpy.ndarray | numpy.generic):
        order = value.flags.fnc if isinstance(value, numpy.ndarray) else None
        return kind, value.dtype.descr, value.dtype.str, value.shape, order, value.tobytes()
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(spelled(item)) for item in value)
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return kind, factory, [(spelled(key), spelled(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return kind, [spelled(item) for item in value]
    if isinstance(value, BaseException):
        names = ("filename", "value", "code", "extra", "name", "msg", "object", "exceptions")
        beside = [getattr(value, name, None) for name in names]
        return kind, spelled(value.args), spelled(vars(value)), spelled(beside), spelled(value.__cause__)
    if isinstance(value, BaseModel):
        return kind, spelled(vars(value)), value.model_fields_set, spelled(value.model_extra), spelled(_private(value))
    if isinstance(value, msgspec.Struct):
        return kind, spelled(msgspec.structs.asdict(value))
    if dataclasses.is_dataclass(value):
        return kind, [spelled(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return kind, repr(value), getattr(value, "fold", None), getattr(value, "maxlen", None)


def _private(value: BaseModel) -> Any:
    return value.__pydantic_private__
