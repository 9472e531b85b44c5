"""Work on large values leaves the event loop: their records are built and protected in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

# Bytes. So much takes the event loop milliseconds; a change of threads takes a tenth of one.
LARGE_WORK = 1 << 20

T = TypeVar("T")


async def build_in_thread(build: Callable[[], T], store: Callable[[T], Awaitable[object]]) -> T:
    """Build something large in a thread, store it, and return it.

    A cancellation that arrives meanwhile is raised once it is stored: a commit that has started is
    finished.
    """
    import asyncio  # lazy: a program that only reads a store does not load it

    from stepwell.storage.cancellation_shield import finish  # lazy: it imports asyncio

    async def build_and_store() -> T:
        built = await asyncio.to_thread(build)
        await store(built)
        return built

    return await finish(build_and_store())
