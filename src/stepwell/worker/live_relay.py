"""Passes live events of the runs that a worker drives to those who watch them in other processes.

A run that nobody watches costs nothing. Who watches is asked once for all runs: when the store says
that somebody does, and every few seconds anyway; if it cannot say so, every half second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import msgspec

from stepwell.admin.event_documents import event_to_dict
from stepwell.engine.events.watchers import EmittedEvents, Watcher
from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.live_ring import KEPT, LiveRing

_LOOK_EVERY = 0.5  # seconds between two looks at who watches, if the store does not say it
_LOOK_ANYWAY = 4.0  # the same if it does: a notification may get lost, and poolers pass none on
_AGAIN = 1.0  # seconds between two attempts to listen
_TOGETHER = 0.03  # seconds in which events of all runs share a write, after one that was written at once
_MOST = 500  # events that are written together
_LONGEST = 65_536  # bytes of one event; of a longer one its data are left out


async def relay_live(storage: BuiltInStorage) -> None:
    """Relay the live events of the runs that somebody watches and this process drives, until cancelled."""
    if storage._live is not None:
        await LiveRelay(storage, storage._live).serve()


class LiveRelay:
    """Watches the drives of this process for those who cannot, and writes what they emit into the ring."""

    def __init__(self, storage: BuiltInStorage, ring: LiveRing) -> None:
        self._storage, self._ring = storage, ring
        self._watching: dict[str, asyncio.Task[None]] = {}  # by run
        self._events: deque[tuple[str, bytes]] = deque(maxlen=KEPT)  # that are not written yet
        self._has_watchers, self._has_events = asyncio.Event(), asyncio.Event()

    async def serve(self) -> None:
        """Relay until cancelled."""
        aside = [asyncio.create_task(work) for work in (self._listen(), self._write())]
        try:
            while True:
                await self._wait_for_watchers()
                await self._look()
        finally:
            for task in (*aside, *self._watching.values()):
                task.cancel()

    async def _wait_for_watchers(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_ANYWAY if self._ring.notifies else _LOOK_EVERY):
                await self._has_watchers.wait()
        self._has_watchers.clear()

    async def _look(self) -> None:
        """Watch the runs that somebody else watches, and no others."""
        wanted = frozenset[str]()
        with suppress(DurabilityError):  # nobody sees live events while the store is away
            wanted = await self._ring.watched()
        for run_id in wanted - self._watching.keys():
            self._watching[run_id] = asyncio.create_task(self._collect(run_id))
        for run_id in self._watching.keys() - wanted:
            self._watching.pop(run_id).cancel()

    async def _listen(self) -> None:
        while True:
            with suppress(StoreUnavailable):
                await self._ring.listen("watched", self._has_watchers.set)
            await asyncio.sleep(_AGAIN)

    async def _collect(self, run_id: str) -> None:
        """Take what the drives of a run emit, until cancelled."""
        with Watcher((id(self._storage._store), run_id)) as watcher:
            while True:
                emitted = await watcher.next(_AGAIN)
                if emitted is not None:
                    self._events.extend((run_id, body) for body in _encode(emitted))
                    if self._events:
                        self._has_events.set()

    async def _write(self) -> None:
        """Write the events of all runs, those of a moment together, until cancelled."""
        while True:
            await self._has_events.wait()
            together = [self._events.popleft() for _ in range(min(len(self._events), _MOST))]
            if not self._events:
                self._has_events.clear()
            with suppress(DurabilityError):  # what is missed is missed
                await self._ring.write(together)
            await asyncio.sleep(_TOGETHER)


def _encode(emitted: EmittedEvents) -> list[bytes]:
    bodies = []
    for event in emitted.events:
        if event.durable or event.type == "checkpoint":
            continue
        # The handler call tells which commit makes a live text durable.
        document = {**event_to_dict(event, clock.stamp()), "delivery": event.delivery}
        body = msgspec.json.encode(document)
        if len(body) > _LONGEST:
            body = msgspec.json.encode({**document, "data": None})
        bodies.append(body)
    return bodies
