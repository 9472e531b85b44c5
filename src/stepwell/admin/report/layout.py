"""Places the boxes of a graph in layers, so that arrows point down where possible.

Pure and deterministic.

This is the layered drawing of Sugiyama. Cycles are broken by reversing arrows; a box is as far down
as the longest path to it; an arrow over several layers gets a node in each of them; and each layer
is sorted by the mean position of its neighbours, which keeps crossings few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise

SIDE, DOWN, MARGIN = 28.0, 36.0, 16.0  # between boxes, between layers, around everything
_THIN = 12.0  # width of an arrow in a layer it passes
_SWEEPS = 12  # passes of ordering, and of placing


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
    routes: tuple[tuple[tuple[float, float], ...], ...]  # of each link, in the order given, from source to target
    labels: tuple[Rectangle | None, ...]  # of each link


@dataclass(slots=True)
class _Node:
    """A box, or the position of a link in a layer it passes."""

    layer: int
    width: float
    height: float
    above: list[int]
    below: list[int]
    x: float = 0.0

    def neighbours(self, down: bool) -> list[int]:
        """Return the nodes of the layer that a sweep comes from."""
        return self.above if down else self.below


def lay_out(boxes: Sequence[Box], links: Sequence[Connector]) -> Layout:
    """Return positions for boxes and links. No two boxes, labels or passing links overlap.

    A link from a box to itself runs at its right. Every link must connect boxes of `boxes`.
    """
    index = {box.id: n for n, box in enumerate(boxes)}
    ends = [(index[link.source], index[link.target]) for link in links]
    turned = _find_back_links(len(boxes), ends)
    downward = [(b, a) if n in turned else (a, b) for n, (a, b) in enumerate(ends)]
    # Labels, and parallel links between two boxes, need a layer of their own in between.
    wide = any(link.width and link.source != link.target for link in links) or len(set(downward)) < len(downward)
    layers = [layer * (2 if wide else 1) for layer in _layers(len(boxes), downward)]
    # The room that boxes need at their right for links to themselves; the widest link counts.
    itself = sorted((link for link in links if link.source == link.target), key=lambda link: link.width)
    loops = {link.source: 34.0 + link.width for link in itself}
    nodes = [
        _Node(layer, box.width + loops.get(box.id, 0.0), box.height, [], [])
        for box, layer in zip(boxes, layers, strict=True)
    ]
    passing = [_add_passing_nodes(nodes, a, b, link) for (a, b), link in zip(downward, links, strict=True)]
    rows = _order_rows(nodes)
    _place_side_by_side(nodes, rows)
    return _assemble(boxes, links, nodes=nodes, rows=rows, passing=passing, turned=turned, loops=loops)


def _find_back_links(count: int, ends: Sequence[tuple[int, int]]) -> set[int]:
    """Return the links that close a cycle in a depth-first walk.

    Once they are reversed, no cycle is left.
    """
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for n, (a, b) in enumerate(ends):
        if a != b:
            leaving[a].append((n, b))
    turned: set[int] = set()
    state = [0] * count  # 1: on the current path, 2: done
    # Iterative: a chain of a thousand executors would exceed Python's recursion limit.
    for root in range(count):
        if state[root]:
            continue
        state[root] = 1
        path = [(root, iter(leaving[root]))]
        while path:
            box, further = path[-1]
            for n, b in further:
                if state[b] == 1:
                    turned.add(n)
                elif state[b] == 0:
                    state[b] = 1
                    path.append((b, iter(leaving[b])))
                    break
            else:
                state[box] = 2
                path.pop()
    return turned


def _layers(count: int, downward: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each box the length of the longest path to it."""
    above: dict[int, list[int]] = {box: [] for box in range(count)}
    for a, b in downward:
        if a != b:
            above[b].append(a)
    layers = [0] * count
    for box in TopologicalSorter(above).static_order():
        layers[box] = max((layers[a] + 1 for a in above[box]), default=0)
    return layers


