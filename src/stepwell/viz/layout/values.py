"""Boxes and connectors, and the layout that they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A box to place."""

    id: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Connector:
    """An arrow to route; `width` and `height` are those of its label."""

    source: str
    target: str
    width: float = 0.0
    height: float = 0.0

    @property
    def is_loop(self) -> bool:
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A placed rectangle: its centre and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all boxes, routes and labels."""

    width: float
    height: float
    boxes: Mapping[str, Rectangle]
    routes: tuple[tuple[Point, ...], ...]  # of each connector, in the order given, from source to target
    labels: tuple[Rectangle | None, ...]  # of each connector


@dataclass(slots=True)
class Slot:
    """What a layer consists of: a box, or the point at which an arrow passes the layer."""

    layer: int
    width: float
    height: float
    is_box: bool = True
    above: list[int] = field(default_factory=list)  # indexes of the slots it is connected with
    below: list[int] = field(default_factory=list)
    x: float = 0.0


# Slots that are looked at in all sweeps together. A graph with more has so many arrows that nobody sees
# one crossing more, and a drawing must not take seconds.
_EFFORT = 80_000
_FEWEST = 2  # one down and one up


def limit_sweeps(most: int, slots: int) -> int:
    """Return how many sweeps over so many slots are worth their time."""
    return max(min(most, _EFFORT // max(slots, 1)), _FEWEST)
