"""How much a store holds: for monitoring. A protocol of its own, beside the six of the port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec


class StoreStatistics(msgspec.Struct, frozen=True):
    """How much a store holds at one moment. Runs of sub-workflows are not counted: their callers are."""

    runs: Mapping[str, int]  # by status
    open_requests: int


class RunPlace(NamedTuple):
    """A place in the list of all runs that no other run called, latest start first."""

    began: str  # UTC, ISO 8601
    run_id: str


@runtime_checkable
class Statistics(Protocol):
    """What a store implements that can be monitored, and searched in parts."""

    async def statistics(self) -> StoreStatistics:
        """Count runs and requests. The cost grows with the number of runs; no body is read."""

    async def find_place(self, past: RunPlace | None, count: int) -> RunPlace | None:
        """Return the place that is `count` runs further in the list; None if no run comes after it.

        `past` may be gone meanwhile; without it, counted from the first. Reads `count` entries of an index.
        """
