"""Payloads: values that are closed when they are handed over, and opened afresh by each reader.

Therefore nobody else can see what a handler does to an object after sending it, or what a receiver
does to the one it got. A run that shares no objects behaves the same live and after a resume.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from operator import is_
from types import MethodType
from typing import Any, Protocol

import msgspec

IMMUTABLE: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, datetime, date, time, timedelta, Decimal, range, type}
)


class Payload(Protocol):
    """A value that can no longer be changed."""

    def open(self) -> Any:
        """Return the value as a copy that belongs to the caller."""


class Pack(Protocol):
    """Closes a value. `what` says what it is (`$.message`, `$.state.cart`), for error messages.

    `before` is an earlier payload of it, if there is one: what did not change may be taken from there.
    """

    def __call__(self, value: object, what: str, before: Payload | None = None, /) -> Payload: ...


class CopiedPayload(msgspec.Struct, frozen=True, eq=False):
    """A payload of a run without storage: plain data is copied, everything else is shared."""

    value: Any

    def open(self) -> Any:
        return self.value if type(self.value) in IMMUTABLE else plain_copy(self.value)


class PayloadList(msgspec.Struct, eq=False):
    """Several payloads opened together, such as the list a fan-in delivers."""

    payloads: tuple[Payload, ...]
    _template: Template | None = None
    _was_read: bool = False

    def open(self) -> list[Any]:
        if self._template is not None:
            return self._template.copy()
        items = [payload.open() for payload in self.payloads]
        # Most lists are read once. One that is read again is worth the memory of a template.
        if self._was_read:
            self._template = template_of(items)
        self._was_read = True
        return items


class PayloadDict:
    """Several payloads opened together, as a dict."""

    __slots__ = ("payloads",)

    def __init__(self, payloads: Mapping[str, Payload]) -> None:
        self.payloads = payloads

    def open(self) -> dict[str, Any]:
        return {key: payload.open() for key, payload in self.payloads.items()}

    def __eq__(self, other: object) -> bool:
        # The order of its keys is part of a value.
        return isinstance(other, PayloadDict) and [*self.payloads.items()] == [*other.payloads.items()]


class ChunkedList:
    """A long list in consecutive chunks, each the payload of a list, so that a change concerns few of them."""

    __slots__ = ("chunks",)

    def __init__(self, chunks: tuple[Payload, ...]) -> None:
        self.chunks = chunks

    def open(self) -> list[Any]:
        return list(chain.from_iterable([chunk.open() for chunk in self.chunks]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChunkedList) and self.chunks == other.chunks


class Template:
    """A private copy of the items of a list, from which further copies cost no decoding.

    Copying and comparing run at the speed of C, so only two kinds of items are supported: those
    that nobody can change, and dicts of such values.
    """

    __slots__ = ("_are_dicts", "_items", "_parts")

    def __init__(self, items: list[Any], are_dicts: bool) -> None:
        self._are_dicts = are_dicts
        self._items: list[Any] = list(map(dict.copy, items)) if are_dicts else items.copy()
        # The lengths of the dicts, all of their keys, and all of their values.
        self._parts: tuple[list[int], list[str], list[Any]] | None = None

    def copy(self) -> list[Any]:
        return list(map(dict.copy, self._items)) if self._are_dicts else self._items.copy()

    def is_same(self, items: list[Any]) -> bool:
        """Return whether a list holds the very same values: `True` and `1.0` equal `1`, but are stored differently."""
        if not self._are_dicts:
            return len(items) == len(self._items) and all(map(is_, items, self._items))
        if self._parts is None:
            self._parts = list(map(len, self._items)), list(_keys(self._items)), list(_values(self._items))
        lengths, keys, values = self._parts
        return (
            set(map(type, items)) == {dict}
            and list(map(len, items)) == lengths
            and all(map(is_, _keys(items), keys))  # the order of keys is part of a value
            and all(map(is_, _values(items), values))
        )


def _keys(dicts: list[dict[Any, Any]]) -> Iterable[Any]:
    return chain.from_iterable(dicts)


def _values(dicts: list[dict[Any, Any]]) -> Iterable[Any]:
    return chain.from_iterable(map(dict.values, dicts))


def template_of(items: list[Any]) -> Template | None:
    """Return a template of a list; None if its items are of other kinds."""
    if _are_plain(items) or all(map(_is_immutable, items)):
        return Template(items, are_dicts=False)
    if set(map(type, items)) == {dict} and {str}.issuperset(map(type, _keys(items))) and _are_plain(_values(items)):
        return Template(items, are_dicts=True)
    return None


def _are_plain(values: Iterable[Any]) -> bool:
    return IMMUTABLE.issuperset(map(type, values))


def _is_immutable(value: Any) -> bool:
    """Return whether nobody can change a value: it is plain, or a frozen dataclass of plain ones with slots."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind):
        return kind in IMMUTABLE
    fixed = kind.__dataclass_params__.frozen and kind.__base__ is object and not kind.__dictoffset__  # type: ignore[attr-defined]
    return fixed and all(type(getattr(value, f.name, None)) in IMMUTABLE for f in dataclasses.fields(kind))


def pack_copy(value: object, what: str, before: Payload | None = None) -> Payload:
    """Close a value by copying it: the `Pack` of runs without storage."""
    return CopiedPayload(value if type(value) in IMMUTABLE else plain_copy(value))


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
    duplicate: Any
    if (kind is list and _are_plain(value)) or (kind is dict and _are_plain(value) and _are_plain(value.values())):
        duplicate = value.copy()
    elif kind is list:
        duplicate = seen[id(value)] = []
        duplicate.extend([_copy(item, seen) for item in value])
    elif kind is dict:
        duplicate = seen[id(value)] = {}
        duplicate.update([(_copy(k, seen), _copy(v, seen)) for k, v in value.items()])
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
