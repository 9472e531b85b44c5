"""Values that JSON can say as they are. Most are, so telling them apart in one quick walk pays."""

from __future__ import annotations

from math import isfinite
from typing import Any

from holdfast.durable.codec_walk import DEPTH

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


def is_plain(value: Any, depth: int) -> bool:
    """Would closing this value give an equal tree of the same types? Then it can be written without that.

    False is always a safe answer: for what is not plain, too deep, or contains itself.
    """
    kind = type(value)
    if kind in AS_THEY_ARE:
        return True
    if kind is dict:
        if not is_object(value):
            return False
        items = value.values()
    elif kind is list:
        items = value
    else:
        return (kind is int and INT_MIN <= value <= INT_MAX) or (kind is float and isfinite(value))
    if depth >= DEPTH:
        return False
    for item in items:  # a loop that asks the common cases itself: a call for each would take twice as long
        kind = type(item)
        if kind in AS_THEY_ARE:
            continue
        if kind is int:
            if INT_MIN <= item <= INT_MAX:
                continue
            return False
        if not is_plain(item, depth + 1):
            return False
    return True
