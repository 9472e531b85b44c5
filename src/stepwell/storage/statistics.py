"""How much a store holds: for monitoring. A protocol of its own, beside the six of the port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec


class StoreStatistics(msgspec.Struct, frozen=True):
    """How much a store holds at one moment. Runs of sub-workflows are not counted: their callers are."""

    runs: Mapping[str, int]  # by status
    open_requests: int


@runtime_checkable
class Statistics(Protocol):
    """What a store implements that can be monitored."""

    async def statistics(self) -> StoreStatistics:
        """Count runs and requests. The cost grows with the number of runs; no body is read."""
