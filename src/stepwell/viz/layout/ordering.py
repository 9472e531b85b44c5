"""Decides the order within each layer, so that few arrows cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from stepwell.viz.layout.values import Slot

_SWEEPS = 16
_PATIENCE = 4  # sweeps without an improvement before the best order so far is taken


def order_rows(slots: list[Slot]) -> list[list[int]]:
    """Return the slots of each layer from left to right: the best order of several sweeps down and up."""
    rows: list[list[int]] = [[] for _ in range(max((slot.layer for slot in slots), default=-1) + 1)]
    for n, slot in enumerate(slots):
        rows[slot.layer].append(n)
    best, fewest, stale = [row[:] for row in rows], _count_crossings(slots, rows), 0
    # A sweep may also make it worse, so the best order is kept, not the last.
    for sweep in range(_SWEEPS):
        if fewest == 0 or stale == _PATIENCE:
            break
        turn_ties = sweep % 4 > 1
        _sweep(slots, rows, down=sweep % 2 == 0, turn_ties=turn_ties)
        _exchange_neighbours(slots, rows, turn_ties=turn_ties)
        crossings = _count_crossings(slots, rows)
        stale += 1
        if crossings < fewest:
            best, fewest, stale = [row[:] for row in rows], crossings, 0
    return best


def _sweep(slots: list[Slot], rows: list[list[int]], *, down: bool, turn_ties: bool) -> None:
    """Sort each row by the mean place of its neighbours in the row before it.

    With `turn_ties`, slots with the same mean change their order, which leads out of dead ends.
    """
    places = [0.0] * len(slots)
    for row in rows if down else reversed(rows):
        for place, n in enumerate(row):
            places[n] = place
        if turn_ties:
            row.reverse()
        row.sort(key=lambda n: _mean(places, slots[n].neighbours(down), n))
        for place, n in enumerate(row):
            places[n] = place


def _exchange_neighbours(slots: list[Slot], rows: list[list[int]], *, turn_ties: bool) -> None:
    """Exchange slots that are side by side where that saves crossings; with `turn_ties`, also where it costs none."""
    places = [0] * len(slots)
    for row in rows:
        for place, n in enumerate(row):
            places[n] = place
    for row in rows:
        for left in range(len(row) - 1):
            a, b = slots[row[left]], slots[row[left + 1]]
            now = _cross(places, a.above, b.above) + _cross(places, a.below, b.below)
            if now and _cross(places, b.above, a.above) + _cross(places, b.below, a.below) < now + turn_ties:
                row[left], row[left + 1] = row[left + 1], row[left]
        for place, n in enumerate(row):
            places[n] = place


def _cross(places: list[int], left: list[int], right: list[int]) -> int:
    """Return how many arrows of two slots cross, if one is left of the other."""
    if len(left) == 1 == len(right):  # nearly always: most slots are points of long arrows
        return places[left[0]] > places[right[0]]
    return sum(places[m] > places[n] for m in left for n in right)


def _mean(places: list[float], neighbours: list[int], itself: int) -> float:
    if len(neighbours) == 1:
        return places[neighbours[0]]
    return sum(places[m] for m in neighbours) / len(neighbours) if neighbours else places[itself]


def _count_crossings(slots: list[Slot], rows: Sequence[Sequence[int]]) -> int:
    count, places = 0, [0] * len(slots)
    for row in rows:
        ends: list[int] = []  # where the arrows to the slots so far come from, sorted
        for n in row:
            above = [places[m] for m in slots[n].above]
            count += sum(len(ends) - bisect_right(ends, place) for place in above)
            for place in above:
                insort(ends, place)
        for place, n in enumerate(row):
            places[n] = place
    return count
