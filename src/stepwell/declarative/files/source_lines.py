"""Values with their line numbers, and the collection of problems found in a document.

Definition files are untrusted: depth, length and the number of problems are limited, so that no
file can exhaust memory or time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 100  # nested lists and mappings
MAX_PROBLEMS = 100
MAX_PROBLEM_LENGTH = 500  # characters
TOO_DEEP = f"lists and mappings are nested more than {MAX_DEPTH} levels deep"

Where = tuple[str | int, ...]
"""The path to a value from the root: `("nodes", 2, "fallback")`."""


class Unreadable:
    """Stands for a value that could not be read; its problem has been added."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A value with its line: a scalar, a list of `Marked`, or a mapping to `Marked`."""

    value: Any
    line: int | None = None  # where it starts; None: it does not come from a document
    lines: Mapping[str, int | None] = field(default_factory=dict)  # of the keys, if it is a mapping

    def line_at(self, where: Where) -> int | None:
        """Return the line of the value at a path, or of its nearest existing parent."""
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
        """Return the value without line numbers."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        if isinstance(self.value, list):
            return [inner.plain() for inner in self.value]
        return self.value

    def is_unreadable(self) -> bool:
        """Whether any part of it could not be read."""
        if isinstance(self.value, dict):
            return any(inner.is_unreadable() for inner in self.value.values())
        return isinstance(self.value, Unreadable) or (
            isinstance(self.value, list) and any(inner.is_unreadable() for inner in self.value)
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its line."""

    line: int | None
    text: str


class TooDeep(Exception):
    """A document is nested more deeply than `MAX_DEPTH`. Carries the line."""


class StopReading(Exception):
    """Reading stops here: what is wrong is in `Problems`, and looking further is pointless."""


class Problems(list[Problem]):
    """The problems found so far."""

    def add(self, line: int | None, text: str) -> None:
        """Add a problem. Raises StopReading when there are `MAX_PROBLEMS`."""
        self.append(Problem(line, text if len(text) <= MAX_PROBLEM_LENGTH else f"{text[:MAX_PROBLEM_LENGTH]}..."))
        if len(self) == MAX_PROBLEMS:
            raise StopReading

    def add_unreadable(self, line: int | None, text: str) -> Marked:
        """Add a problem, and return a placeholder for the value."""
        self.add(line, text)
        return Marked(Unreadable(), line)

    def to_sentences(self, name: str) -> list[str]:
        """Return the problems as sentences, in the order of their lines, each once."""
        ordered = sorted(self, key=lambda problem: problem.line or 0)
        sentences = [f"{_format_place(name, problem.line)}{problem.text}" for problem in ordered]
        if len(self) >= MAX_PROBLEMS:
            sentences.append(
                f"{_format_place(name, None)}there may be more problems: these are the first {MAX_PROBLEMS}"
            )
        return list(dict.fromkeys(sentences))


def _format_place(name: str, line: int | None) -> str:
    places = [name] if name else []
    if line is not None:
        places.append(f"line {line}")
    return f"{', '.join(places)}: " if places else ""


def mark_scalar(value: Any, line: int | None, problems: Problems) -> Marked:
    """Return a scalar with its line; unreadable if JSON cannot represent it."""
    if isinstance(value, float) and not math.isfinite(value):
        return problems.add_unreadable(line, f"{value} is not a finite number")
    if isinstance(value, str) and not _is_writable(value):
        return problems.add_unreadable(line, f"the string {value[:40]!a} contains a lone surrogate")
    if value is None or isinstance(value, bool | int | float | str):
        return Marked(value, line)
    return problems.add_unreadable(line, f"{value!r} is a {type(value).__name__}, not JSON data")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def reject_long_text(text: str, limit: int, problems: Problems) -> bool:
    """Add a problem if the text is too long; return whether it is."""
    if len(text) > limit:
        problems.add(None, f"the text has {len(text)} characters; the maximum is {limit}")
    return len(text) > limit


def decode(text: str | bytes, problems: Problems) -> str:
    """Decode UTF-8, without a byte order mark. Raises StopReading if it is not UTF-8."""
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return bytes(text).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `error.object` is what was decoded: the bytes without the byte order mark.
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.add(line, f"not UTF-8: {error.reason}")
        raise StopReading from error


def mark_data(value: Any, problems: Problems, depth: int = 0) -> Marked:
    """Convert plain data, which has no lines."""
    if depth > MAX_DEPTH:
        return problems.add_unreadable(None, TOO_DEEP)
    if isinstance(value, list | tuple):
        return Marked([mark_data(inner, problems, depth + 1) for inner in value])
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        for key in odd:
            problems.add(None, f"the key {key!r} is not a string")
        return Marked({k: mark_data(inner, problems, depth + 1) for k, inner in value.items() if isinstance(k, str)})
    return mark_scalar(value, None, problems)
