"""Regular expressions that may come from a file: checked when they are made, and given only so long to match."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

from stepwell.errors import DefinitionError

TIME_LIMIT = 0.1
"""Seconds after which a match is stopped, at the next look at the clock: on a very long text that may be later.

`evaluation` matches in a thread, so that an event loop does not wait for it."""

LONGEST = 1000  # characters
LARGEST = 10_000  # parts, once every repetition is written out, which the package `regex` does when it compiles


class TooSlow(Exception):
    """A match took longer than it may."""


def check(pattern: str) -> None:
    """Raises DefinitionError unless that is a pattern, and one that is harmless to compile."""
    if len(pattern) > LONGEST:
        raise DefinitionError(f"the pattern {pattern[:40]!r}... is longer than {LONGEST} characters")
    if re.search(r"\(\?(?:R|[-+]?\d|&|P>)", pattern):  # fills hundreds of megabytes before its time is over
        raise DefinitionError(f"the pattern {pattern!r} calls a group, or itself, which is not taken; write it out")
    if re.search(r"\(\?[\w-]*x[\w-]*[:)]", pattern):  # comments would hide from `_size` what is repeated
        raise DefinitionError(
            f"the pattern {pattern!r} asks for the verbose form (?x), which is not taken; write it plain"
        )
    if _size(pattern) > LARGEST:
        raise DefinitionError(
            f"the pattern {pattern!r} repeats too much, counting repetitions inside repetitions; use smaller numbers"
        )
    _compile(pattern)


def search(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere in the text. Raises TooSlow if that is not known after `TIME_LIMIT`."""
    try:
        return _compile(pattern).search(text, timeout=TIME_LIMIT) is not None
    except TimeoutError as error:
        raise TooSlow from error


def _size(pattern: str) -> int:
    """How large the pattern can become at most, without parsing it: groups can be as deep as there are brackets."""
    counts = sorted((int("".join(digits.split())) for digits in re.findall(r"\{\s*(\d[\d\s]*)", pattern)), reverse=True)
    return len(pattern) * math.prod(max(count, 1) for count in counts[: pattern.count("(") + 1])


@lru_cache(maxsize=128)
def _compile(pattern: str) -> Any:
    try:
        import regex  # type: ignore[import-untyped]  # the `re` of Python cannot be stopped
    except ImportError as missing:
        raise DefinitionError(
            "conditions with patterns need the package `regex`: pip install stepwell[declarative]"
        ) from missing
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise DefinitionError(f"{pattern!r} is not a pattern: {error}") from None
    except RecursionError:
        raise DefinitionError(f"the pattern {pattern[:40]!r}... has too many brackets inside brackets") from None
