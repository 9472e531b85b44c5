"""JSON, read so that each value knows its line."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any

from stepwell.declarative.files.source_lines import (
    DEEPEST,
    TOO_DEEP,
    Marked,
    Problems,
    TooDeep,
    is_too_long,
    mark_scalar,
)

LONGEST = 2**20  # characters; longer texts are refused unread


def read(text: str, problems: Problems) -> Marked | None:
    """What the text says; None if that cannot be known."""
    if is_too_long(text, LONGEST, problems):
        return None
    try:
        json.loads(text, parse_int=len)  # an integer can have too many digits to be made: `_JsonParser` knows its line
        return _JsonParser(text, problems).value()
    except json.JSONDecodeError as error:
        problems.add(error.lineno, f"not JSON: {error.msg} (column {error.colno})")
    except (RecursionError, TooDeep) as error:
        problems.add(error.args[0] if isinstance(error, TooDeep) else None, TOO_DEEP)
    return None


def write(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


class _JsonParser:
    """Goes through a text that is known to be JSON, and marks what it finds."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text, self._problems, self._position = text, problems, 0
        self._ends = [position for position, character in enumerate(text) if character == "\n"]
        self._decoder = json.JSONDecoder()

    def value(self, depth: int = 0) -> Marked:
        """The value that comes next."""
        self._skip()
        if self._text[self._position] not in "[{":
            return self._scalar()
        if depth >= DEEPEST:
            raise TooDeep(self._line())
        return self._list(depth) if self._text[self._position] == "[" else self._mapping(depth)

    def _list(self, depth: int) -> Marked:
        line, items = self._line(), []
        while self._next_item("]"):
            items.append(self.value(depth + 1))
        return Marked(items, line)

    def _mapping(self, depth: int) -> Marked:
        line, items, lines = self._line(), dict[str, Marked](), dict[str, int | None]()
        while self._next_item("}"):
            key_line, key = self._line(), self._scalar().value
            self._skip()
            self._position += 1  # the colon
            if key in items:
                self._problems.add(key_line, f"the key {key!r} is there twice, first on line {lines[key]}")
            value = self.value(depth + 1)
            if isinstance(key, str):
                items[key], lines[key] = value, key_line
        return Marked(items, line, lines)

    def _next_item(self, end: str) -> bool:
        """Steps over the bracket or comma before the next item, or over the closing bracket if there is none."""
        self._skip()
        first = self._text[self._position] in "[{"
        at_end = self._text[self._position] == end
        self._position += 1
        self._skip()
        if first and self._text[self._position] == end:
            self._position += 1
            return False
        return not at_end

    def _scalar(self) -> Marked:
        line, begin = self._line(), self._position
        try:
            value, self._position = self._decoder.raw_decode(self._text, begin)
        except ValueError:
            while self._text[self._position : self._position + 1] in tuple("-0123456789"):
                self._position += 1
            return self._problems.add_unreadable(
                line, f"the number {self._text[begin : begin + 20]}... has too many digits"
            )
        return mark_scalar(value, line, self._problems)

    def _skip(self) -> None:
        while self._text[self._position : self._position + 1] in tuple(" \t\n\r"):
            self._position += 1

    def _line(self) -> int:
        return bisect_left(self._ends, self._position) + 1
