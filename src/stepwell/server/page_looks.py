"""Reads pages of the list of runs for the streams that follow them: each page once a second, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from stepwell.errors import StoreUnavailable
from stepwell.server.run_items import RunPage

_LOOK_EVERY = 1.0  # seconds

QueryT = TypeVar("QueryT", bound=msgspec.Struct)


class _SharedLook:
    """The next time that a page is read."""

    def __init__(self, task: asyncio.Task[RunPage | None]) -> None:
        self.task, self.waiting = task, 0


class PageLooks(Generic[QueryT]):
    """The pages that are followed, by their queries."""

    def __init__(self, read: Callable[[QueryT], Awaitable[RunPage]]) -> None:
        self._read = read
        self._looks: dict[bytes, _SharedLook] = {}

    async def follow(self, query: QueryT) -> AsyncGenerator[RunPage, None]:
        """Yield a page as it is now, and then as it is every second, unless the store is away."""
        with suppress(StoreUnavailable):
            yield await self._read(query)
        while True:
            if (page := await self._look(query)) is not None:
                yield page

    async def _look(self, query: QueryT) -> RunPage | None:
        key = msgspec.json.encode(query)
        look = self._looks.get(key)
        if look is None or look.task.done():
            look = self._looks[key] = _SharedLook(asyncio.create_task(self._read_at_next_second(query)))
        look.waiting += 1
        try:
            return await asyncio.shield(look.task)
        finally:
            look.waiting -= 1
            if not look.waiting:  # nobody wants it any more: a closed store must not be opened again
                look.task.cancel()
                if self._looks.get(key) is look:
                    del self._looks[key]

    async def _read_at_next_second(self, query: QueryT) -> RunPage | None:
        now = asyncio.get_running_loop().time()
        await asyncio.sleep((now // _LOOK_EVERY + 1) * _LOOK_EVERY - now)
        try:
            return await self._read(query)
        except StoreUnavailable:
            return None
