"""The difference of two JSON documents: pure, as data, as JSON Patch, and in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

Path = tuple[str | int, ...]
Kind = Literal["added", "removed", "changed"]

_WORTH_LOOKING = 4_000_000  # pairs of items: more would take longer than anybody waits
_OPS: dict[Kind, str] = {"added": "add", "removed": "remove", "changed": "replace"}
_BACK: dict[Kind, Kind] = {"added": "removed", "removed": "added", "changed": "changed"}


@dataclass(frozen=True, slots=True)
class Change:
    """One step from a document to another.

    `path` leads there, by names and by indexes of lists, in the document as the changes before it have left it. What
    was added has no `before`, and what was removed no `after`: they are None.
    """

    path: Path
    kind: Kind
    before: Any = None
    after: Any = None

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer (RFC 6901)."""
        return pointer_of(self.path)

    def reversed(self) -> Change:
        """The step back."""
        return Change(self.path, _BACK[self.kind], self.after, self.before)

    def operation(self) -> dict[str, Any]:
        """The step as an operation of JSON Patch (RFC 6902)."""
        operation: dict[str, Any] = {"op": _OPS[self.kind], "path": self.pointer}
        return operation if self.kind == "removed" else {**operation, "value": deepcopy(self.after)}


def compare(before: Any, after: Any) -> list[Change]:
    """The changes that lead from one JSON document to the other, in the order in which they are to be made.

    What was put into a list or taken out of it is told as that, as far as the lists are not too long to be laid side
    by side. Numbers are the same if they are written the same: 1 is not 1.0.
    """
    return list(_compare((), before, after))


def reverse_changes(changes: Sequence[Change]) -> list[Change]:
    """The changes that lead back."""
    return [change.reversed() for change in reversed(changes)]


def patch_of(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Changes as a JSON Patch (RFC 6902)."""
    return [change.operation() for change in changes]


def pointer_of(path: Path) -> str:
    """A path as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def parts_of(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON Pointer; indexes of lists are texts still. Raises ValueError if it is none."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"a JSON Pointer begins with a slash, and {pointer!r} does not")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def patched(document: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """A copy of a document, with the operations `add`, `remove` and `replace` of a JSON Patch made to it.

    Raises ValueError, naming the operation, if it does not fit the document.
    """
    result = deepcopy(document)
    for operation in patch:
        try:
            result = _apply(result, operation)
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{operation!r} does not fit the document: {error}") from error
    return result


def lines_of(changes: Iterable[Change], *, full: bool = False) -> list[str]:
    """Changes in words, one line each: `+` what was added, `-` what was removed, `~` what changed.

    Long values are cut, unless in full.
    """
    return [_line(change, None if full else _SHOWN) for change in changes]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are written the same, but for the order of names."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(key in other and same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return _encode(one) == _encode(other) if isinstance(one, float) else bool(one == other)


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
            yield from _compare((*path, key), before[key], after[key])


def _compare_lists(path: Path, before: list[Any], after: list[Any]) -> Iterator[Change]:
    """From the front on: what is before an index is as it is in `after` already."""
    for i1, i2, j1, j2 in _find_unequal_parts(before, after):
        alike = min(i2 - i1, j2 - j1)
        for n in range(alike):
            yield from _compare((*path, j1 + n), before[i1 + n], after[j1 + n])
        for item in before[i1 + alike : i2]:
            yield Change((*path, j1 + alike), "removed", item)
        for index in range(j1 + alike, j2):
            yield Change((*path, index), "added", after=after[index])


def _find_unequal_parts(before: list[Any], after: list[Any]) -> Iterator[tuple[int, int, int, int]]:
    """Where two lists differ: from where to where in the one, and in the other."""
    first = 0
    while first < min(len(before), len(after)) and same(before[first], after[first]):
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and same(before[-1 - last], after[-1 - last]):
        last += 1
    ends = len(before) - last, len(after) - last
    if (ends[0] - first) * (ends[1] - first) > _WORTH_LOOKING:
        yield first, ends[0], first, ends[1]
        return
    texts = [_encode(item) for item in before[first : ends[0]]], [_encode(item) for item in after[first : ends[1]]]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag != "equal":
            yield first + i1, first + i2, first + j1, first + j2


def _encode(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    op, parts = operation["op"], parts_of(operation["path"])
    if op not in _OPS.values():
        raise ValueError(f"{op!r} is none of {', '.join(_OPS.values())}")
    value = None if op == "remove" else deepcopy(operation["value"])
    if not parts:
        return value
    inside = document
    for part in parts[:-1]:
        inside = inside[_index(part, len(inside)) if isinstance(inside, list) else part]
    if isinstance(inside, list):
        _change_list(inside, parts[-1], op, value)
    elif op == "remove":
        del inside[parts[-1]]
    else:
        if op == "replace" and parts[-1] not in inside:
            raise LookupError(f"there is no {parts[-1]!r} to replace")
        inside[parts[-1]] = value
    return document


def _change_list(items: list[Any], part: str, op: str, value: Any) -> None:
    if op == "add":
        items.insert(len(items) if part == "-" else _index(part, len(items) + 1), value)
    elif op == "remove":
        del items[_index(part, len(items))]
    else:
        items[_index(part, len(items))] = value


def _index(part: str, length: int) -> int:
    if not (part.isascii() and part.isdigit()) or int(part) >= length:
        raise LookupError(f"{part!r} is no index of a list of {length}")
    return int(part)


_SHOWN = 80  # characters of a value in a line


def _line(change: Change, shown: int | None) -> str:
    where = words_of(change.path)
    match change.kind:
        case "added":
            return f"+ {where}: {_brief(change.after, shown)}"
        case "removed":
            return f"- {where}: {_brief(change.before, shown)}"
        case "changed":
            return f"~ {where}: {_brief(change.before, shown)} → {_brief(change.after, shown)}"


def words_of(path: Path) -> str:
    """A path as people write it: names with dots between them, indexes in brackets."""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return words.removeprefix(".") or "everything"


def _brief(value: Any, shown: int | None) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if shown is None or len(text) <= shown else f"{text[: shown - 1]}…"
