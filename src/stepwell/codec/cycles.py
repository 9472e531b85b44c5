"""Detection of values that contain themselves.

A cycle shows first as a value that is too deep. Only then is it looked for, so that ordinary values
pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.codec.traversal import DEPTH, TOO_DEEP, Refused, ValueKind, close_items, close_pairs

_ATOMS = frozenset({str, int, float, bool, type(None)})


class Cycle(Refused):
    """A part of the value is inside itself; `length` steps lead from it back to it."""

    def __init__(self, repeated: object) -> None:
        super().__init__("the value contains itself")
        self.repeated, self.length = repeated, 0

    def describe(self, root: str) -> str:
        """Return the message for people: what repeats, and where it is first."""
        first = self.path(root, above=self.length)
        return f"{self.message}: this is `{first}` again. Remove the reference back to it"


def find_cycle(value: object, kind_of: Callable[[type], ValueKind]) -> Cycle | None:
    """Return the first place where a value contains itself; None if it does not, or is too deep to tell."""
    try:
        _CycleWalk(kind_of).close(value, 0)
    except Cycle as cycle:
        return cycle
    except (Refused, RecursionError):
        return None
    return None


class _CycleWalk:
    """A walk over a value in the order of the codec that knows which objects it is inside of."""

    def __init__(self, kind_of: Callable[[type], ValueKind]) -> None:
        self._kind_of = kind_of
        self._inside: set[int] = set()

    def close(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if depth >= DEPTH:
            raise Refused(TOO_DEEP)
        if id(value) in self._inside:
            raise Cycle(value)
        self._inside.add(id(value))
        try:
            if kind is list:
                return close_items(value, self.close, depth)
            if kind is dict:
                return close_pairs(value.items(), self.close, depth)
            return self._kind_of(kind).close(value, self.close, depth)
        except Cycle as cycle:
            # the unwinding error passes the first occurrence: the steps collected so far are the cycle
            if cycle.repeated is value:
                cycle.length = cycle.steps
            raise
        finally:
            # the same object may occur twice in one container; only an object inside itself is a cycle
            self._inside.discard(id(value))
