"""Payloads: values that are closed when they are handed over, and opened afresh by each reader.

Therefore nobody else can see what a handler does to an object after sending it, or what a receiver
does to the one it got. A run that shares no objects behaves the same live and after a resume.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MethodType
from typing import Any, Protocol

IMMUTABLE: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, datetime, date, time, timedelta, Decimal, range, type}
)


class Payload(Protocol):
    """A value that can no longer be changed."""

    def open(self) -> Any:
        """Return the value as a copy that belongs to the caller."""


Pack = Callable[[object, str], Payload]
"""Closes a value. The string says what it is (`$.message`, `$.state.cart`), for error messages."""


class CopiedPayload:
    """A payload of a run without storage: plain data is copied, everything else is shared."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def open(self) -> Any:
        return plain_copy(self._value)


class PayloadList:
    """Several payloads opened together, as the list a fan-in delivers."""

    __slots__ = ("payloads",)

    def __init__(self, payloads: Sequence[Payload]) -> None:
        self.payloads = tuple(payloads)

    def open(self) -> list[Any]:
        return [payload.open() for payload in self.payloads]


def pack_copy(value: object, what: str) -> Payload:
    """Close a value by copying it: the `Pack` of runs without storage."""
    return CopiedPayload(plain_copy(value))


def plain_copy(value: Any, replacements: dict[int, Any] | None = None) -> Any:
    """Return a deep copy of plain data, in which clients, locks and other live objects are shared.

    `copy.deepcopy` would fail on them, or copy a connection. `replacements` maps the `id()` of an
    object to what takes its place in the copy.
    """
    kind = type(value)
    if kind in IMMUTABLE or isinstance(value, Enum):
        return value
    return _copy(value, dict(replacements or {}))


def _copy(value: Any, seen: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in IMMUTABLE or isinstance(value, (Enum, type)):
        return value
    if id(value) in seen:
        return seen[id(value)]
    # Exactly these built-in types. A list or dict enters `seen` before it is filled, because it may
    # contain itself.
    if kind is list:
        duplicate: Any = []
        seen[id(value)] = duplicate
        duplicate.extend(_copy(item, seen) for item in value)
    elif kind is dict:
        duplicate = {}
        seen[id(value)] = duplicate
        duplicate.update((_copy(k, seen), _copy(v, seen)) for k, v in value.items())
    elif kind in (set, frozenset, tuple, bytearray):
        duplicate = kind([_copy(item, seen) for item in value])
    elif kind is deque:
        duplicate = deque((_copy(item, seen) for item in value), value.maxlen)
    # A bound method of an object that is being copied belongs to the copy
    elif kind is MethodType and id(value.__self__) in seen:
        duplicate = MethodType(value.__func__, seen[id(value.__self__)])
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        duplicate = kind(*(_copy(item, seen) for item in value))
    # Subclasses and pydantic models: a shallow copy keeps what they add, then the contents are replaced
    elif isinstance(value, (list, dict, set)) or hasattr(kind, "model_fields"):
        duplicate = copy.copy(value)
        if isinstance(value, list):
            duplicate[:] = [_copy(item, seen) for item in value]
        elif isinstance(value, dict):
            for key in list(value):
                duplicate[key] = _copy(value[key], seen)
        elif not isinstance(value, set):
            duplicate.__dict__.update({k: _copy(v, seen) for k, v in value.__dict__.items()})
    elif dataclasses.is_dataclass(value):
        duplicate = copy.copy(value)
        for name, item in _attributes(value):
            object.__setattr__(duplicate, name, _copy(item, seen))  # it may be frozen
    else:
        duplicate = value
    seen[id(value)] = duplicate
    return duplicate


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the fields of a dataclass that are set, and any other attributes of the instance."""
    named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    return list((named | getattr(value, "__dict__", {})).items())
