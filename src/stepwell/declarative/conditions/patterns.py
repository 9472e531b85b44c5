"""Regular expressions from untrusted files: checked before compiling, matched with a time limit."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

from stepwell.errors import DefinitionError

TIME_LIMIT = 0.1
"""Seconds after which a match is stopped. On a very long text it may take longer, because the clock
is checked only now and then; `condition.evaluate` therefore matches in a thread."""

MAX_LENGTH = 1000  # characters
# The package `regex` expands repetitions when it compiles, so `((a{999}){999}){999}` would take all
# memory before any time limit applies. This bounds the number of expanded parts.
MAX_SIZE = 10_000


def check(pattern: str) -> None:
    """Raise DefinitionError unless the pattern is valid and safe to compile."""
    if len(pattern) > MAX_LENGTH:
        raise DefinitionError(f"the pattern {pattern[:40]!r}... is longer than {MAX_LENGTH} characters")
    # Recursion fills hundreds of megabytes before the time limit applies.
    if re.search(r"\(\?(?:R|[-+]?\d|&|P>)", pattern):
        raise DefinitionError(f"the pattern {pattern!r} calls a group or itself, which is not supported; write it out")
    # Comments of the verbose form would hide repetition counts from `_size`.
    if re.search(r"\(\?[\w-]*x[\w-]*[:)]", pattern):
        raise DefinitionError(
            f"the pattern {pattern!r} uses the verbose form (?x), which is not supported; write it without"
        )
    if _size(pattern) > MAX_SIZE:
        raise DefinitionError(
            f"the pattern {pattern!r} is too large with its repetitions expanded; use smaller repetition counts"
        )
    _compile(pattern)


def search(pattern: str, text: str) -> bool:
    """Return whether the pattern matches anywhere in the text.

    Raises TimeoutError after `TIME_LIMIT`.
    """
    return _compile(pattern).search(text, timeout=TIME_LIMIT) is not None


def _size(pattern: str) -> int:
    """Estimate an upper bound of the expanded size, without parsing the pattern.

    Repetitions multiply only if nested, and nesting needs a bracket for each level: the largest
    counts, one more than there are brackets, are taken as nested.
    """
    counts = sorted((int("".join(digits.split())) for digits in re.findall(r"\{\s*(\d[\d\s]*)", pattern)), reverse=True)
    return len(pattern) * math.prod(max(count, 1) for count in counts[: pattern.count("(") + 1])


# Bounded, because patterns come from files. The cache holds nothing but what can be compiled again.
@lru_cache(maxsize=128)
def _compile(pattern: str) -> Any:
    try:
        # An optional dependency, loaded by the first pattern. Python's own `re` cannot be
        # interrupted.
        import regex  # type: ignore[import-untyped]  # lazy: it may not be installed
    except ImportError as missing:
        raise DefinitionError(
            "conditions with patterns need the package `regex`: pip install stepwell[declarative]"
        ) from missing
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise DefinitionError(f"invalid pattern {pattern!r}: {error}") from None
    except RecursionError:
        raise DefinitionError(f"the pattern {pattern[:40]!r}... has too many nested brackets") from None
