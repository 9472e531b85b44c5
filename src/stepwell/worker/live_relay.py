"""Passes live events of the runs that a worker drives to those who watch them in other processes.

A run that nobody watches costs nothing. Whether somebody does is asked once for all runs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from stepwell.admin.event_documents import event_to_dict
from stepwell.engine.watchers import EmittedEvents, Watcher
from stepwell.errors import DurabilityError
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.live_ring import LiveRing

_LOOK_EVERY = 0.5  # seconds between two looks at who watches
_TOGETHER = 0.03  # seconds in which events are written together
_MOST = 500  # events that are written together
_LONGEST = 65_536  # bytes of one event; of a longer one its data are left out


async def relay_live(storage: BuiltInStorage) -> None:
    """Relay the live events of the runs that somebody watches and this process drives, until cancelled."""
    ring = storage._live
    if ring is None:
        return
    relays: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            wanted = frozenset[str]()
            with suppress(DurabilityError):  # nobody sees live events while the store is away
                wanted = await ring.watched()
            for run_id in wanted - relays.keys():
                relays[run_id] = asyncio.create_task(_relay(ring, storage, run_id))
            for run_id in relays.keys() - wanted:
                relays.pop(run_id).cancel()
            await asyncio.sleep(_LOOK_EVERY)
    finally:
        for task in relays.values():
            task.cancel()


async def _relay(ring: LiveRing, storage: BuiltInStorage, run_id: str) -> None:
    with Watcher((id(storage._store), run_id)) as watcher:
        while True:
            emitted = await watcher.next(_LOOK_EVERY)
            if emitted is None:
                continue
            await asyncio.sleep(_TOGETHER)
            bodies = [*_encode(emitted)]
            while len(bodies) < _MOST and (more := await watcher.next(0)) is not None:
                bodies += _encode(more)
            if bodies:
                with suppress(DurabilityError):
                    await ring.write(run_id, bodies)


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
