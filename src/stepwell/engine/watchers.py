"""Who in this process watches a run, and who drives it."""

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
from stepwell.storage.system import call_in_forked_child

_AT_MOST = 1000  # what a reader that is slower than the run leaves unread; it finds the rest in the history


class Driver(Protocol):
    """Whoever moves a run, as far as those who watch it need to know."""

    def cancel(self) -> None: ...
    async def read_to_end(self) -> None: ...


Key = tuple[int, str]
"""A run and where it is kept: two storages may hold runs of one name."""


def key_of(archive: Archive, run_id: str) -> Key:
    return id(archive.where), run_id


@dataclass(frozen=True, slots=True)
class EmittedEvents:
    """All that a commit tells, or something that happens between two commits.

    Without events it says that a drive has ended: whoever watches looks again.
    """

    after: int  # the commit before it
    events: Sequence[WorkflowEvent] = ()
    number: int | None = None  # of the commit that tells it; None: between two


class Watcher:
    """Hears what the drives of this process tell of a run, from now on until it is closed."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._received: deque[EmittedEvents] = deque(maxlen=_AT_MOST)  # the oldest go first: they are in the history
        self._news = asyncio.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        _WATCHERS.setdefault(key, set()).add(self)

    def receive(self, emitted: EmittedEvents) -> None:
        """From any thread. The events are copied: what one reader makes of their data, no other sees."""
        mine = replace(emitted, events=[copy.copy(event) for event in emitted.events])
        if threading.get_ident() == self._thread:
            self._add(mine)
        else:
            with suppress(RuntimeError):  # whoever watched is gone with the loop
                self._loop.call_soon_threadsafe(self._add, mine)

    async def next(self, patience: float) -> EmittedEvents | None:
        """What was told next; None if nothing was for so many seconds."""
        if not self._received:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._news.wait()
        return self._received.popleft() if self._received else None

    def close(self) -> None:
        watchers = _WATCHERS.get(self._key, set())
        watchers.discard(self)
        if not watchers:
            _WATCHERS.pop(self._key, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _add(self, emitted: EmittedEvents) -> None:
        self._received.append(emitted)
        self._news.set()


LOOK_AGAIN = EmittedEvents(-1)

_WATCHERS: dict[Key, set[Watcher]] = {}
_DRIVES: dict[Key, tuple[Driver, asyncio.AbstractEventLoop]] = {}


def publish(key: Key, emitted: EmittedEvents) -> None:
    for watcher in list(_WATCHERS.get(key, ())):
        watcher.receive(emitted)


def is_watched(key: Key) -> bool:
    return key in _WATCHERS


def register_drive(key: Key, drive: Driver) -> None:
    """A drive of this process and this event loop moves the run."""
    _DRIVES[key] = drive, asyncio.get_running_loop()


def unregister_drive(key: Key, drive: Driver) -> None:
    if _DRIVES.get(key, (None,))[0] is drive:
        del _DRIVES[key]


def local_drive(key: Key) -> Driver | None:
    """The drive of this process that moves the run, if one does."""
    drive, loop = _DRIVES.get(key, (None, None))
    return None if loop is None or loop.is_closed() else drive  # closed over its head: it will never end


def _forget_all() -> None:
    """In a forked child: those who watch and drive are the parent's."""
    _WATCHERS.clear()
    _DRIVES.clear()


call_in_forked_child(_forget_all)
