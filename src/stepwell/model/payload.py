"""A payload on its way: closed when it is handed over, opened afresh by each reader.

What a handler does to an object after sending it, and what a receiver does to what it got, is
therefore seen by nobody else, and a live run cannot differ from a resumed one.
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

UNCHANGEABLE: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, datetime, date, time, timedelta, Decimal, range, type}
)


class Payload(Protocol):
    """A value nobody can change any more."""

    def open(self) -> Any:
        """The value, as a copy that is the reader's own."""


Pack = Callable[[object, str], Payload]
"""Close a value; the string says what it is (`$.message`, `$.state.cart`), for errors."""


class CopiedPayload:
    """A payload for runs that are kept nowhere: plain data is copied, everything else is shared."""

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
    """Pack by copying: the `Pack` of runs without storage."""
    return CopiedPayload(plain_copy(value))


def plain_copy(value: Any, standing_for: dict[int, Any] | None = None) -> Any:
    """A deep copy of plain data; clients, locks and whatever else is not data are shared.

    `standing_for` says, by identity, what stands for certain objects in the copy.
    """
    kind = type(value)
    if kind in UNCHANGEABLE or isinstance(value, Enum):
        return value
    return _copy(value, dict(standing_for or {}))


def _copy(value: Any, seen: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in UNCHANGEABLE or isinstance(value, (Enum, type)):
        return value
    if id(value) in seen:
        return seen[id(value)]
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
    elif kind is MethodType and id(value.__self__) in seen:
        duplicate = MethodType(value.__func__, seen[id(value.__self__)])
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        duplicate = kind(*(_copy(item, seen) for item in value))
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
            object.__setattr__(duplicate, name, _copy(item, seen))
    else:
        duplicate = value
    seen[id(value)] = duplicate
    return duplicate


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass that are set, and whatever else was hung on it."""
    named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    return list((named | getattr(value, "__dict__", {})).items())
