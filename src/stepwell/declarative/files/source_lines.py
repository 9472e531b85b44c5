"""Data that knows where in a text it stands, and what is found to be wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEEPEST = 100  # levels of lists and mappings inside each other
MOST = 100  # problems
LONGEST_TEXT = 500  # characters of one
TOO_DEEP = f"more than {DEEPEST} lists and mappings are inside each other"

Where = tuple[str | int, ...]
"""The way to a value from the outermost one: `("nodes", 2, "fallback")`."""


class Unreadable:
    """Stands for a value that could not be read; what is wrong with it has been said."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A value: plain, a list of such, or a mapping to such."""

    value: Any
    line: int | None = None  # where it begins; None: it came from no text
    lines: Mapping[str, int | None] = field(default_factory=dict)  # of the keys, if it is a mapping

    def line_at(self, where: Where) -> int | None:
        """The line of the value at the end of that way, or of the nearest one on it that there is."""
        here, line = self, self.line
        for step in where:
            if isinstance(here.value, dict) and step in here.value:
                here, line = here.value[step], here.lines.get(str(step), here.line)
            elif isinstance(here.value, list) and isinstance(step, int) and step < len(here.value):
                here = here.value[step]
                line = here.line
            else:
                break
        return line

    def plain(self) -> Any:
        """The same without marks."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        if isinstance(self.value, list):
            return [inner.plain() for inner in self.value]
        return self.value

    def is_unreadable(self) -> bool:
        """Whether something in it could not be read."""
        if isinstance(self.value, dict):
            return any(inner.is_unreadable() for inner in self.value.values())
        return isinstance(self.value, Unreadable) or (
            isinstance(self.value, list) and any(inner.is_unreadable() for inner in self.value)
        )


@dataclass(frozen=True, slots=True)
class Problem:
    line: int | None
    text: str


class TooDeep(Exception):
    """More is inside each other than is read. Carries the line."""


class Enough(Exception):
    """So much is wrong that it is no use to look further."""


class Problems(list[Problem]):
    """What was found so far."""

    def add(self, line: int | None, text: str) -> None:
        """Raises Enough if that is the last one that is looked for."""
        self.append(Problem(line, text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."))
        if len(self) == MOST:
            raise Enough

    def add_unreadable(self, line: int | None, text: str) -> Marked:
        """Says what is wrong, and gives what stands for the value."""
        self.add(line, text)
        return Marked(Unreadable(), line)

    def to_sentences(self, name: str) -> list[str]:
        """In the order of their lines, each once."""
        ordered = sorted(self, key=lambda problem: problem.line or 0)
        sentences = [f"{_format_place(name, problem.line)}{problem.text}" for problem in ordered]
        if len(self) >= MOST:
            sentences.append(f"{_format_place(name, None)}there may be more problems: these are the first {MOST}")
        return list(dict.fromkeys(sentences))


def _format_place(name: str, line: int | None) -> str:
    places = [name] if name else []
    if line is not None:
        places.append(f"line {line}")
    return f"{', '.join(places)}: " if places else ""


def mark_scalar(value: Any, line: int | None, problems: Problems) -> Marked:
    """A value that is neither list nor mapping, unless JSON cannot say it."""
    if isinstance(value, float) and not math.isfinite(value):
        return problems.add_unreadable(line, f"{value} is not a number that can be kept")
    if isinstance(value, str) and not _is_writable(value):
        return problems.add_unreadable(line, f"the text {value[:40]!a} has half a character in it (a surrogate)")
    if value is None or isinstance(value, bool | int | float | str):
        return Marked(value, line)
    return problems.add_unreadable(line, f"{value!r} cannot be data: it is a {type(value).__name__}")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_too_long(text: str, longest: int, problems: Problems) -> bool:
    if len(text) > longest:
        problems.add(None, f"the text has {len(text)} characters; a definition has at most {longest}")
    return len(text) > longest


def decode(text: str | bytes, problems: Problems) -> str:
    """The text of a file. Raises Enough if it is none."""
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return bytes(text).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1  # of what was decoded: the text without its mark
        problems.add(line, f"not UTF-8: {error.reason}")
        raise Enough from error


def mark_data(value: Any, problems: Problems, depth: int = 0) -> Marked:
    """Plain data, which has no lines."""
    if depth > DEEPEST:
        return problems.add_unreadable(None, TOO_DEEP)
    if isinstance(value, list | tuple):
        return Marked([mark_data(inner, problems, depth + 1) for inner in value])
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        for key in odd:
            problems.add(None, f"the key {key!r} is not a text")
        return Marked({k: mark_data(inner, problems, depth + 1) for k, inner in value.items() if isinstance(k, str)})
    return mark_scalar(value, None, problems)
