"""What every part of the codec shares: refusals that learn their path, and walks over items and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

DEPTH = 200
TOO_DEEP = f"the value is nested deeper than {DEPTH} levels: send it flat, or by reference"
NO_ROOM = "the value is nested deeper than Python's stack has room for here: send it flat, or by reference"

_SHOWN_STEPS = 12
_SHOWN_TEXT = 60

Close = Callable[[Any, int], Any]
"""From a value and its depth to what JSON can say."""

Open = Callable[[Any, int], Any]
"""From a JSON tree and its depth to a value."""


class Refused(Exception):
    """A value cannot be stored or read; the path grows while the error unwinds, and costs nothing before."""

    def __init__(self, message: str) -> None:
        self.message = message
        self._steps: list[str] = []
        super().__init__(message)

    def at(self, step: str) -> None:
        """Say where the refused part sits in the value around it."""
        self._steps.append(step)

    @property
    def steps(self) -> int:
        """How far up the error has come."""
        return len(self._steps)

    def path(self, root: str, above: int = 0) -> str:
        """The way from the root to the refused part, or to what is so many steps above it."""
        steps = self._steps[above:][::-1]
        if len(steps) > 2 * _SHOWN_STEPS:  # it would fill a screen
            steps = [*steps[:_SHOWN_STEPS], "…", *steps[-_SHOWN_STEPS:]]
        return root + "".join(steps)


class ValueKind(Protocol):
    """How one type is written as an object with a `$` tag, and read back.

    A level of nesting costs three frames at most, in both directions: 200 levels must fit into
    Python's recursion limit together with whoever called, and what was written must be readable.
    """

    @property
    def tag(self) -> str: ...

    @property
    def members(self) -> frozenset[str]:
        """The keys its object may have."""

    @property
    def close(self) -> Callable[[Any, Close, int], dict[str, Any]]: ...

    @property
    def open(self) -> Callable[[dict[str, Any], Open, int], Any]: ...


def key_step(key: object) -> str:
    """The path step to what is kept under `key`."""
    if type(key) is str:
        return f".{key}" if key.isidentifier() and len(key) <= _SHOWN_TEXT else f"[{shorten(key)!r}]"
    if key is None or type(key) is bool or (type(key) is int and key.bit_length() < 64):
        return f"[{key!r}]"
    return f"[{type(key).__name__}]"  # the repr of anything else may be long, secret or code


def shorten(text: object) -> str:
    """A text from outside, short enough for a sentence."""
    text = str(text)
    return text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + "…"


def close_items(items: Iterable[Any], close: Close, depth: int) -> list[Any]:
    closed: list[Any] = []
    try:
        for item in items:
            closed.append(close(item, depth + 1))
    except Refused as refused:
        refused.at(f"[{len(closed)}]")
        raise
    return closed


def open_items(tree: Any, open: Open, depth: int) -> list[Any]:
    """The items of a list, opened where they lie: the tree is fresh and ours."""
    if type(tree) is not list:
        raise Refused("a list belongs here, and something else is stored")
    index = 0
    try:
        for index, item in enumerate(tree):
            if type(item) is dict or type(item) is list:
                tree[index] = open(item, depth + 1)
    except Refused as refused:
        refused.at(f"[{index}]")
        raise
    return tree


def close_members(items: Iterable[Any], close: Close, depth: int) -> list[Any]:
    """The elements of something without an order."""
    try:
        return [close(item, depth + 1) for item in items]
    except Refused as refused:
        refused.at("{...}")
        raise


def close_pairs(pairs: Iterable[tuple[Any, Any]], close: Close, depth: int) -> list[list[Any]]:
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
    if type(tree) is not list:
        raise Refused("a list of pairs belongs here, and something else is stored")
    opened = []
    for pair in tree:
        if type(pair) is not list or len(pair) != 2:
            raise Refused("a pair of key and value belongs here, and something else is stored")
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


def open_fields(tree: Any, open: Open, depth: int) -> dict[str, Any]:
    """The fields of an object, opened where they lie."""
    if type(tree) is not dict:
        raise Refused("an object of named fields belongs here, and something else is stored")
    name = ""
    try:
        for name, item in tree.items():
            if type(item) is dict or type(item) is list:
                tree[name] = open(item, depth + 1)
    except Refused as refused:
        refused.at(key_step(name))
        raise
    return tree
