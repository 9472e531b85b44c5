"""The live ring: how live events of a run reach other processes, for those who watch it now.

A protocol of its own, beside the six of the port. Nothing in it is durable: the ring is small, it
may lose everything at any moment, and no run depends on it. Who watches a run says so here, again
and again; the process that drives the run finds that, and writes only then.

A store that can notify says when somebody watches, and when something was written; both are hints,
and one that gets lost costs the time until the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

WATCHED_FOR = 5.0  # seconds for which a watcher counts after it was last seen
WATCH_EVERY = 2.0  # seconds after which it says again that it watches
KEPT = 5000  # events of all runs, at most about

Occasion = Literal["watched", "written"]
"""What a ring notifies of: somebody watches runs; events were written."""


class LiveRow(msgspec.Struct, frozen=True):
    """A live event as it stands in the ring."""

    run_id: str
    position: int
    body: bytes


class LiveRing(Protocol):
    """A ring of live events, of all runs of a store. Each method raises StoreUnavailable if it cannot be reached."""

    notifies: bool
    """Whether `listen` hears of other processes. If not, somebody who waits has to look."""

    async def watch(self, run_ids: Collection[str]) -> int:
        """Say that somebody watches these runs, and return the position of the newest event."""

    async def watched(self) -> frozenset[str]:
        """Return the runs that somebody watches."""

    async def write(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Add events, each with the id of its run; old ones of all runs make room."""

    async def read(self, after: Mapping[str, int]) -> list[LiveRow]:
        """Return the events of several runs, each behind a position, in their order."""

    async def listen(self, occasion: Occasion, wake: Callable[[], None]) -> None:
        """Call `wake` whenever that may have happened in any process, until cancelled."""


@runtime_checkable
class LiveStore(Protocol):
    """What a store implements whose live events reach other processes."""

    def live_ring(self) -> LiveRing:
        """Return the ring of the store. Nothing is created before somebody watches."""
