"""Changes to a state in its stored JSON form, by paths: pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from stepwell.admin.diffs.json_diff import parts_of
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.codec.plain_json import INT_MAX, INT_MIN
from stepwell.codec.traversal import DEPTH, shorten
from stepwell.errors import CodecError, StepwellError
from stepwell.model.superstep import is_text

_SHOWN = 12  # names of what is there, in an error


class EditRefused(StepwellError, ValueError):
    """A change does not fit the state, or its value cannot be stored. Nothing was changed."""


def edit_state(
    state: Mapping[str, Any],
    *,
    set: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    delete: Collection[str] = (),
) -> dict[str, Any]:
    """A copy of a state with these changes. The paths are those of the state as it was, whatever else changes in it.

    A path is names and indexes of lists with dots between them, or, for names with dots in them, a JSON Pointer:
    `a.b.0` or `/a/b/0`. It goes through tags: the price of an order is `order.price`, not `order.v.price`, which leads
    there too. What is set or deleted must be there, what is added must not; in a list, it is added before the
    index. Values are in their stored form, classes as their tags. Raises EditRefused, saying what is there.
    """
    removed = [_resolve_tags(state, _parts(path)) for path in delete]
    replaced, added = _read_changes("set", set or {}, state), _read_changes("add", add or {}, state)
    _check_no_overlap([*removed, *replaced])
    result = {key: msgspec.json.decode(msgspec.json.encode(value)) for key, value in state.items()}
    for parts, value in replaced.items():
        inside, last = _locate(result, parts)
        inside[last] = value
    _check_no_overlap([*removed, *added])
    # from the back, so that no index moves before its turn; what is added before an item comes after its removal
    changes = [(path, 1, None) for path in removed] + [(path, 0, value) for path, value in added.items()]
    for parts, removes, value in sorted(changes, key=lambda change: (_order(change[0]), change[1]), reverse=True):
        if removes:
            inside, last = _locate(result, parts)
            del inside[last]
        else:
            _add(result, parts, value)
    return result


def check_plain(value: Any, what: str) -> None:
    """Raises EditRefused unless a value is JSON that can be stored."""
    _check_plain(value, what, 0, tags=False)


def _read_changes(what: str, changes: Mapping[str, Any], state: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Values by paths, as copies that nobody else has."""
    values: dict[tuple[str, ...], Any] = {}
    for path, value in changes.items():
        _check_value(value, f"{what} {path!r}")
        parts = _resolve_tags(state, _parts(path))
        if parts in values:
            raise EditRefused(f"{path!r} would be changed twice")
        values[parts] = deepcopy(value)
    return values


def _parts(path: str) -> tuple[str, ...]:
    if not isinstance(path, str) or not path:
        raise EditRefused(f"a path is a text like 'a.b.0' or '/a/b/0', not {path!r}")
    parts = parts_of(path) if path.startswith("/") else tuple(path.split("."))
    if not path.startswith("/") and "" in parts:
        raise EditRefused(f"{path!r} has an empty name in it; if that is meant, write it as a JSON Pointer: /a//b")
    return parts


def _resolve_tags(state: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
    """The path as it is stored: what is looked for in a value with a tag is in its content."""
    inside: Any = state
    parts: list[str] = []
    for part in path:
        if parts and _is_tagged(inside) and part not in inside:
            parts.append("v")
            inside = inside["v"]
        parts.append(part)
        if isinstance(inside, list) and _is_index(part) and int(part) < len(inside):
            inside = inside[int(part)]
        else:
            inside = inside.get(part) if isinstance(inside, Mapping) else None
    return tuple(parts)


def _is_tagged(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("$"), str) and "v" in value


def _order(path: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), part) if _is_index(part) else (-1, part) for part in path)


def _is_index(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) < 19


