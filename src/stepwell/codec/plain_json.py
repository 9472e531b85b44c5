"""What JSON can say as it is."""

from __future__ import annotations

from typing import Any

AS_THEY_ARE = frozenset({str, bool, type(None)})
ATOMS = AS_THEY_ARE | {int, float}
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def is_object(value: dict[Any, Any]) -> bool:
    """Is this dict an object of JSON, and none that could be taken for a value with a tag?"""
    if "$" in value:
        return False
    for key in value:  # noqa: SIM110  `all` would take twice as long
        if type(key) is not str:
            return False
    return True