def _add_passing_nodes(nodes: list[_Node], a: int, b: int, link: Connector) -> list[int]:
    """Add nodes for a link in the layers between its ends.

    The middle one makes room for its label.
    """
    if a == b:
        return []
    between = range(nodes[a].layer + 1, nodes[b].layer)
    places = list(range(len(nodes), len(nodes) + len(between)))
    for layer in between:
        is_middle = layer == between[len(between) // 2]
        width, height = (link.width, link.height) if is_middle else (0.0, 0.0)
        nodes.append(_Node(layer, max(width, _THIN), height, [], []))
    for upper, lower in pairwise([a, *places, b]):
        nodes[upper].below.append(lower)
        nodes[lower].above.append(upper)
    return places


def _order_rows(nodes: list[_Node]) -> list[list[int]]:
    """Return the layers, ordered as in the best of several sweeps down and up."""
    rows: list[list[int]] = [[] for _ in range(max((node.layer for node in nodes), default=-1) + 1)]
    for n, node in enumerate(nodes):
        rows[node.layer].append(n)
    best, fewest = [row[:] for row in rows], _crossings(nodes, rows)
    # Sweeps may also make it worse, so the best order is kept, not the last.
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _sort(nodes, rows, row, down)
        crossings = _crossings(nodes, rows)
        if crossings < fewest:
            best, fewest = [row[:] for row in rows], crossings
    return best


def _sort(nodes: list[_Node], rows: list[list[int]], row: list[int], down: bool) -> None:
    beside = nodes[row[0]].layer + (-1 if down else 1)
    others = rows[beside] if 0 <= beside < len(rows) else []
    places = {n: place for other in (others, row) for place, n in enumerate(other)}
    row.sort(key=lambda n: _mean([places[m] for m in nodes[n].neighbours(down)], places[n]))


def _mean(positions: Sequence[float], otherwise: float) -> float:
    return sum(positions) / len(positions) if positions else otherwise


def _crossings(nodes: list[_Node], rows: list[list[int]]) -> int:
    count = 0
    for row in rows[1:]:
        places = {n: place for place, n in enumerate(rows[nodes[row[0]].layer - 1])}
        lines = [sorted(places[neighbour] for neighbour in nodes[n].above) for n in row]
        earlier: list[int] = []
        for ends in lines:
            count += sum(1 for end in ends for other in earlier if other > end)
            earlier += ends
    return count


def _place_side_by_side(nodes: list[_Node], rows: list[list[int]]) -> None:
    for row in rows:
        _settle(nodes, row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _settle(nodes, row, [_mean([nodes[m].x for m in nodes[n].neighbours(down)], nodes[n].x) for n in row])


def _settle(nodes: list[_Node], row: list[int], wanted: list[float]) -> None:
    """Place a row as near to the wanted positions as order and widths allow.

    Boxes that would overlap form a group, which moves to the mean of what its members want.
    """
    # With the widths subtracted, boxes are points that must only keep their order: an isotonic
    # regression, solved by pooling neighbours that violate it.
    gaps = ((nodes[left].width + nodes[right].width) / 2 + SIDE for left, right in pairwise(row))
    offsets = list(accumulate(gaps, initial=0.0))
    groups: list[tuple[float, int]] = []  # mean of the wanted positions, number of members
    for want, shift in zip(wanted, offsets, strict=True):
        mean, size = want - shift, 1
        while groups and groups[-1][0] >= mean:
            before, more = groups.pop()
            mean, size = (mean * size + before * more) / (size + more), size + more
        groups.append((mean, size))
    means = [mean for mean, size in groups for _ in range(size)]
    for n, mean, shift in zip(row, means, offsets, strict=True):
        nodes[n].x = mean + shift


def _assemble(
    boxes: Sequence[Box],
    links: Sequence[Connector],
    *,
    nodes: list[_Node],
    rows: list[list[int]],
    passing: list[list[int]],
    turned: set[int],
    loops: Mapping[str, float],
) -> Layout:
    left = min((node.x - node.width / 2 for node in nodes), default=0.0) - MARGIN
    right = max((node.x + node.width / 2 for node in nodes), default=0.0) + MARGIN
    spans, y = [], MARGIN  # top and bottom of each layer
    for row in rows:
        height = max(nodes[n].height for n in row)
        spans.append((y, y + height))
        y += height + DOWN
    ys = [sum(spans[node.layer]) / 2 for node in nodes]
    index = {box.id: n for n, box in enumerate(boxes)}
    placed = {
        box.id: Rectangle(nodes[n].x - left - loops.get(box.id, 0.0) / 2, ys[n], box.width, box.height)
        for n, box in enumerate(boxes)
    }
    routes: list[tuple[tuple[float, float], ...]] = []
    labels: list[Rectangle | None] = []
    for n, link in enumerate(links):
        source = placed[link.source]
        if link.source == link.target:
            routes.append(_loop_route(source))
            beside = Rectangle(source.x + source.width / 2 + 30 + link.width / 2, source.y, link.width, link.height)
            labels.append(beside if link.width else None)
            continue
        a, b = (link.target, link.source) if n in turned else (link.source, link.target)
        upper, lower = placed[a], placed[b]
        # Vertical inside a layer, so that a link bends only between layers, where no box is.
        route = [(upper.x, upper.y + upper.height / 2), (upper.x, spans[nodes[index[a]].layer][1])]
        route += [(nodes[m].x - left, y) for m in passing[n] for y in spans[nodes[m].layer]]
        route += [(lower.x, spans[nodes[index[b]].layer][0]), (lower.x, lower.y - lower.height / 2)]
        routes.append(tuple(reversed(route) if n in turned else route))
        middle = passing[n][len(passing[n]) // 2] if link.width else None
        labels.append(
            None if middle is None else Rectangle(nodes[middle].x - left, ys[middle], link.width, link.height)
        )
    return Layout(right - left, max(y - DOWN + MARGIN, 2 * MARGIN), placed, tuple(routes), tuple(labels))


def _loop_route(box: Rectangle) -> tuple[tuple[float, float], ...]:
    side, up = box.x + box.width / 2, box.height / 4
    return ((side, box.y - up), (side + 24, box.y - up), (side + 24, box.y + up), (side, box.y + up))
