"""Edges, as data. The engine evaluates conditions and selections; `kernel/superstep` decides what follows."""

from __future__ import annotations

import ast
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

Condition = Callable[[Any], bool | Awaitable[bool]]
Selection = Callable[[Any, list[str]], Sequence[str] | Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Case:
    """One branch of a switch: the first case with a true condition is taken."""

    condition: Condition
    target: Any


@dataclass(frozen=True, slots=True)
class Default:
    """The branch of a switch that is taken if no case applies."""

    target: Any


class _FromOne(msgspec.Struct, frozen=True):
    source: str

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)


class Direct(_FromOne, frozen=True):
    """An edge from one executor to another, perhaps with a condition."""

    target: str
    condition: Condition | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def describe(self) -> str:
        condition = "" if self.condition is None else f" if {name_of(self.condition)}"
        return f"{format_ids(self.source)} -> {format_ids(self.target)}{condition}"


class FanOut(_FromOne, frozen=True):
    """An edge that sends each message to all of its targets."""

    targets: tuple[str, ...]

    def describe(self) -> str:
        return f"{format_ids(self.source)} -> each of {format_ids(*self.targets)}"


class Switch(_FromOne, frozen=True):
    """An edge that sends each message to exactly one target: the first case that applies, or the default."""

    cases: tuple[tuple[Condition, str], ...]
    default: str

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(target for _, target in self.cases), self.default]))

    def describe(self) -> str:
        cases = [f"{format_ids(target)} if {name_of(condition)}" for condition, target in self.cases]
        return f"{format_ids(self.source)} -> first of {', '.join([*cases, f'{format_ids(self.default)} otherwise'])}"


class Select(_FromOne, frozen=True):
    """An edge that sends each message to those targets that a function chooses."""

    targets: tuple[str, ...]
    choose: Selection

    def describe(self) -> str:
        return f"{format_ids(self.source)} -> those of {format_ids(*self.targets)} chosen by {name_of(self.choose)}"


@dataclass(frozen=True, slots=True)
class FanIn:
    """An edge that holds messages until each of its sources has sent one, then delivers all as one list."""

    sources: tuple[str, ...]
    target: str
    # Its name in checkpoints, derived from sources and target so that a resume finds what it holds.
    # A field and not a property, because it is read for every message.
    key: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.describe())

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def describe(self) -> str:
        return f"all of {format_ids(*self.sources)} -> {format_ids(self.target)}"


# The inverse of `FanIn.describe`: ids are either plain words or Python string literals, see `format_ids`
_ID = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.:/-]+)"""
_FAN_IN = re.compile(rf"all of ({_ID}(?:, {_ID})*) -> ({_ID})")


def fan_in_of(key: str) -> FanIn | None:
    """Return the fan-in of a key in a checkpoint, which the present graph may not have; None for another text."""
    match = _FAN_IN.fullmatch(key)
    if match is None:
        return None
    *sources, target = [
        str(ast.literal_eval(id)) if id[0] in "'\"" else id for id in (*re.findall(_ID, match[1]), match[2])
    ]
    return FanIn(tuple(sources), target)


Edge = Direct | FanOut | Switch | Select | FanIn


def name_of(function: object) -> str:
    """Return the name of a function, as used in ids, in the signature and in pictures."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def format_ids(*ids: str) -> str:
    """Join ids for a description. Unusual ones are quoted, so that different edges never look the same."""
    return ", ".join(id if re.fullmatch(r"[\w.:/-]+", id) else repr(id) for id in ids)
