"""The values of the standard library that JSON has no word for, each as an object with a `$` tag."""

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
    Close,
    Open,
    Refused,
    ValueKind,
    close_items,
    close_members,
    close_pairs,
    open_items,
    open_pairs,
    shorten,
)

_FACTORIES: dict[str, Callable[[], Any]] = {kind.__name__: kind for kind in (list, dict, set, int, float, str, bool)}
_ALIKE = frozenset({"$", "v"})
_UNORDERED = frozenset({"set", "frozenset", "dict", "Counter", "defaultdict"})

_write = msgspec.json.Encoder().encode
_write_sorted = msgspec.json.Encoder(order="deterministic").encode


def dump(tree: Any) -> bytes:
    """The bytes of a closed value."""
    try:
        return _write(tree)
    except UnicodeEncodeError:  # rare enough to pay for a second walk only now
        return _write(_escape(tree))


def dump_canonical(tree: Any) -> bytes:
    """The bytes of a closed value, the same for every order of what has none."""
    escaped = _escape(tree)
    _order(escaped)
    return _write_sorted(escaped)


def _order(tree: Any) -> None:
    """Sort the lists of unordered things; dict keys are left to the writer."""
    if type(tree) is list:
        for item in tree:
            _order(item)
    elif type(tree) is dict:
        for item in tree.values():
            _order(item)
        if tree.get("$") in _UNORDERED:
            tree["v"].sort(key=_write_sorted)


def _escape(tree: Any) -> Any:
    """A copy of the tree, with every text that UTF-8 cannot say written as bytes. Parts of the tree may be a user's."""
    root = [tree]
    pending: list[Any] = [root]
    while pending:  # a loop, since the tree of odd dicts is three times as deep as the value
        place = pending.pop()
        for step, item in enumerate(place) if type(place) is list else place.items():
            place[step] = part = _sayable(item)
            if type(part) is list or type(part) is dict:
                pending.append(part)
    return root[0]


def _sayable(tree: Any) -> Any:
    if type(tree) is str and _has_surrogates(tree):
        return {"$": "str", "v": b64encode(tree.encode("utf-8", "surrogatepass")).decode("ascii")}
    if type(tree) is dict and any(map(_has_surrogates, tree)):
        return {"$": "dict", "v": [list(pair) for pair in tree.items()]}
    return tree.copy() if type(tree) is dict or type(tree) is list else tree


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


class Value(msgspec.Struct, frozen=True):
    """One type of the standard library, as two functions say."""

    tag: str
    close: Callable[[Any, Close, int], dict[str, Any]]
    open: Callable[[dict[str, Any], Open, int], Any]
    members: frozenset[str] = _ALIKE


def exactly(kind: type, value: Any) -> Any:
    """A part of what is stored, if it is of the kind that belongs there."""
    if type(value) is not kind:
        raise Refused(f"a `{kind.__name__}` belongs here, and a `{type(value).__name__}` is stored")
    return value


def _text_value(tag: str, write: Callable[[Any], str], read: Callable[[str], Any]) -> Value:
    """A value that has a text of its own. The text may itself be one that UTF-8 cannot say (a file's name)."""
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": write(value)},
        lambda tree, open, depth: read(exactly(str, open(tree["v"], depth + 1))),
    )


def _list_value(tag: str, kind: Callable[[list[Any]], Any], parts: Callable[[Any], Any] = iter) -> Value:
    """A value that is made from a list of others."""
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": close_items(parts(value), close, depth)},
        lambda tree, open, depth: kind(open_items(tree["v"], open, depth)),
    )


def _set_value(tag: str, kind: Callable[[list[Any]], Any]) -> Value:
    """A set: its elements sorted by their bytes, so that equal sets are stored alike."""
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": sorted(close_members(value, close, depth), key=dump)},
        lambda tree, open, depth: kind(open_items(tree["v"], open, depth)),
    )


def _mapping_value(tag: str, kind: Callable[[Any], Any]) -> Value:
    return Value(
        tag,
        lambda value, close, depth: {"$": tag, "v": close_pairs(value.items(), close, depth)},
        lambda tree, open, depth: kind(open_pairs(tree["v"], open, depth)),
    )


def _counter(pairs: list[tuple[Any, Any]]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, pairs)  # Counter.update would add up, and count the pairs
    return counter


def _base64(tag: str, kind: Callable[[bytes], Any]) -> Value:
    return _text_value(
        tag, lambda value: b64encode(value).decode("ascii"), lambda text: kind(b64decode(text, validate=True))
    )


