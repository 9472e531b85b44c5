"""`lay_out`: from boxes and arrows to positions and routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from stepwell.viz.layout.layers import choose_layers, find_back_arrows
from stepwell.viz.layout.ordering import order_rows
from stepwell.viz.layout.positions import place_side_by_side
from stepwell.viz.layout.values import Box, Connector, Layout, Point, Rectangle, Slot

MARGIN = 16.0
_LEAST_GAP, _MOST_GAP = 26.0, 84.0  # between layers; the wider, the farther arrows go sideways there
_THIN = 10.0  # width of an arrow in a layer that it passes
_LOOP = 24.0  # how far an arrow from a box to itself reaches to its right
_PORTS = 14.0  # between arrows at the same side of a box


def lay_out(boxes: Sequence[Box], connectors: Sequence[Connector]) -> Layout:
    """Return positions for boxes and connectors. No two boxes, labels or passing connectors overlap.

    A connector from a box to itself runs at its right. Every connector must connect boxes of
    `boxes`. Boxes that come first are further up, if a cycle leaves the choice.
    """
    index = {box.id: n for n, box in enumerate(boxes)}
    ends = [(index[connector.source], index[connector.target]) for connector in connectors]
    back = find_back_arrows(len(boxes), ends)
    downward = [(b, a) if n in back else (a, b) for n, (a, b) in enumerate(ends)]
    layers = choose_layers(len(boxes), downward, connectors)
    loops = _loop_widths(connectors)
    slots = [
        Slot(layer, box.width + loops.get(box.id, 0.0), box.height) for box, layer in zip(boxes, layers, strict=True)
    ]
    passing = [
        _add_passing_slots(slots, a, b, connector) for (a, b), connector in zip(downward, connectors, strict=True)
    ]
    rows = order_rows(slots)
    place_side_by_side(slots, rows)
    left = min((slot.x - slot.width / 2 for slot in slots), default=0.0) - MARGIN
    right = max((slot.x + slot.width / 2 for slot in slots), default=0.0) + MARGIN
    for slot in slots:
        slot.x -= left
    spans = _place_rows(slots, rows)
    placed = {
        box.id: Rectangle(slot.x - loops.get(box.id, 0.0) / 2, sum(spans[slot.layer]) / 2, box.width, box.height)
        for box, slot in zip(boxes, slots, strict=False)
    }
    routes = _Routes(boxes, placed, slots=slots, spans=spans, downward=downward, passing=passing)
    bottom = spans[-1][1] if spans else MARGIN
    return Layout(
        right - left,
        bottom + MARGIN,
        placed,
        tuple(routes.route(n, reverse=n in back) for n in range(len(connectors))),
        tuple(routes.label(n, connector) for n, connector in enumerate(connectors)),
    )


def _loop_widths(connectors: Iterable[Connector]) -> dict[str, float]:
    """Return the room that boxes need at their right for arrows to themselves; the widest label counts."""
    widths: dict[str, float] = {}
    for connector in connectors:
        if connector.is_loop:
            room = _LOOP + 10 + connector.width
            widths[connector.source] = max(room, widths.get(connector.source, 0.0))
    return widths


def _add_passing_slots(slots: list[Slot], a: int, b: int, connector: Connector) -> list[int]:
    """Add the slots of an arrow in the layers between its ends; the middle one has room for its label."""
    if a == b:
        return []
    between = range(slots[a].layer + 1, slots[b].layer)
    places = list(range(len(slots), len(slots) + len(between)))
    for layer in between:
        is_middle = layer == between[len(between) // 2]
        width, height = (connector.width, connector.height) if is_middle else (0.0, 0.0)
        slots.append(Slot(layer, max(width, _THIN), height, is_box=False))
    for upper, lower in pairwise([a, *places, b]):
        slots[upper].below.append(lower)
        slots[lower].above.append(upper)
    return places


def _place_rows(slots: list[Slot], rows: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
    """Return top and bottom of each layer."""
    spans, y = [], MARGIN
    for row in rows:
        height = max(slots[n].height for n in row)
        spans.append((y, y + height))
        sideways = max((abs(slots[n].x - slots[m].x) for n in row for m in slots[n].below), default=0.0)
        y += height + min(_LEAST_GAP + sideways / 9, _MOST_GAP)
    return spans


class _Routes:
    """The way of each arrow over the layers: vertical inside a layer, so that it bends only where no box is."""

    def __init__(
        self,
        boxes: Sequence[Box],
        placed: Mapping[str, Rectangle],
        *,
        slots: list[Slot],
        spans: list[tuple[float, float]],
        downward: Sequence[tuple[int, int]],
        passing: list[list[int]],
    ) -> None:
        self._boxes = [placed[box.id] for box in boxes]
        self._slots, self._spans, self._downward, self._passing = slots, spans, downward, passing
        self._leaving, self._reaching = self._ports(first=True), self._ports(first=False)

    def route(self, number: int, *, reverse: bool) -> tuple[Point, ...]:
        a, b = self._downward[number]
        upper, lower, spans = self._boxes[a], self._boxes[b], self._spans
        if a == b:
            side, up = upper.x + upper.width / 2, upper.height / 4
            out = side + _LOOP
            return ((side, upper.y - up), (out, upper.y - up), (out, upper.y + up), (side, upper.y + up))
        start, end = self._leaving[number], self._reaching[number]
        route = [(start, upper.y + upper.height / 2), (start, spans[self._slots[a].layer][1])]
        route += [(self._slots[m].x, y) for m in self._passing[number] for y in spans[self._slots[m].layer]]
        route += [(end, spans[self._slots[b].layer][0]), (end, lower.y - lower.height / 2)]
        return tuple(reversed(route) if reverse else route)

    def label(self, number: int, connector: Connector) -> Rectangle | None:
        if not connector.width:
            return None
        if connector.is_loop:
            box = self._boxes[self._downward[number][0]]
            x, y = box.x + box.width / 2 + _LOOP + 6 + connector.width / 2, box.y
        else:
            middle = self._slots[self._passing[number][len(self._passing[number]) // 2]]
            x, y = middle.x, sum(self._spans[middle.layer]) / 2
        return Rectangle(x, y, connector.width, connector.height)

    def _ports(self, *, first: bool) -> dict[int, float]:
        """Return where each arrow touches its first or its last box: several at one side are spread in their order."""
        by_box: dict[int, list[int]] = {}
        for number, (a, b) in enumerate(self._downward):
            if a != b:
                by_box.setdefault(a if first else b, []).append(number)
        ports = {}
        for box, numbers in by_box.items():
            numbers.sort(key=lambda number: (self._next_x(number, first=first), number))
            apart = min(_PORTS, self._boxes[box].width * 0.7 / max(len(numbers) - 1, 1))
            for place, number in enumerate(numbers):
                ports[number] = self._boxes[box].x + (place - (len(numbers) - 1) / 2) * apart
        return ports

    def _next_x(self, number: int, *, first: bool) -> float:
        """Return where an arrow is in the layer after its first box, or before its last."""
        if self._passing[number]:
            return self._slots[self._passing[number][0 if first else -1]].x
        return self._boxes[self._downward[number][1 if first else 0]].x
