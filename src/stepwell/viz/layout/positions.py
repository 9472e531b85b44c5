"""Decides how far to the right each slot of a layer is, given their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from stepwell.viz.layout.values import Slot, limit_sweeps

_BETWEEN_BOXES, _BETWEEN_ARROWS = 28.0, 10.0
_SWEEPS = 10
_STRAIGHT = 100.0  # how much more a long arrow insists on a straight line than a box on its place


def place_side_by_side(slots: list[Slot], rows: Sequence[Sequence[int]]) -> None:
    """Set `x` of all slots, without overlaps: near the slots they are connected with."""
    gaps = [_offsets(slots, row) for row in rows]
    for row, offsets in zip(rows, gaps, strict=True):
        _settle(slots, row, offsets, wanted=[0.0] * len(row), weights=[1.0] * len(row))
    sides = list(zip(rows, gaps, strict=True))
    for sweep in range(limit_sweeps(_SWEEPS, len(slots))):
        down = sweep % 2 == 0
        for row, offsets in sides if down else reversed(sides):
            wanted, weights = [], []
            for n in row:
                slot = slots[n]
                neighbours = slot.above if down else slot.below
                if len(neighbours) == 1:
                    other = slots[neighbours[0]]
                    wanted.append(other.x)
                    weights.append(1.0 if slot.is_box or other.is_box else _STRAIGHT)
                else:
                    wanted.append(sum(slots[m].x for m in neighbours) / len(neighbours) if neighbours else slot.x)
                    weights.append(1.0 if neighbours else 0.1)
            _settle(slots, row, offsets, wanted=wanted, weights=weights)


def _offsets(slots: list[Slot], row: Sequence[int]) -> list[float]:
    """Return the least distance of each slot of a row from the first one."""
    gaps = (
        (slots[left].width + slots[right].width) / 2
        + (_BETWEEN_BOXES if slots[left].is_box or slots[right].is_box else _BETWEEN_ARROWS)
        for left, right in pairwise(row)
    )
    return list(accumulate(gaps, initial=0.0))


def _settle(
    slots: list[Slot], row: Sequence[int], offsets: list[float], *, wanted: list[float], weights: list[float]
) -> None:
    """Place a row as near to the wanted positions as order and widths allow.

    Slots that would overlap form a group, which moves to the weighted mean of what its members want.
    """
    # With the least distances subtracted, slots are points that must only keep their order: an
    # isotonic regression, solved by pooling neighbours that violate it.
    groups: list[tuple[float, float, int]] = []  # mean of the wanted positions, weight, number of members
    for want, offset, own_weight in zip(wanted, offsets, weights, strict=True):
        mean, weight, size = want - offset, own_weight, 1
        while groups and groups[-1][0] >= mean:
            before, heavier, more = groups.pop()
            mean = (mean * weight + before * heavier) / (weight + heavier)
            weight, size = weight + heavier, size + more
        groups.append((mean, weight, size))
    means = [mean for mean, _, size in groups for _ in range(size)]
    for n, mean, offset in zip(row, means, offsets, strict=True):
        slots[n].x = mean + offset
