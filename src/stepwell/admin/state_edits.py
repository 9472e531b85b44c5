"""Edits a state in its stored JSON form by paths, for forks. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from stepwell.admin.diffs.json_diff import parts_of
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.codec.traversal import DEPTH, INT_MAX, INT_MIN, shorten
from stepwell.errors import CodecError, StepwellError
from stepwell.model.valid_text import is_text

_SHOWN = 12  # keys listed in an error


class EditRefused(StepwellError, ValueError):
    """A path does not exist in the state, or a value cannot be stored. Nothing was changed."""


def edit_state(
    state: Mapping[str, Any],
    *,
    set: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    delete: Collection[str] = (),
) -> dict[str, Any]:
    """Return a copy of a state with these changes.

    All paths refer to the state before any of the changes.

    A path is keys and list indexes separated by dots, or, for keys that contain dots, a JSON
    Pointer: `a.b.0` or `/a/b/0`. Paths skip the tags of classes: the price of an order is
    `order.price`; `order.v.price` works, too. What is set or deleted must exist, what is added must
    not; in a list, it is inserted before the index. Values are in their stored form, classes as
    their tags. Raises EditRefused, which lists what exists.
    """
    removed = [_resolve_tags(state, _parts(path)) for path in delete]
    replaced, added = _read_changes("set", set or {}, state), _read_changes("add", add or {}, state)
    _check_no_overlap([*removed, *replaced])
    # A deep copy that also fails for what JSON cannot hold.
    result = {key: msgspec.json.decode(msgspec.json.encode(value)) for key, value in state.items()}
    # Setting moves no index, so it comes first, while every path still means what it meant.
    for parts, value in replaced.items():
        container, last = _locate(result, parts)
        container[last] = value
    _check_no_overlap([*removed, *added])
    # From the back, so that no index shifts before its turn. At one index the removal comes first,
    # so that an item inserted before the removed one takes its place.
    changes = [(path, 1, None) for path in removed] + [(path, 0, value) for path, value in added.items()]
    for parts, removes, value in sorted(changes, key=lambda change: (_order(change[0]), change[1]), reverse=True):
        if removes:
            container, last = _locate(result, parts)
            del container[last]
        else:
            _add(result, parts, value)
    return result


def check_plain(value: Any, what: str) -> None:
    """Raise EditRefused unless a value is JSON that can be stored."""
    _check_plain(value, what, 0, tags=False)


def _read_changes(what: str, changes: Mapping[str, Any], state: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return the values by path.

    They are copied, so that later changes by the caller have no effect.
    """
    values: dict[tuple[str, ...], Any] = {}
    for path, value in changes.items():
        _check_value(value, f"{what} {path!r}")
        parts = _resolve_tags(state, _parts(path))
        if parts in values:
            raise EditRefused(f"{path!r} is changed twice; name each path once")
        values[parts] = deepcopy(value)
    return values


def _parts(path: str) -> tuple[str, ...]:
    if not isinstance(path, str) or not path:
        raise EditRefused(f"a path is a string like 'a.b.0' or '/a/b/0', not {path!r}")
    parts = parts_of(path) if path.startswith("/") else tuple(path.split("."))
    if not path.startswith("/") and "" in parts:
        raise EditRefused(f"{path!r} contains an empty key; if that is intended, write a JSON Pointer: /a//b")
    return parts


