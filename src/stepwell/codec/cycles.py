"""Where a value contains itself: asked only when one was too deep to be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.codec.traversal import DEPTH, TOO_DEEP, Refused, ValueKind, close_items, close_pairs

_ATOMS = frozenset({str, int, float, bool, type(None)})


class Circle(Refused):
    """A part of the value is inside itself; `length` steps lead from it to it."""

    def __init__(self, repeated: object) -> None:
        super().__init__("the value contains itself")
        self.repeated, self.length = repeated, 0

    def describe(self, root: str) -> str:
        """The sentence for people: what is met again, and where it was met first."""
        first = self.path(root, above=self.length)
        return f"{self.message}: this is `{first}` again. Send what it holds without the way back"


def circle_in(value: object, kind_of: Callable[[type], ValueKind]) -> Circle | None:
    """The first place where a value contains itself; None if it does not, or is too deep to tell."""
    try:
        _CycleWalk(kind_of).close(value, 0)
    except Circle as circle:
        return circle
    except (Refused, RecursionError):
        return None
    return None


class _CycleWalk:
    """Walks a value like the codec, in the same order, and knows what it is inside of."""

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
            raise Circle(value)
        self._inside.add(id(value))
        try:
            if kind is list:
                return close_items(value, self.close, depth)
            if kind is dict:
                return close_pairs(value.items(), self.close, depth)
            return self._kind_of(kind).close(value, self.close, depth)
        except Circle as circle:
            if circle.repeated is value:
                circle.length = circle.steps
            raise
        finally:
            self._inside.discard(id(value))
