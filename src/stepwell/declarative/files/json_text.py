"""JSON, read so that each value knows its line."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any

from stepwell.declarative.files.source_lines import DEEPEST, TOO_DEEP, Marked, Problems, scalar, too_long

LONGEST = 2**20  # characters; longer texts are refused unread


def read(text: str, problems: Problems) -> Marked | None:
    """What the text says; None if that cannot be known."""
    if too_long(text, LONGEST, problems):
        return None
    try:
        json.loads(text, parse_int=len)  # an integer can have too many digits to be made: `_Walk` knows its line
        return _Walk(text, problems).value()
    except json.JSONDecodeError as error:
        problems.add(error.lineno, f"not JSON: {error.msg} (column {error.colno})")
    except (RecursionError, _TooDeep) as error:
        problems.add(error.args[0] if isinstance(error, _TooDeep) else None, TOO_DEEP)
    return None


def written(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


class _TooDeep(Exception):
    """Carries the line."""


class _Walk:
    """Goes through a text that is known to be JSON, and marks what it finds."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text, self._problems, self._at = text, problems, 0
        self._ends = [at for at, character in enumerate(text) if character == "\n"]
        self._decoder = json.JSONDecoder()

    def value(self, depth: int = 0) -> Marked:
        """The value that comes next."""
        self._skip()
        if self._text[self._at] not in "[{":
            return self._scalar()
        if depth >= DEEPEST:
            raise _TooDeep(self._line())
        return self._list(depth) if self._text[self._at] == "[" else self._mapping(depth)

    def _list(self, depth: int) -> Marked:
        line, items = self._line(), []
        while self._another("]"):
            items.append(self.value(depth + 1))
        return Marked(items, line)

    def _mapping(self, depth: int) -> Marked:
        line, items, lines = self._line(), dict[str, Marked](), dict[str, int | None]()
        while self._another("}"):
            key_line, key = self._line(), self._scalar().value
            self._skip()
            self._at += 1  # the colon
            if key in items:
                self._problems.add(key_line, f"the key {key!r} is there twice, first on line {lines[key]}")
            value = self.value(depth + 1)
            if isinstance(key, str):
                items[key], lines[key] = value, key_line
        return Marked(items, line, lines)

    def _another(self, end: str) -> bool:
        """Steps over the bracket or comma before the next item, or over the closing bracket if there is none."""
        self._skip()
        first = self._text[self._at] in "[{"
        over = self._text[self._at] == end
        self._at += 1
        self._skip()
        if first and self._text[self._at] == end:
            self._at += 1
            return False
        return not over

    def _scalar(self) -> Marked:
        line, begin = self._line(), self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, begin)
        except ValueError:
            while self._text[self._at : self._at + 1] in tuple("-0123456789"):
                self._at += 1
            return self._problems.broken(line, f"the number {self._text[begin : begin + 20]}... has too many digits")
        return scalar(value, line, self._problems)

    def _skip(self) -> None:
        while self._text[self._at : self._at + 1] in tuple(" \t\n\r"):
            self._at += 1

    def _line(self) -> int:
        return bisect_left(self._ends, self._at) + 1