def _odd_float(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        raise Refused("only nan and the infinities are stored as text, and this is another number")
    return value


def _complex(parts: list[Any]) -> complex:
    real, imaginary = parts
    return complex(exactly(float, real), exactly(float, imaginary))


def _timedelta(parts: list[Any]) -> timedelta:
    days, seconds, microseconds = (exactly(int, part) for part in parts)
    return timedelta(days, seconds, microseconds)


def _range(parts: list[Any]) -> range:
    start, stop, step = parts
    return range(start, stop, step)


# --- time -------------------------------------------------------------------------------------------------------------


def _close_moment(value: Any, close: Close, depth: int) -> dict[str, Any]:
    """A datetime or time: ISO text, with the offset in it if that says all; else the zone beside it."""
    tree: dict[str, Any] = {"$": type(value).__name__}
    if _in_iso(value.tzinfo):
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


def _in_iso(zone: tzinfo | None) -> bool:
    if zone is None:
        return True
    if type(zone) is not timezone or len(zone.__getinitargs__()) > 1:  # type: ignore[attr-defined]
        return False
    return zone.utcoffset(None) % timedelta(minutes=1) == timedelta(0)  # Python loses some odd ones on reading


def _opens_moment(kind: Any) -> Callable[[dict[str, Any], Open, int], Any]:
    def open_moment(tree: dict[str, Any], open: Open, depth: int) -> Any:
        moment = kind.fromisoformat(exactly(str, tree["v"]))
        if "tz" in tree:
            zone = open(tree["tz"], depth + 1)
            if not isinstance(zone, tzinfo):
                raise Refused(f"a time zone belongs here, and a `{type(zone).__name__}` is stored")
            moment = moment.replace(tzinfo=zone)
        return moment.replace(fold=exactly(int, tree["fold"])) if "fold" in tree else moment

    return open_moment


def _close_offset(zone: timezone, close: Close, depth: int) -> dict[str, Any]:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    tree = {"$": "timezone", "v": [offset.days, offset.seconds, offset.microseconds]}
    return {**tree, "name": name[0]} if name else tree


def _open_offset(tree: dict[str, Any], open: Open, depth: int) -> timezone:
    offset = _timedelta(exactly(list, tree["v"]))
    return timezone(offset, exactly(str, open(tree["name"], depth + 1))) if "name" in tree else timezone(offset)


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise Refused("a `ZoneInfo` without a key cannot be stored: make it with `ZoneInfo('Europe/Berlin')`")
    return zone.key


# --- collections with more to them ------------------------------------------------------------------------------------


def _close_deque(value: deque[Any], close: Close, depth: int) -> dict[str, Any]:
    tree = {"$": "deque", "v": close_items(value, close, depth)}
    return tree if value.maxlen is None else {**tree, "maxlen": value.maxlen}


def _open_deque(tree: dict[str, Any], open: Open, depth: int) -> deque[Any]:
    return deque(open_items(tree["v"], open, depth), exactly(int, tree["maxlen"]) if "maxlen" in tree else None)


def _close_defaultdict(value: defaultdict[Any, Any], close: Close, depth: int) -> dict[str, Any]:
    factory = value.default_factory
    if factory is None:
        return {"$": "defaultdict", "v": close_pairs(value.items(), close, depth)}
    name = getattr(factory, "__name__", type(factory).__name__)
    if _FACTORIES.get(name) is not factory:
        raise Refused(
            f"a `defaultdict` of `{shorten(name)}` cannot be stored: use one of {', '.join(_FACTORIES)}, "
            f"or a plain dict"
        )
    return {"$": "defaultdict", "of": name, "v": close_pairs(value.items(), close, depth)}


def _open_defaultdict(tree: dict[str, Any], open: Open, depth: int) -> defaultdict[Any, Any]:
    factory = _FACTORIES[exactly(str, tree["of"])] if "of" in tree else None
    return defaultdict(factory, open_pairs(tree["v"], open, depth))


# --- the table --------------------------------------------------------------------------------------------------------

_MOMENT = _ALIKE | {"tz", "fold"}

VALUES: dict[type, ValueKind] = {
    tuple: _list_value("tuple", tuple),
    set: _set_value("set", set),
    frozenset: _set_value("frozenset", frozenset),
    dict: _mapping_value("dict", dict),  # only those that are no JSON object: other keys than str, or a key `$`
    OrderedDict: _mapping_value("OrderedDict", OrderedDict),
    Counter: _mapping_value("Counter", _counter),
    defaultdict: Value("defaultdict", _close_defaultdict, _open_defaultdict, _ALIKE | {"of"}),
    deque: Value("deque", _close_deque, _open_deque, _ALIKE | {"maxlen"}),
    range: _list_value("range", _range, lambda value: (value.start, value.stop, value.step)),
    bytes: _base64("bytes", bytes),
    bytearray: _base64("bytearray", bytearray),
    int: _text_value("int", str, int),  # only those beyond 64 bits
    float: _text_value("float", repr, _odd_float),  # only those that JSON has no number for
    complex: _list_value("complex", _complex, lambda value: (value.real, value.imag)),
    Decimal: _text_value("Decimal", str, Decimal),
    UUID: _text_value("UUID", str, UUID),
    date: _text_value("date", date.isoformat, date.fromisoformat),
    datetime: Value("datetime", _close_moment, _opens_moment(datetime), _MOMENT),
    time: Value("time", _close_moment, _opens_moment(time), _MOMENT),
    timedelta: _list_value("timedelta", _timedelta, lambda value: (value.days, value.seconds, value.microseconds)),
    timezone: Value("timezone", _close_offset, _open_offset, _ALIKE | {"name"}),
    ZoneInfo: _text_value("ZoneInfo", _zone_key, ZoneInfo),
    type(Path()): _text_value("Path", str, Path),
    PurePosixPath: _text_value("PurePosixPath", str, PurePosixPath),
    PureWindowsPath: _text_value("PureWindowsPath", str, PureWindowsPath),
}

_ESCAPED = _text_value("str", str, lambda text: b64decode(text, validate=True).decode("utf-8", "surrogatepass"))

VALUES_BY_TAG: dict[str, ValueKind] = {kind.tag: kind for kind in (*VALUES.values(), _ESCAPED)}
