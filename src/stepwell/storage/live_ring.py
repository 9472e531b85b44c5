"""The live ring: how live events of a run reach other processes, for those who watch it now.

A protocol of its own, beside the six of the port. Nothing in it is durable: the ring is small, it
may lose everything at any moment, and no run depends on it. Who watches a run says so here, again
and again; the process that drives the run finds that, and writes only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

WATCHED_FOR = 5.0  # seconds for which a watcher counts after it was last seen
KEPT = 5000  # events of all runs, at most about


class LiveRow(msgspec.Struct, frozen=True):
    """A live event as it stands in the ring."""

    position: int
    body: bytes


class LiveRing(Protocol):
    """A ring of live events, of all runs of a store. Each method raises StoreUnavailable if it cannot be reached."""

    async def watch(self, run_id: str) -> None:
        """Say that somebody watches a run."""

    async def watched(self) -> frozenset[str]:
        """Return the runs that somebody watches."""

    async def write(self, run_id: str, bodies: Sequence[bytes]) -> None:
        """Add events of a run; old ones of all runs make room."""

    async def read(self, run_id: str, after: int) -> list[LiveRow]:
        """Return the events of a run behind a position."""

    async def last(self) -> int:
        """Return the position of the newest event."""


@runtime_checkable
class LiveStore(Protocol):
    """What a store implements whose live events reach other processes."""

    def live_ring(self) -> LiveRing:
        """Return the ring of the store. Nothing is created before somebody watches."""
