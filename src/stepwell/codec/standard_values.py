"""The standard library's values that JSON cannot express, each as an object with a `$` tag.

The table `VALUES` at the end is the list of them; the functions above it are its cells.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from stepwell.codec.traversal import (
    ATOMS,
    Close,
    Open,
    Refused,
    ValueKind,
    close_items,
    close_members,
    close_pairs,
    describe_json,
    describe_type,
    open_pairs,
    open_parts,
    shorten,
)

_FACTORIES: dict[str, Callable[[], Any]] = {kind.__name__: kind for kind in (list, dict, set, int, float, str, bool)}
_TAG_AND_VALUE = frozenset({"$", "v"})
_UNORDERED = frozenset({"set", "frozenset", "dict", "Counter", "defaultdict"})

_write = msgspec.json.Encoder().encode
_write_sorted = msgspec.json.Encoder(order="deterministic").encode


def dump(tree: Any) -> bytes:
    """Return the bytes of a JSON tree."""
    try:
        return _write(tree)
    except UnicodeEncodeError:  # a lone surrogate, so rare that looking for one first would not pay
        return _write(_escape(tree))


def dump_canonical(tree: Any) -> bytes:
    """Return bytes that do not depend on the order of dicts and sets."""
    escaped = _escape(tree)
    _sort_unordered(escaped)
    return _write_sorted(escaped)


def _sort_unordered(tree: Any) -> None:
    """Sort the lists that stand for unordered collections; the encoder sorts the keys of objects."""
    if type(tree) is list:
        for item in tree:
            _sort_unordered(item)
    elif type(tree) is dict:
        for item in tree.values():
            _sort_unordered(item)
        if tree.get("$") in _UNORDERED:
            tree["v"].sort(key=_write_sorted)


def _escape(tree: Any) -> Any:
    """Return a copy of the tree in which strings that are not valid UTF-8 are tagged objects.

    A copy, because parts of the tree may be the user's own lists and dicts.
    """
    root = [tree]
    pending: list[Any] = [root]
    # A loop instead of recursion: a dict with other keys than strings becomes a list of pairs in an
    # object, so the tree can be three times as deep as the value, and the stack is not.
    while pending:
        parent = pending.pop()
        for step, item in enumerate(parent) if type(parent) is list else parent.items():
            parent[step] = part = _escape_shallow(item)
            if type(part) is list or type(part) is dict:
                pending.append(part)
    return root[0]


def _escape_shallow(tree: Any) -> Any:
    if type(tree) is str and _has_surrogates(tree):
        return {"$": "str", "v": b64encode(tree.encode("utf-8", "surrogatepass")).decode("ascii")}
    if type(tree) is dict and any(map(_has_surrogates, tree)):
        return {"$": "dict", "v": [list(pair) for pair in tree.items()]}
    return tree.copy() if type(tree) is dict or type(tree) is list else tree


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


class Value(msgspec.Struct, frozen=True):
    """How one type of the standard library is written and read, as a pair of functions."""

    tag: str
    close: Callable[[Any, Close, int], dict[str, Any]]
    open: Callable[[dict[str, Any], Open, int], Any]
    members: frozenset[str] = _TAG_AND_VALUE


def require(kind: type, value: Any) -> Any:
    """Return a part of stored data if it is of exactly this type; raise Refused if not."""
    if type(value) is not kind:
        raise Refused(f"expected {describe_type(kind)}, found {describe_json(value)}")
    return value


def _text_value(tag: str, write: Callable[[Any], str], read: Callable[[str], Any]) -> Value:
    """Return the kind of a type that has a text form."""
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": write(value)},
        # opened, because the text may be tagged itself: file names may contain lone surrogates
        lambda tree, open, depth: read(require(str, open(tree["v"], depth + 1))),
    )


def _list_value(tag: str, kind: Callable[[list[Any]], Any], parts: Callable[[Any], Any] = iter) -> Value:
    """Return the kind of a type that is made from a list of other values."""
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": close_items(parts(value), close, depth)},
        lambda tree, open, depth: kind(open_parts(tree["v"], list, open, depth)),
    )


def _set_value(tag: str, kind: Callable[[list[Any]], Any]) -> Value:
    """Return the kind of a set: its elements are sorted by their bytes, so that equal sets are stored alike."""
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": sorted(close_members(value, close, depth), key=dump)},
        lambda tree, open, depth: kind(open_parts(tree["v"], list, open, depth)),
    )


def _mapping_value(tag: str, kind: Callable[[Any], Any]) -> Value:
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": close_pairs(value.items(), close, depth)},
        lambda tree, open, depth: kind(open_pairs(tree["v"], open, depth)),
    )


def _counter(pairs: list[tuple[Any, Any]]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, pairs)  # Counter.update would count the pairs
    return counter


def _base64(tag: str, kind: Callable[[bytes], Any]) -> Value:
    return _text_value(
        tag, lambda value: b64encode(value).decode("ascii"), lambda text: kind(b64decode(text, validate=True))
    )


def _non_finite(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        raise Refused("expected nan or an infinity, found a finite number stored as text")
    return value


def _complex(parts: list[Any]) -> complex:
    real, imaginary = parts
    return complex(require(float, real), require(float, imaginary))


def _timedelta(parts: list[Any]) -> timedelta:
    days, seconds, microseconds = (require(int, part) for part in parts)
    return timedelta(days, seconds, microseconds)


def _range(parts: list[Any]) -> range:
    start, stop, step = parts
    return range(start, stop, step)


# --- time -------------------------------------------------------------------------------------------------------------


def _close_moment(value: Any, close: Close, depth: int) -> dict[str, Any]:
    """Close a datetime or time: ISO text with the offset in it if that is the whole zone, else beside it."""
    tree: dict[str, Any] = {"$": type(value).__name__}
    if _fits_iso(value.tzinfo):
        tree["v"] = value.isoformat()
    else:
        tree["v"] = value.replace(tzinfo=None).isoformat()
        try:
            tree["tz"] = close(value.tzinfo, depth + 1)
        except Refused as refused:
            refused.at(".tzinfo")
            raise
    if value.fold:
        tree["fold"] = 1
    return tree


def _fits_iso(zone: tzinfo | None) -> bool:
    """Return whether the offset in an ISO text would bring back this very zone."""
    if zone is None:
        return True
    if type(zone) is not timezone or len(zone.__getinitargs__()) > 1:  # type: ignore[attr-defined]
        return False  # a named zone, or a fixed offset with a name: the name would be lost
    # `fromisoformat` loses some offsets that are not whole minutes
    return zone.utcoffset(None) % timedelta(minutes=1) == timedelta(0)


def _make_moment_opener(kind: Any) -> Callable[[dict[str, Any], Open, int], Any]:
    def open_moment(tree: dict[str, Any], open: Open, depth: int) -> Any:
        moment = kind.fromisoformat(require(str, tree["v"]))
        if "tz" in tree:
            zone = open(tree["tz"], depth + 1)
            if not isinstance(zone, tzinfo):
                raise Refused(f"expected a time zone, found {describe_json(zone)}")
            moment = moment.replace(tzinfo=zone)
        return moment.replace(fold=require(int, tree["fold"])) if "fold" in tree else moment

    return open_moment


def _close_offset(zone: timezone, close: Close, depth: int) -> dict[str, Any]:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    tree = {"$": "timezone", "v": [offset.days, offset.seconds, offset.microseconds]}
    return {**tree, "name": name[0]} if name else tree


def _open_offset(tree: dict[str, Any], open: Open, depth: int) -> timezone:
    offset = _timedelta(require(list, tree["v"]))
    return timezone(offset, require(str, open(tree["name"], depth + 1))) if "name" in tree else timezone(offset)


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise Refused("a `ZoneInfo` without a key cannot be stored: create it by name, as in ZoneInfo('Europe/Berlin')")
    return zone.key


# --- collections with an option -------------------------------------------------------------------------------------


def _close_deque(value: deque[Any], close: Close, depth: int) -> dict[str, Any]:
    tree = {"$": "deque", "v": close_items(value, close, depth)}
    return tree if value.maxlen is None else {**tree, "maxlen": value.maxlen}


def _open_deque(tree: dict[str, Any], open: Open, depth: int) -> deque[Any]:
    return deque(open_parts(tree["v"], list, open, depth), require(int, tree["maxlen"]) if "maxlen" in tree else None)


def _close_defaultdict(value: defaultdict[Any, Any], close: Close, depth: int) -> dict[str, Any]:
    factory = value.default_factory
    if factory is None:
        return {"$": "defaultdict", "v": close_pairs(value.items(), close, depth)}
    name = getattr(factory, "__name__", type(factory).__name__)
    if _FACTORIES.get(name) is not factory:
        raise Refused(
            f"a `defaultdict` of `{shorten(name)}` cannot be stored: use {', '.join(_FACTORIES)} as its factory, "
            f"or a plain dict"
        )
    return {"$": "defaultdict", "of": name, "v": close_pairs(value.items(), close, depth)}


def _open_defaultdict(tree: dict[str, Any], open: Open, depth: int) -> defaultdict[Any, Any]:
    # looked up in a closed list: a factory named by stored data must not be any callable
    factory = _FACTORIES[require(str, tree["of"])] if "of" in tree else None
    return defaultdict(factory, open_pairs(tree["v"], open, depth))


# --- the table --------------------------------------------------------------------------------------------------------

_MOMENT = _TAG_AND_VALUE | {"tz", "fold"}

VALUES: dict[type, ValueKind] = {
    tuple: _list_value("tuple", tuple),
    set: _set_value("set", set),
    frozenset: _set_value("frozenset", frozenset),
    dict: _mapping_value("dict", dict),  # only if it is not a JSON object: a key `$`, or one that is not a string
    OrderedDict: _mapping_value("OrderedDict", OrderedDict),
    Counter: _mapping_value("Counter", _counter),
    defaultdict: Value("defaultdict", _close_defaultdict, _open_defaultdict, _TAG_AND_VALUE | {"of"}),
    deque: Value("deque", _close_deque, _open_deque, _TAG_AND_VALUE | {"maxlen"}),
    range: _list_value("range", _range, lambda value: (value.start, value.stop, value.step)),
    bytes: _base64("bytes", bytes),
    bytearray: _base64("bytearray", bytearray),
    int: _text_value("int", str, int),  # only beyond 64 bits
    float: _text_value("float", repr, _non_finite),  # only nan and the infinities
    complex: _list_value("complex", _complex, lambda value: (value.real, value.imag)),
    Decimal: _text_value("Decimal", str, Decimal),
    UUID: _text_value("UUID", str, UUID),
    date: _text_value("date", date.isoformat, date.fromisoformat),
    datetime: Value("datetime", _close_moment, _make_moment_opener(datetime), _MOMENT),
    time: Value("time", _close_moment, _make_moment_opener(time), _MOMENT),
    timedelta: _list_value("timedelta", _timedelta, lambda value: (value.days, value.seconds, value.microseconds)),
    timezone: Value("timezone", _close_offset, _open_offset, _TAG_AND_VALUE | {"name"}),
    ZoneInfo: _text_value("ZoneInfo", _zone_key, ZoneInfo),
    type(Path()): _text_value("Path", str, Path),
    PurePosixPath: _text_value("PurePosixPath", str, PurePosixPath),
    PureWindowsPath: _text_value("PureWindowsPath", str, PureWindowsPath),
}

BUILT_IN: frozenset[type] = frozenset({*ATOMS, list, *VALUES})
"""The types of Python and its library that are stored as they are. A class that extends one of them is not."""

# Strings are plain JSON, so only one that is not valid UTF-8 is read this way; `_escape` writes it.
_ESCAPED = _text_value("str", str, lambda text: b64decode(text, validate=True).decode("utf-8", "surrogatepass"))

VALUES_BY_TAG: dict[str, ValueKind] = {kind.tag: kind for kind in (*VALUES.values(), _ESCAPED)}
