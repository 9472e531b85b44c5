"""The values that JSON expresses directly, without a `$` tag."""

from __future__ import annotations

from typing import Any

VERBATIM = frozenset({str, bool, type(None)})
"""Types of which every instance is written unchanged."""

ATOMS = VERBATIM | {int, float}
"""Immutable types that are plain JSON but for a few values: integers beyond 64 bits, nan, infinity."""

# Many JSON parsers, and msgspec's own integers, stop at 64 bits; larger ones are stored as text.
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def is_object(value: dict[Any, Any]) -> bool:
    """Return whether a dict is a plain JSON object that cannot be mistaken for a tagged value."""
    if "$" in value:
        return False
    for key in value:  # noqa: SIM110  `all` would take twice as long
        if type(key) is not str:
            return False
    return True
