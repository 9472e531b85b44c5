"""What every part of the codec shares: which values are plain JSON, errors that collect their path, and
walks over items, pairs and fields.

To *close* a value is to turn it into a JSON tree; to *open* a tree is to make the value again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

# Deep enough for any real document, and shallow enough that writing and reading stay below Python's
# default recursion limit of 1000: see `ValueKind` for the frames that one level costs.
DEPTH = 200
TOO_DEEP = f"the value is nested deeper than {DEPTH} levels: flatten it, or send a reference to it"
STACK_EXHAUSTED = "the value is nested deeper than Python's stack allows here: flatten it, or send a reference to it"

VERBATIM: frozenset[type] = frozenset({str, bool, type(None)})
"""Types of which every instance is written unchanged."""

ATOMS: frozenset[type] = VERBATIM | {int, float}
"""Immutable types that are plain JSON but for a few values: integers beyond 64 bits, nan, infinity."""

# Many JSON parsers, and msgspec's own integers, stop at 64 bits; larger ones are stored as text.
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_SHOWN_STEPS = 12
_SHOWN_TEXT = 60

Close = Callable[[Any, int], Any]
"""Turns a value, at a depth, into a JSON tree."""

Open = Callable[[Any, int], Any]
"""Turns a JSON tree, at a depth, into a value."""


class Refused(Exception):
    """A value that cannot be stored or read.

    The path to the offending part is collected while the error unwinds, so that values without an
    error pay nothing for it.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        self._steps: list[str] = []  # innermost first
        super().__init__(message)

    def at(self, step: str) -> None:
        """Add the step that leads from the enclosing value to the refused part."""
        self._steps.append(step)

    def path(self, root: str, above: int = 0) -> str:
        """Return the path from the root to the refused part, or to its ancestor `above` levels up."""
        steps = self._steps[above:][::-1]
        if len(steps) > 2 * _SHOWN_STEPS:  # a full path of 200 steps would fill a screen
            steps = [*steps[:_SHOWN_STEPS], "…", *steps[-_SHOWN_STEPS:]]
        return root + "".join(steps)


class ValueKind(Protocol):
    """How one type is written as an object with a `$` tag, and read back.

    One level of nesting may cost at most three Python frames in either direction: `DEPTH` levels
    must fit into the recursion limit together with the caller's own frames, and what was written
    must be readable.
    """

    @property
    def tag(self) -> str: ...

    @property
    def members(self) -> frozenset[str]:
        """The keys that its object may have."""

    @property
    def close(self) -> Callable[[Any, Close, int], dict[str, Any]]: ...

    @property
    def open(self) -> Callable[[dict[str, Any], Open, int], Any]: ...


def is_object(value: dict[Any, Any]) -> bool:
    """Return whether a dict is a plain JSON object that cannot be mistaken for a tagged value."""
    if "$" in value:
        return False
    for key in value:  # noqa: SIM110  `all` would take twice as long
        if type(key) is not str:
            return False
    return True


def key_step(key: object) -> str:
    """Return the path step that leads to the value under `key`."""
    if type(key) is str:
        return f".{key}" if key.isidentifier() and len(key) <= _SHOWN_TEXT else f"[{shorten(key)!r}]"
    if key is None or type(key) is bool or (type(key) is int and key.bit_length() < 64):
        return f"[{key!r}]"
    return f"[{type(key).__name__}]"  # any other repr may be long, secret, or run a user's code


def shorten(text: object) -> str:
    """Cut a string of unknown origin to a length that fits into a sentence."""
    text = str(text)
    return text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + "…"


def close_items(items: Iterable[Any], close: Close, depth: int) -> list[Any]:
    """Close each item of an ordered collection."""
    closed: list[Any] = []
    try:
        for item in items:
            closed.append(close(item, depth + 1))
    except Refused as refused:
        refused.at(f"[{len(closed)}]")
        raise
    return closed


def open_parts(tree: Any, kind: Any, open: Open, depth: int) -> Any:
    """Open the items of a list, or the fields of a dict, in place: the tree comes fresh from the parser."""
    if type(tree) is not kind:
        expected = "a list" if kind is list else "an object with named fields"
        raise Refused(f"expected {expected}, found {describe_json(tree)}")
    step: Any = 0
    parts: Any = tree
    try:
        for step, item in enumerate(parts) if kind is list else parts.items():
            if type(item) is dict or type(item) is list:
                parts[step] = open(item, depth + 1)
    except Refused as refused:
        refused.at(key_step(step))
        raise
    return tree


def close_members(items: Iterable[Any], close: Close, depth: int) -> list[Any]:
    """Close each element of an unordered collection, in which no index could say where one is."""
    try:
        return [close(item, depth + 1) for item in items]
    except Refused as refused:
        refused.at("{...}")
        raise


def close_pairs(pairs: Iterable[tuple[Any, Any]], close: Close, depth: int) -> list[list[Any]]:
    """Close the keys and values of a mapping."""
    closed = []
    for key, item in pairs:
        try:
            closed_key = close(key, depth + 1)
        except Refused as refused:
            refused.at("{...}")
            raise
        try:
            closed.append([closed_key, close(item, depth + 1)])
        except Refused as refused:
            refused.at(key_step(key))
            raise
    return closed


def open_pairs(tree: Any, open: Open, depth: int) -> list[tuple[Any, Any]]:
    """Open the keys and values of a mapping."""
    if type(tree) is not list:
        raise Refused(f"expected a list of [key, value] pairs, found {describe_json(tree)}")
    opened = []
    for pair in tree:
        if type(pair) is not list or len(pair) != 2:
            actual = f"{len(pair)} items" if type(pair) is list else describe_json(pair)
            raise Refused(f"expected a [key, value] pair, found {actual}")
        try:
            key = open(pair[0], depth + 1)
        except Refused as refused:
            refused.at("{...}")
            raise
        try:
            opened.append((key, open(pair[1], depth + 1)))
        except Refused as refused:
            refused.at(key_step(key))
            raise
    return opened


_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    type(None): "null",
}


def describe_json(tree: object) -> str:
    """Return what a part of stored data is, in the words of JSON and with an article."""
    return describe_type(type(tree))


def describe_type(kind: type) -> str:
    """Return the name of a type in the words of JSON where it has any, with an article."""
    return _JSON_NAMES.get(kind) or f"a `{kind.__name__}`"


# --- values that contain themselves -----------------------------------------------------------------------------------

# A cycle shows first as a value that is too deep. Only then is it looked for, so that ordinary values
# pay nothing.


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
    except (Refused, RecursionError) as error:
        return error if isinstance(error, Cycle) else None
    return None


class _CycleWalk:
    """A walk over a value in the order of the codec that knows which objects it is inside of."""

    def __init__(self, kind_of: Callable[[type], ValueKind]) -> None:
        self._kind_of = kind_of
        self._inside: set[int] = set()

    def close(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in ATOMS:
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
                cycle.length = len(cycle._steps)
            raise
        finally:
            # the same object may occur twice in one container; only an object inside itself is a cycle
            self._inside.discard(id(value))
