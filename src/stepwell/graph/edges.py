"""Edges are data. Conditions and selections are asked by the runtime; what follows is decided in the kernel."""

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
    """One way out of a switch, taken if it is the first whose condition holds."""

    condition: Condition
    target: Any


@dataclass(frozen=True, slots=True)
class Default:
    """The way out of a switch if no case holds."""

    target: Any


class Direct(msgspec.Struct, frozen=True):
    source: str
    target: str
    condition: Condition | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def describe(self) -> str:
        condition = "" if self.condition is None else f" if {name_of(self.condition)}"
        return f"{format_ids(self.source)} -> {format_ids(self.target)}{condition}"


class FanOut(msgspec.Struct, frozen=True):
    source: str
    targets: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    def describe(self) -> str:
        return f"{format_ids(self.source)} -> each of {format_ids(*self.targets)}"


class Switch(msgspec.Struct, frozen=True):
    source: str
    cases: tuple[tuple[Condition, str], ...]
    default: str

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(target for _, target in self.cases), self.default]))

    def describe(self) -> str:
        cases = [f"{format_ids(target)} if {name_of(condition)}" for condition, target in self.cases]
        return f"{format_ids(self.source)} -> first of {', '.join([*cases, f'{format_ids(self.default)} otherwise'])}"


class Select(msgspec.Struct, frozen=True):
    source: str
    targets: tuple[str, ...]
    choose: Selection

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    def describe(self) -> str:
        return f"{format_ids(self.source)} -> those of {format_ids(*self.targets)} chosen by {name_of(self.choose)}"


@dataclass(frozen=True, slots=True)
class FanIn:
    """Holds what its sources send until each has sent something, then delivers all of it as one list."""

    sources: tuple[str, ...]
    target: str
    key: str = field(init=False, compare=False)  # its name in every checkpoint; asked for with every message

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.describe())

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def describe(self) -> str:
        return f"all of {format_ids(*self.sources)} -> {format_ids(self.target)}"


_ID = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.:/-]+)"""
_FAN_IN = re.compile(rf"all of ({_ID}(?:, {_ID})*) -> ({_ID})")


def fan_in_of(key: str) -> FanIn | None:
    """The fan-in that goes by a key in a checkpoint; None if it is no key."""
    match = _FAN_IN.fullmatch(key)
    if match is None:
        return None
    sources = [_unquote(id) for id in re.findall(_ID, match[1])]
    return FanIn(tuple(sources), _unquote(match[2]))


def _unquote(id: str) -> str:
    return str(ast.literal_eval(id)) if id[0] in "'\"" else id


Edge = Direct | FanOut | Switch | Select | FanIn


def name_of(function: object) -> str:
    """What a function is called: in ids, in the signature and in pictures."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def format_ids(*ids: str) -> str:
    """Ids in a description. Odd ones are quoted, so that two different edges are never described alike."""
    return ", ".join(id if re.fullmatch(r"[\w.:/-]+", id) else repr(id) for id in ids)