def _resolve_tags(state: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path as it is stored: through `v` below a tagged value."""
    value: Any = state
    parts: list[str] = []
    for part in path:
        # `parts` is empty at the top: the state itself is not a tagged value, even if its keys are
        # `$` and `v`.
        if parts and _is_tagged(value) and part not in value:
            parts.append("v")
            value = value["v"]
        parts.append(part)
        if isinstance(value, list) and _is_index(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            # A path that does not exist is reported later, with what exists there.
            value = value.get(part) if isinstance(value, Mapping) else None
    return tuple(parts)


def _is_tagged(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("$"), str) and "v" in value


def _order(path: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    # Indexes by number: as strings, "10" would sort before "9".
    return tuple((int(part), part) if _is_index(part) else (-1, part) for part in path)


def _is_index(part: str) -> bool:
    # isdigit() alone accepts superscripts; 19 digits and more are not an index, and slow to
    # convert.
    return part.isascii() and part.isdigit() and len(part) < 19


def _check_no_overlap(paths: list[tuple[str, ...]]) -> None:
    for path in paths:
        for other in paths:
            if path is not other and other[: len(path)] == path:
                raise EditRefused(f"{'.'.join(path)!r} contains {'.'.join(other)!r}, so they cannot both be changed")


def _locate(state: dict[str, Any], path: tuple[str, ...]) -> tuple[Any, str | int]:
    """Return the mapping or list that holds the last part of a path, and the key or index there."""
    container, last = _find_container(state, path), path[-1]
    if isinstance(container, dict) and last in container:
        return container, last
    if isinstance(container, list) and _is_index(last) and int(last) < len(container):
        return container, int(last)
    raise _missing_path(path, container, len(path) - 1)


def _find_container(state: dict[str, Any], path: tuple[str, ...]) -> Any:
    container: Any = state
    for n, part in enumerate(path[:-1]):
        if isinstance(container, dict) and part in container:
            container = container[part]
        elif isinstance(container, list) and _is_index(part) and int(part) < len(container):
            container = container[int(part)]
        else:
            raise _missing_path(path, container, n)
    return container


def _add(state: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    container, last = _find_container(state, path), path[-1]
    if isinstance(container, dict) and last not in container:
        container[last] = value
    elif isinstance(container, list) and _is_index(last) and int(last) <= len(container):
        container.insert(int(last), value)
    elif isinstance(container, dict):
        raise EditRefused(f"state {'.'.join(path)!r} already exists; use set to replace it")
    else:
        raise _missing_path(path, container, len(path) - 1)


def _missing_path(path: tuple[str, ...], container: Any, n: int) -> EditRefused:
    where = f"state {'.'.join(path[:n])!r}" if n else "the state"
    if isinstance(container, dict):
        names = [shorten(name) for name in list(container)[:_SHOWN]]
        more = f" and {len(container) - _SHOWN} more" if len(container) > _SHOWN else ""
        content = f"has {', '.join(map(repr, names))}{more}" if names else "is empty"
    elif isinstance(container, list):
        content = f"is a list of {len(container)} items, counted from 0"
    else:
        content = f"is {shorten(msgspec.json.encode(container).decode())}, which is not a mapping or a list"
    return EditRefused(f"{'.'.join(path)!r} does not exist: {where} {content}")


def _check_value(value: Any, what: str) -> None:
    """Raise EditRefused unless a value can be stored as it is."""
    # A value of a user's class is not decoded here: only a program with that class can check it.
    if not _check_plain(value, what, 0):
        try:
            DEFAULT_CODEC.decode(msgspec.json.encode(value), "$")
        except CodecError as error:
            raise EditRefused(f"{what}: {error}") from error


def _check_plain(value: Any, what: str, depth: int, *, tags: bool = True) -> bool:
    """Return whether a value names classes of users.

    Raises EditRefused if it is not JSON that can be stored.
    """
    if depth > DEPTH:
        raise EditRefused(f"{what} is nested too deeply: the limit is {DEPTH} levels")
    # `type(...) is`: a subclass, such as an enum, would come back from the store as its base class.
    is_scalar = (
        value is None
        or type(value) is bool
        or (type(value) is int and INT_MIN <= value <= INT_MAX)
        or (type(value) is float and math.isfinite(value))
        or (type(value) is str and is_text(value))
    )
    if is_scalar:
        return False
    if type(value) is list:
        # A list in any(), not a generator: every item is checked, even after one that names a
        # class.
        return any([_check_plain(item, what, depth + 1, tags=tags) for item in value])  # noqa: C419
    if type(value) is dict and all(type(name) is str and is_text(name) for name in value):
        has_class = any([_check_plain(item, what, depth + 1, tags=tags) for item in value.values()])  # noqa: C419
        return (tags and "$" in value and _is_class(value, what)) or has_class
    raise EditRefused(
        f"{what}: {shorten(repr(value))} is not JSON that can be stored; write it in its stored form, "
        f'for example {{"$": "Decimal", "v": "1.5"}}'
    )


def _is_class(value: dict[str, Any], what: str) -> bool:
    if not isinstance(value["$"], str) or "v" not in value:
        raise EditRefused(f"{what}: a mapping with the key '$' is a tagged value and needs its content under 'v'")
    # Standard types have plain tags (Decimal, datetime); the tag of a class reads "module:Class".
    return ":" in value["$"]
