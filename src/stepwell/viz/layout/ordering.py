"""Decides the order within each layer, so that few arrows cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence

from stepwell.viz.layout.values import Slot, limit_sweeps

Neighbours = list[list[int]]  # of each slot, in the layer above or below it

_SWEEPS = 16
_PATIENCE = 4  # sweeps without an improvement before the best order so far is taken


def order_rows(slots: list[Slot]) -> list[list[int]]:
    """Return the slots of each layer from left to right: the best order of several sweeps down and up."""
    rows: list[list[int]] = [[] for _ in range(max((slot.layer for slot in slots), default=-1) + 1)]
    for n, slot in enumerate(slots):
        rows[slot.layer].append(n)
    above, below = [slot.above for slot in slots], [slot.below for slot in slots]
    best, fewest, stale = [row[:] for row in rows], _count_crossings(above, rows), 0
    # A sweep may also make it worse, so the best order is kept, not the last.
    for sweep in range(limit_sweeps(_SWEEPS, len(slots))):
        if fewest == 0 or stale == _PATIENCE:
            break
        turn_ties = sweep % 4 > 1
        down = sweep % 2 == 0
        _sweep(above if down else below, rows if down else rows[::-1], turn_ties=turn_ties)
        _exchange_neighbours(above, below, rows, turn_ties=turn_ties)
        crossings = _count_crossings(above, rows)
        stale += 1
        if crossings < fewest:
            best, fewest, stale = [row[:] for row in rows], crossings, 0
    return best


def _sweep(neighbours: Neighbours, rows: Iterable[list[int]], *, turn_ties: bool) -> None:
    """Sort each row by the mean place of its neighbours in the row before it.

    With `turn_ties`, slots with the same mean change their order, which leads out of dead ends.
    """
    places = [0.0] * len(neighbours)
    for row in rows:
        for place, n in enumerate(row):
            places[n] = place
        if turn_ties:
            row.reverse()
        means = {}
        for n in row:
            others = neighbours[n]
            if len(others) == 1:  # nearly always: most slots are points of long arrows
                means[n] = places[others[0]]
            else:
                means[n] = sum(places[m] for m in others) / len(others) if others else places[n]
        row.sort(key=means.__getitem__)
        for place, n in enumerate(row):
            places[n] = place


def _exchange_neighbours(above: Neighbours, below: Neighbours, rows: list[list[int]], *, turn_ties: bool) -> None:
    """Exchange slots that are side by side where that saves crossings; with `turn_ties`, also where it costs none."""
    places = [0] * len(above)
    for row in rows:
        for place, n in enumerate(row):
            places[n] = place
    for row in rows:
        for left in range(len(row) - 1):
            a, b = row[left], row[left + 1]
            now = _cross(places, above[a], above[b]) + _cross(places, below[a], below[b])
            if not now:
                continue
            then = _cross(places, above[b], above[a]) + _cross(places, below[b], below[a])
            if then < now + turn_ties:
                row[left], row[left + 1] = b, a
        for place, n in enumerate(row):
            places[n] = place


def _cross(places: list[int], left: list[int], right: list[int]) -> int:
    """Return how many arrows of two slots cross, if one is left of the other."""
    if len(left) == 1 == len(right):
        return places[left[0]] > places[right[0]]
    return sum([places[m] > places[n] for m in left for n in right])


def _count_crossings(above: Neighbours, rows: Sequence[Sequence[int]]) -> int:
    count, places = 0, [0] * len(above)
    for row in rows:
        ends: list[int] = []  # where the arrows to the slots so far come from, sorted
        for n in row:
            others = above[n]
            if len(others) == 1:
                place = places[others[0]]
                if ends and place < ends[-1]:
                    count += len(ends) - bisect_right(ends, place)
                    insort(ends, place)
                else:
                    ends.append(place)
                continue
            sources = sorted([places[m] for m in others])
            for place in sources:
                count += len(ends) - bisect_right(ends, place)
            for place in sources:
                insort(ends, place)
        for place, n in enumerate(row):
            places[n] = place
    return count
