"""Who in this process watches a run, and who drives it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ..core.events import WorkflowEvent
from ..durable.archive import Archive


class Driver(Protocol):
    """Whoever moves a run, as far as those who watch it need to know."""

    def cancel(self) -> None: ...
    def stop(self) -> None: ...


Key = tuple[int, str]
"""A run and where it is kept: two storages may hold runs of one name."""


def key_of(archive: Archive, run_id: str) -> Key:
    return id(archive.where), run_id


@dataclass(frozen=True, slots=True)
class Told:
    """All that a commit tells, or, without a number, something that happens between two commits."""

    number: int | None
    events: Sequence[WorkflowEvent]


class Watcher:
    """Hears what the drives of this process tell of a run, from now on until it is closed."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._queue: asyncio.Queue[Told] = asyncio.Queue()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        _WATCHERS.setdefault(key, set()).add(self)

    def hear(self, told: Told) -> None:
        if threading.get_ident() == self._thread:
            self._queue.put_nowait(told)
        else:
            with suppress(RuntimeError):  # whoever watched is gone with the loop
                self._loop.call_soon_threadsafe(self._queue.put_nowait, told)

    async def next(self, patience: float) -> Told | None:
        """What was told next; None if nothing was for so many seconds."""
        try:
            async with asyncio.timeout(patience):
                return await self._queue.get()
        except TimeoutError:
            return None

    def empty(self) -> bool:
        return self._queue.empty()

    def close(self) -> None:
        watchers = _WATCHERS.get(self._key, set())
        watchers.discard(self)
        if not watchers:
            _WATCHERS.pop(self._key, None)


_WATCHERS: dict[Key, set[Watcher]] = {}
_DRIVES: dict[Key, Driver] = {}


def publish(key: Key, told: Told) -> None:
    for watcher in list(_WATCHERS.get(key, ())):
        watcher.hear(told)


def is_watched(key: Key) -> bool:
    return key in _WATCHERS


def begun(key: Key, drive: Driver) -> None:
    """A drive of this process moves the run."""
    _DRIVES[key] = drive


def ended(key: Key, drive: Driver) -> None:
    if _DRIVES.get(key) is drive:
        del _DRIVES[key]


def local_drive(key: Key) -> Driver | None:
    """The drive of this process that moves the run, if one does."""
    return _DRIVES.get(key)
