"""Read JSON with the line number of each value, and write it.

The standard parser reports no positions, so the text is parsed twice: once by `json` to check the
syntax, then by `_JsonParser`, which may rely on that.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any

from stepwell.declarative.files.source_lines import (
    MAX_DEPTH,
    TOO_DEEP,
    Marked,
    Problems,
    TooDeep,
    mark_scalar,
    reject_long_text,
)

MAX_LENGTH = 2**20  # characters; longer documents are rejected without parsing


def read(text: str, problems: Problems) -> Marked | None:
    """Parse the text; return None after adding a problem if it is not JSON."""
    if reject_long_text(text, MAX_LENGTH, problems):
        return None
    try:
        # `parse_int=len`: Python refuses integers with too many digits with an error that has no
        # line. They pass here, and `_JsonParser` reports them with their line.
        json.loads(text, parse_int=len)
        return _JsonParser(text, problems).value()
    except json.JSONDecodeError as error:
        problems.add(error.lineno, f"not JSON: {error.msg} (column {error.colno})")
    except (RecursionError, TooDeep) as error:
        problems.add(error.args[0] if isinstance(error, TooDeep) else None, TOO_DEEP)
    return None


def write(data: Any) -> str:
    """Write data as indented JSON."""
    return json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


class _JsonParser:
    """Parses a document that is known to be valid JSON into values with line numbers."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text, self._problems, self._position = text, problems, 0
        self._ends = [position for position, character in enumerate(text) if character == "\n"]
        self._decoder = json.JSONDecoder()

    def value(self, depth: int = 0) -> Marked:
        """Parse the next value."""
        self._skip_whitespace()
        if self._text[self._position] not in "[{":
            return self._scalar()
        if depth >= MAX_DEPTH:
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
            self._skip_whitespace()
            self._position += 1  # the colon
            if key in items:
                self._problems.add(key_line, f"duplicate key {key!r}, first on line {lines[key]}")
            value = self.value(depth + 1)
            # A key with half a surrogate pair is unreadable, and has been reported.
            if isinstance(key, str):
                items[key], lines[key] = value, key_line
        return Marked(items, line, lines)

    def _next_item(self, end: str) -> bool:
        """Step over the bracket or comma before the next item; False if the container has ended."""
        self._skip_whitespace()
        first = self._text[self._position] in "[{"
        at_end = self._text[self._position] == end
        self._position += 1
        self._skip_whitespace()
        if first and self._text[self._position] == end:
            self._position += 1
            return False
        return not at_end

    def _scalar(self) -> Marked:
        line, start = self._line(), self._position
        try:
            value, self._position = self._decoder.raw_decode(self._text, start)
        except ValueError:
            # Valid JSON that cannot be decoded: an integer with too many digits. Skip it.
            while self._text[self._position : self._position + 1] in tuple("-0123456789"):
                self._position += 1
            return self._problems.add_unreadable(
                line, f"the number {self._text[start : start + 20]}... has too many digits"
            )
        return mark_scalar(value, line, self._problems)

    def _skip_whitespace(self) -> None:
        while self._text[self._position : self._position + 1] in tuple(" \t\n\r"):
            self._position += 1

    def _line(self) -> int:
        return bisect_left(self._ends, self._position) + 1
