"""Compares JSON documents and applies patches; changes are data, JSON Patch or text. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from stepwell.admin.values import to_data

Path = tuple[str | int, ...]
Kind = Literal["added", "removed", "changed"]

# Pairs of items that SequenceMatcher may compare: its time grows at least with their number.
_MOST_PAIRS = 4_000_000
_SHOWN = 80  # characters of a value in a line
_OPS: dict[Kind, str] = {"added": "add", "removed": "remove", "changed": "replace"}
_MARKS: dict[Kind, str] = {"added": "+", "removed": "-", "changed": "~"}
_BACK: dict[Kind, Kind] = {"added": "removed", "removed": "added", "changed": "changed"}


class WrapperKey(str):
    """A key of the stored form that leads to a value of a class: people do not know it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change on the way from one document to another.

    `path` consists of keys and list indexes, in the document as the earlier changes have left it.
    `before` is None for an added value, `after` for a removed one.
    """

    path: Path
    kind: Kind
    before: Any = None
    after: Any = None

    @property
    def pointer(self) -> str:
        """Return the path as a JSON Pointer (RFC 6901)."""
        return pointer_of(self.path)

    def reversed(self) -> Change:
        """Return the change that undoes this one."""
        return Change(self.path, _BACK[self.kind], self.after, self.before)

    def operation(self) -> dict[str, Any]:
        """Return the change as an operation of JSON Patch (RFC 6902)."""
        operation: dict[str, Any] = {"op": _OPS[self.kind], "path": self.pointer}
        return operation if self.kind == "removed" else {**operation, "value": deepcopy(self.after)}


def compare(before: Any, after: Any) -> list[Change]:
    """Return the changes that lead from one JSON document to another, in order.

    Items inserted into a list or removed from it are recognised, unless the lists are too long to
    compare item by item. Numbers are equal if they are written the same: 1 is not 1.0.
    """
    return list(_compare((), before, after))


def reverse_changes(changes: Sequence[Change]) -> list[Change]:
    """Return the changes that lead back."""
    return [change.reversed() for change in reversed(changes)]


def patch_of(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return changes as a JSON Patch (RFC 6902)."""
    return [change.operation() for change in changes]


