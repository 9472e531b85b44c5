"""Reads live events for all streams of this process together: one query for all the runs that they watch.

It looks when the store says that something was written, and otherwise from time to time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.storage.live_ring import WATCH_EVERY, LiveRing

LOOK_EVERY = 0.1  # seconds between two looks, if the store does not say when to
LOOK_ANYWAY = 1.0  # seconds between two looks, if it does: a notification may get lost
_AGAIN = 1.0  # seconds between two attempts to reach a store that is away
_UNREAD = 1000  # events that a slow stream may leave unread; older ones are missed


class LiveWatcher:
    """What a stream has not read yet of the live events of a run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._bodies: deque[bytes] = deque(maxlen=_UNREAD)
        self._has_some = asyncio.Event()

    def receive(self, body: bytes) -> None:
        self._bodies.append(body)
        self._has_some.set()

    async def next(self) -> bytes:
        """Return the next event, when there is one."""
        await self._has_some.wait()
        body = self._bodies.popleft()
        if not self._bodies:
            self._has_some.clear()
        return body


class LiveReader:
    """Says which runs are watched here, and hands out what the ring gets of them."""

    def __init__(self, ring: LiveRing) -> None:
        self._ring = ring
        self._watchers: dict[str, set[LiveWatcher]] = {}  # by run
        self._positions: dict[str, int] = {}  # of the last event that was read, by run
        self._watched_at = 0.0  # monotonic
        self._woken = asyncio.Event()
        self._tasks = [asyncio.create_task(work) for work in (self._listen(), self._read_all())]

    def add(self, watcher: LiveWatcher) -> None:
        self._watchers.setdefault(watcher.run_id, set()).add(watcher)
        self._woken.set()

    def remove(self, watcher: LiveWatcher) -> bool:
        """Stop watching; return whether it was the last one, and reading has ended."""
        of_run = self._watchers[watcher.run_id]
        of_run.remove(watcher)
        if not of_run:
            del self._watchers[watcher.run_id]
            self._positions.pop(watcher.run_id, None)
        if not self._watchers:
            for task in self._tasks:
                task.cancel()
        return not self._watchers

    async def _listen(self) -> None:
        while self._ring.notifies:
            with suppress(StoreUnavailable):  # it is looked at anyway
                await self._ring.listen("written", self._woken.set)
            await asyncio.sleep(_AGAIN)

    async def _read_all(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._watch()
                await self._read()
            except DurabilityError:  # no run depends on it, and every other query of the server reports it
                self._positions.clear()  # the ring may be another one afterwards
                await asyncio.sleep(_AGAIN)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_ANYWAY if self._ring.notifies else LOOK_EVERY):
                    await self._woken.wait()

    async def _watch(self) -> None:
        """Say which runs are watched, at once for new ones."""
        new = self._watchers.keys() - self._positions.keys()
        if not new and time.monotonic() - self._watched_at < WATCH_EVERY:
            return
        self._watched_at = time.monotonic()
        position = await self._ring.watch([*self._watchers])
        # What was written before this is not asked for.
        self._positions.update(dict.fromkeys(new & self._watchers.keys(), position))

    async def _read(self) -> None:
        for row in await self._ring.read(dict(self._positions)):
            if row.run_id in self._positions:
                self._positions[row.run_id] = row.position
                for watcher in self._watchers.get(row.run_id, ()):
                    watcher.receive(row.body)


_READERS: dict[tuple[LiveRing, asyncio.AbstractEventLoop], LiveReader] = {}


@contextmanager
def watching(ring: LiveRing, run_id: str) -> Iterator[LiveWatcher]:
    """Watch a run inside the block. All who watch a store in an event loop share one reader."""
    key = ring, asyncio.get_running_loop()
    watcher = LiveWatcher(run_id)
    reader = _READERS.get(key)
    if reader is None:
        reader = _READERS[key] = LiveReader(ring)
    reader.add(watcher)
    try:
        yield watcher
    finally:
        if reader.remove(watcher):
            del _READERS[key]