def _check_no_overlap(paths: list[tuple[str, ...]]) -> None:
    for path in paths:
        for other in paths:
            if path is not other and other[: len(path)] == path:
                raise EditRefused(
                    f"{'.'.join(path)!r} and {'.'.join(other)!r} would both be changed: one is in the other"
                )


def _locate(state: dict[str, Any], path: tuple[str, ...]) -> tuple[Any, str | int]:
    """The mapping or the list that a path leads into, and the name or the index there."""
    inside, last = _find_container(state, path), path[-1]
    if isinstance(inside, dict) and last in inside:
        return inside, last
    if isinstance(inside, list) and _is_index(last) and int(last) < len(inside):
        return inside, int(last)
    raise _missing_path(path, inside, len(path) - 1)


def _find_container(state: dict[str, Any], path: tuple[str, ...]) -> Any:
    inside: Any = state
    for n, part in enumerate(path[:-1]):
        if isinstance(inside, dict) and part in inside:
            inside = inside[part]
        elif isinstance(inside, list) and _is_index(part) and int(part) < len(inside):
            inside = inside[int(part)]
        else:
            raise _missing_path(path, inside, n)
    return inside


def _add(state: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    inside, last = _find_container(state, path), path[-1]
    if isinstance(inside, dict) and last not in inside:
        inside[last] = value
    elif isinstance(inside, list) and _is_index(last) and int(last) <= len(inside):
        inside.insert(int(last), value)
    elif isinstance(inside, dict):
        raise EditRefused(f"state {'.'.join(path)!r} is there already: set it")
    else:
        raise _missing_path(path, inside, len(path) - 1)


def _missing_path(path: tuple[str, ...], inside: Any, n: int) -> EditRefused:
    where = f"state {'.'.join(path[:n])!r}" if n else "the state"
    if isinstance(inside, dict):
        names = [shorten(name) for name in list(inside)[:_SHOWN]]
        more = f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
        there = f"has {', '.join(map(repr, names))}{more}" if names else "is empty"
    elif isinstance(inside, list):
        there = f"is a list of {len(inside)}, counted from 0"
    else:
        there = f"is {shorten(msgspec.json.encode(inside).decode())}, with nothing in it"
    return EditRefused(f"there is no {'.'.join(path)!r}: {where} {there}")


def _check_value(value: Any, what: str) -> None:
    """Raises EditRefused unless a value can be stored as it is."""
    named = _check_plain(value, what, 0)
    if not named:  # else only a program with its classes can tell whether they take it
        try:
            DEFAULT_CODEC.decode(msgspec.json.encode(value), "$")
        except CodecError as error:
            raise EditRefused(f"{what}: {error}") from error


def _check_plain(value: Any, what: str, depth: int, *, tags: bool = True) -> bool:
    """Raises EditRefused for what is no JSON that can be stored. Whether classes of users are named in it."""
    if depth > DEPTH:
        raise EditRefused(f"{what} is nested too deep: at most {DEPTH} levels can be stored")
    if value is None or type(value) is bool:
        return False
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return False
    if type(value) is float and math.isfinite(value):
        return False
    if type(value) is str and is_text(value):
        return False
    if type(value) is list:
        return any([_check_plain(item, what, depth + 1, tags=tags) for item in value])  # noqa: C419 - look at all of them
    if type(value) is dict and all(type(name) is str and is_text(name) for name in value):
        inside = any([_check_plain(item, what, depth + 1, tags=tags) for item in value.values()])  # noqa: C419
        return (tags and "$" in value and _is_class(value, what)) or inside
    raise EditRefused(
        f"{what}: {shorten(repr(value))} is no JSON that can be stored; write it in its stored form, "
        f'for instance {{"$": "Decimal", "v": "1.5"}}'
    )


def _is_class(value: dict[str, Any], what: str) -> bool:
    if not isinstance(value["$"], str) or "v" not in value:
        raise EditRefused(f"{what}: a mapping with the key $ is a value with a tag, and needs its content in v")
    return ":" in value["$"]