def pointer_of(path: Path) -> str:
    """Return a path as a JSON Pointer (RFC 6901)."""
    # ~ first: otherwise the ~ of an escaped slash would be escaped again.
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def parts_of(pointer: str) -> tuple[str, ...]:
    """Return the parts of a JSON Pointer as strings, list indexes included.

    Raises ValueError if it is not one.
    """
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON Pointer: it does not start with a slash")
    # The empty pointer is the document itself: no parts.
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def apply_patch(document: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """Return a copy of a document with a JSON Patch applied.

    It may use `add`, `remove` and `replace`.

    Raises ValueError, naming the operation, if it cannot be applied.
    """
    result = deepcopy(document)
    for operation in patch:
        try:
            result = _apply(result, operation)
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{operation!r} cannot be applied to the document: {error}") from error
    return result


def lines_of(changes: Iterable[Change], *, full: bool = False) -> list[str]:
    """Return changes as text, one line each: `+` for added, `-` for removed, `~` for changed.

    Long values are shortened unless `full` is set.
    """
    return [_line(change, None if full else _SHOWN) for change in changes]


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are written the same, apart from the order of keys."""
    # The types first: Python says 1 == 1.0 == True.
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(key in right and same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    # Floats as text: NaN differs from itself, and 0.0 == -0.0.
    return _encode(left) == _encode(right) if isinstance(left, float) else bool(left == right)


def _compare(path: Path, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _compare_objects(path, before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(path, before, after)
    elif not same(before, after):
        yield Change(path, "changed", before, after)


def _compare_objects(path: Path, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for key in (*before, *(key for key in after if key not in before)):
        if key not in after:
            yield Change((*path, key), "removed", before[key])
        elif key not in before:
            yield Change((*path, key), "added", after=after[key])
        else:
            is_wrapper = key == "v" and "$" in before and "$" in after
            yield from _compare((*path, WrapperKey(key) if is_wrapper else key), before[key], after[key])


def _compare_lists(path: Path, before: list[Any], after: list[Any]) -> Iterator[Change]:
    """Yield the changes from front to back: what is before an index is already as in `after`."""
    for i1, i2, j1, j2 in _find_unequal_parts(before, after):
        alike = min(i2 - i1, j2 - j1)
        for n in range(alike):
            yield from _compare((*path, j1 + n), before[i1 + n], after[j1 + n])
        # Each removal moves the next item to the same index.
        for item in before[i1 + alike : i2]:
            yield Change((*path, j1 + alike), "removed", item)
        for index in range(j1 + alike, j2):
            yield Change((*path, index), "added", after=after[index])


def _find_unequal_parts(before: list[Any], after: list[Any]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the ranges in which two lists differ: start and end in `before`, then in `after`."""
    # Common ends are cut off first: typically one item was appended, and nothing else needs
    # comparing.
    first = 0
    while first < min(len(before), len(after)) and same(before[first], after[first]):
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and same(before[-1 - last], after[-1 - last]):
        last += 1
    ends = len(before) - last, len(after) - last
    if (ends[0] - first) * (ends[1] - first) > _MOST_PAIRS:
        # Correct but coarse: the items are compared by index.
        yield first, ends[0], first, ends[1]
        return
    # SequenceMatcher needs hashable items; autojunk would ignore items that occur often.
    encoded = [_encode(item) for item in before[first : ends[0]]], [_encode(item) for item in after[first : ends[1]]]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, *encoded, autojunk=False).get_opcodes():
        if tag != "equal":
            yield first + i1, first + i2, first + j1, first + j2


def _encode(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    op, parts = operation["op"], parts_of(operation["path"])
    if op not in _OPS.values():
        raise ValueError(f"{op!r} is not one of {', '.join(_OPS.values())}")
    value = None if op == "remove" else deepcopy(operation["value"])
    if not parts:
        return value
    container = document
    for part in parts[:-1]:
        container = container[_index(part, len(container)) if isinstance(container, list) else part]
    if isinstance(container, list):
        _change_list(container, parts[-1], op, value)
    elif op == "remove":
        del container[parts[-1]]
    else:
        if op == "replace" and parts[-1] not in container:
            raise LookupError(f"there is no {parts[-1]!r} to replace")
        container[parts[-1]] = value
    return document


def _change_list(items: list[Any], part: str, op: str, value: Any) -> None:
    if op == "add":
        # RFC 6902: an item may be added at the end, and `-` means the end.
        items.insert(len(items) if part == "-" else _index(part, len(items) + 1), value)
    elif op == "remove":
        del items[_index(part, len(items))]
    else:
        items[_index(part, len(items))] = value


def _index(part: str, length: int) -> int:
    if not (part.isascii() and part.isdigit()) or int(part) >= length:
        raise LookupError(f"{part!r} is not an index of a list of {length}")
    return int(part)


def _line(change: Change, shown: int | None) -> str:
    sides = {"added": (change.after,), "removed": (change.before,), "changed": (change.before, change.after)}
    values = " → ".join(_format_value(value, shown) for value in sides[change.kind])
    return f"{_MARKS[change.kind]} {format_path(change.path)}: {values}"


def format_path(path: Path) -> str:
    """Return a path as people write it: keys separated by dots, list indexes in brackets."""
    known = (part for part in path if not isinstance(part, WrapperKey))
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in known)
    return text.removeprefix(".") or "everything"


def _format_value(value: Any, shown: int | None) -> str:
    # Without the tags of its stored form; `path` and patches keep them, since they name parts of it.
    text = json.dumps(to_data(value), ensure_ascii=False)
    return text if shown is None or len(text) <= shown else f"{text[: shown - 1]}…"
