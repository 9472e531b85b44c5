"""The default dispatcher: nothing but the worker's own look every second, and at once for its own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from stepwell.storage import news
from stepwell.storage.built_in_storage import BuiltInStorage


class Polling:
    """Needs nothing but the store, and works on all of them."""

    async def listen(self, storage: BuiltInStorage, wake: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def wake_loop() -> None:
            with suppress(RuntimeError):  # the loop is closed, and the worker with it
                loop.call_soon_threadsafe(wake)

        with news.listening(storage._store, wake_loop):
            await asyncio.Event().wait()
