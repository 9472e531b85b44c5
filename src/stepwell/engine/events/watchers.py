"""Connects the drives of this process with those who watch a run or want to cancel it.

Across processes a run is followed by reading its history; inside one, events arrive at once.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, Self

from stepwell.model.event import WorkflowEvent
from stepwell.storage.archive import Archive
from stepwell.storage.posix import call_after_process_fork

# Batches that a slow reader may leave unread; it reads older ones from the history.
_AT_MOST = 1000


class Driver(Protocol):
    """A drive, as its watchers see it."""

    def cancel(self, *, by: str | None = None, reason: str | None = None) -> None: ...
    async def read_to_end(self) -> None: ...


Key = tuple[int, str]
"""A run and its store: two stores may hold runs with the same id."""


def key_of(archive: Archive, run_id: str) -> Key:
    return id(archive.where), run_id


@dataclass(frozen=True, slots=True)
class EmittedEvents:
    """The events of one commit, or one live event between two commits.

    Without events it means that a drive has ended, and watchers should look at the history again.
    """

    # The number of the commit before it.
    after: int
    events: Sequence[WorkflowEvent] = ()
    # The number of the commit; None for a live event.
    number: int | None = None


class Watcher:
    """Receives what the drives of this process emit for a run, until it is closed."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._received: deque[EmittedEvents] = deque(maxlen=_AT_MOST)
        self._news = asyncio.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        WATCHERS.setdefault(key, set()).add(self)

    def receive(self, emitted: EmittedEvents) -> None:
        """Add a batch, from any thread. Events are copied: each reader decodes its own data."""
        mine = replace(emitted, events=[copy.copy(event) for event in emitted.events])
        if threading.get_ident() == self._thread:
            self._add(mine)
        else:
            # The loop is closed, and the watcher with it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._add, mine)

    async def next(self, patience: float) -> EmittedEvents | None:
        """Return the next batch; None if there was none for that many seconds."""
        if not self._received:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._news.wait()
        return self._received.popleft() if self._received else None

    def close(self) -> None:
        watchers = WATCHERS.get(self._key, set())
        watchers.discard(self)
        if not watchers:
            WATCHERS.pop(self._key, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _add(self, emitted: EmittedEvents) -> None:
        self._received.append(emitted)
        self._news.set()


# Means: look at the history again.
LOOK_AGAIN = EmittedEvents(-1)

# A drive and its watchers know nothing of each other: they meet here, by run and store.
WATCHERS: dict[Key, set[Watcher]] = {}
_DRIVES: dict[Key, tuple[Driver, asyncio.AbstractEventLoop]] = {}


def publish(key: Key, emitted: EmittedEvents) -> None:
    for watcher in list(WATCHERS.get(key, ())):
        watcher.receive(emitted)


def register_drive(key: Key, drive: Driver) -> None:
    """Register a drive of this event loop."""
    _DRIVES[key] = drive, asyncio.get_running_loop()


def unregister_drive(key: Key, drive: Driver) -> None:
    if _DRIVES.get(key, (None,))[0] is drive:
        del _DRIVES[key]


def local_drive(key: Key) -> Driver | None:
    """Return the drive of this process that moves the run; None if there is none."""
    drive, loop = _DRIVES.get(key, (None, None))
    # A drive whose loop was closed never ends.
    return None if loop is None or loop.is_closed() else drive


def _forget_all() -> None:
    """Forget everything in a forked child: watchers and drives belong to the parent."""
    WATCHERS.clear()
    _DRIVES.clear()


call_after_process_fork(_forget_all)
