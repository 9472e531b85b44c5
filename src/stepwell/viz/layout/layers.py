"""Decides in which layer each box is, and which arrows are drawn upwards."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

from stepwell.viz.layout.values import Connector

Ends = tuple[int, int]  # indexes of the boxes that an arrow connects


def find_back_arrows(count: int, ends: Sequence[Ends]) -> set[int]:
    """Return the arrows that close a cycle in a depth-first search; once they are reversed, no cycle is left."""
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for n, (a, b) in enumerate(ends):
        if a != b:
            leaving[a].append((n, b))
    back: set[int] = set()
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
                    back.add(n)
                elif state[b] == 0:
                    state[b] = 1
                    path.append((b, iter(leaving[b])))
                    break
            else:
                state[box] = 2
                path.pop()
    return back


def choose_layers(count: int, downward: Sequence[Ends], connectors: Sequence[Connector]) -> list[int]:
    """Return the layer of each box. An arrow with a label passes at least one layer, which has room for it."""
    layers = _longest_paths(count, downward)
    spacious = set()  # layers that are followed by one for labels alone
    seen: set[Ends] = set()
    for (a, b), connector in zip(downward, connectors, strict=True):
        # Of two arrows between the same boxes, one must go around the other.
        if layers[b] - layers[a] == 1 and (connector.width or (a, b) in seen):
            spacious.add(layers[a])
        seen.add((a, b))
    shifts, shift = [], 0
    for layer in range(max(layers, default=-1) + 1):
        shifts.append(layer + shift)
        shift += layer in spacious
    return [shifts[layer] for layer in layers]


def _longest_paths(count: int, downward: Sequence[Ends]) -> list[int]:
    above: dict[int, list[int]] = {box: [] for box in range(count)}
    below: dict[int, list[int]] = {box: [] for box in range(count)}
    for a, b in downward:
        if a != b:
            above[b].append(a)
            below[a].append(b)
    layers = [0] * count
    order = list(TopologicalSorter(above).static_order())
    for box in order:
        layers[box] = max((layers[a] + 1 for a in above[box]), default=0)
    for box in reversed(order):
        # Nearer to what follows, if that shortens more arrows than it lengthens.
        if len(below[box]) > len(above[box]):
            layers[box] = min(layers[b] for b in below[box]) - 1
    return layers
