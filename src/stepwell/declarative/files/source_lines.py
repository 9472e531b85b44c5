"""Build plain data from the tokens of a document, with the lines of its values and its problems.

Definition files are untrusted: depth, length and the number of problems are limited, so that no
file can exhaust memory or time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, NoReturn

from stepwell.declarative.conditions.operators import shorten
from stepwell.declarative.validation import Where
from stepwell.model.valid_text import is_text

MAX_DEPTH = 100  # nested lists and mappings
MAX_PROBLEMS = 100
MAX_PROBLEM_LENGTH = 500  # characters
TOO_DEEP = f"lists and mappings are nested more than {MAX_DEPTH} levels deep"


class StopReading(Exception):
    """Reading stops here. What is wrong is in `Problems`."""


UNREADABLE = object()
"""Stands for a value that could not be read; its problem has been added."""


class LineTree(NamedTuple):
    """The line where a value starts, or its key, and the lines of what is inside it."""

    line: int | None  # None: it does not come from a document
    inside: dict[str | int, LineTree]

    def find(self, where: Where) -> int | None:
        """Return the line of the value at a path, or of its nearest existing parent."""
        inner = self.inside.get(where[0]) if where else None
        return self.line if inner is None else inner.find(where[1:])


class Problems(list[tuple[int | None, str]]):
    """The problems found so far, each with its line."""

    def add(self, line: int | None, text: str) -> None:
        """Add a problem. Raises StopReading when there are `MAX_PROBLEMS`."""
        self.append((line, shorten(text, MAX_PROBLEM_LENGTH)))
        if len(self) == MAX_PROBLEMS:
            raise StopReading

    def stop(self, line: int | None, text: str) -> NoReturn:
        """Add a problem after which looking further is pointless. Raises StopReading."""
        self.add(line, text)
        raise StopReading

    def to_sentences(self, name: str) -> list[str]:
        """Return the problems as sentences, in the order of their lines, each once."""
        problems = sorted(self, key=lambda problem: problem[0] or 0)
        if len(self) >= MAX_PROBLEMS:
            problems.append((None, f"there may be more problems: these are the first {MAX_PROBLEMS}"))
        places = [", ".join(filter(None, (name, f"line {line}" if line else None))) for line, _ in problems]
        sentences = [f"{place}: {text}" if place else text for place, (_, text) in zip(places, problems, strict=True)]
        return list(dict.fromkeys(sentences))


class Token(NamedTuple):
    """A part of a document, as a parser finds it.

    A list is its start, its items and an end; a mapping its start, keys and values in turn, and an
    end.
    """

    kind: Literal["list", "mapping", "scalar", "end"]
    line: int | None
    value: Any = None  # of a scalar
    flaw: str = ""  # why the list, mapping or scalar cannot be used


def build(tokens: Iterator[Token], problems: Problems) -> tuple[Any, LineTree]:
    """Return the data that the tokens make up, with its lines. Raises StopReading if there is none.

    What cannot be used is reported, and is UNREADABLE in the data.
    """
    first = next(tokens, None)
    if first is None:
        problems.stop(1, "the text is empty")
    data, lines = _build_value(first, tokens, problems, 0)
    next(tokens, None)  # lets the parser look at what follows
    return data, lines


def _build_value(token: Token, tokens: Iterator[Token], problems: Problems, depth: int) -> tuple[Any, LineTree]:
    value, flaw, lines = token.value, token.flaw, LineTree(token.line, {})
    if token.kind == "scalar":
        flaw = flaw or find_flaw(value)
    elif depth >= MAX_DEPTH:
        problems.stop(token.line, TOO_DEEP)
    elif token.kind == "mapping":
        value = _build_mapping(lines.inside, tokens, problems, depth + 1)
    else:
        value = []
        while (item := next(tokens)).kind != "end":
            built, lines.inside[len(value)] = _build_value(item, tokens, problems, depth + 1)
            value.append(built)
    if flaw:
        problems.add(token.line, flaw)
    return UNREADABLE if flaw else value, lines


def _build_mapping(
    lines: dict[str | int, LineTree], tokens: Iterator[Token], problems: Problems, depth: int
) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    while (token := next(tokens)).kind != "end":
        key, _ = _build_value(token, tokens, problems, depth)
        value, inside = _build_value(next(tokens), tokens, problems, depth)
        if isinstance(key, str) and key not in mapping:
            mapping[key], lines[key] = value, LineTree(token.line, inside.inside)
        elif isinstance(key, str):
            problems.add(token.line, f"duplicate key {key!r}, first on line {lines[key].line}")
        elif not is_unreadable(key):
            hint = "" if token.line is None else ": put it in quotes"
            problems.add(token.line, f"the key {key!r} is not a string{hint}")
    return mapping


def find_flaw(value: Any) -> str:
    """Return why a scalar is not JSON data; empty if it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    if isinstance(value, str) and not is_text(value):
        return f"the string {value[:40]!a} contains a lone surrogate"
    if value is None or value is UNREADABLE or isinstance(value, bool | int | float | str):
        return ""
    return f"{value!r} is a {type(value).__name__}, not JSON data"


def is_unreadable(value: Any) -> bool:
    """Return whether any part of a value could not be read."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is UNREADABLE or any(map(is_unreadable, parts))


def tokenize_data(value: Any) -> Iterator[Token]:
    """Yield the tokens of plain data, which has no lines."""
    if isinstance(value, list | tuple):
        yield Token("list", None)
        for item in value:
            yield from tokenize_data(item)
    elif isinstance(value, Mapping):
        yield Token("mapping", None)
        for key, item in value.items():
            yield Token("scalar", None, key)
            yield from tokenize_data(item)
    else:
        yield Token("scalar", None, value)
        return
    yield Token("end", None)


def decode(text: str | bytes, limit: int, problems: Problems) -> str:
    """Decode UTF-8, without a byte order mark.

    Raises StopReading, after adding a problem, if it is not UTF-8 or longer than the limit.
    """
    try:
        decoded = text.removeprefix("\ufeff") if isinstance(text, str) else bytes(text).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `error.object` is what was decoded: the bytes without the byte order mark.
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.stop(line, f"not UTF-8: {error.reason}")
    if len(decoded) > limit:
        problems.stop(None, f"the text has {len(decoded)} characters; the maximum is {limit}")
    return decoded
