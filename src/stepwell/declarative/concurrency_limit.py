"""A limit on concurrent calls of one node, for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary


class ConcurrencyLimit:
    """Limits the concurrent calls of a node, for each event loop; None means no limit."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        # A semaphore belongs to one event loop, and a workflow object may be used in several, one
        # after the other. Weak keys let closed loops go.
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a free slot and hold it."""
        if self._limit is None:
            yield
            return
        semaphore = self._semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._limit))
        async with semaphore:
            yield
