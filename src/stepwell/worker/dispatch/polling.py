"""The default dispatcher: the worker looks every second, and at once if the store or its own process says so."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from stepwell.storage import news
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker.dispatch.protocol import HintReceiver


class Polling:
    """Needs nothing but the store, and works on all of them. PostgreSQL notifies it."""

    async def check(self, storage: BuiltInStorage) -> None:
        """Do nothing: every store will do."""

    async def listen(self, storage: BuiltInStorage, worker: HintReceiver) -> None:
        loop = asyncio.get_running_loop()

        def wake(run_id: str) -> None:
            with suppress(RuntimeError):  # the loop is closed, and the worker with it
                loop.call_soon_threadsafe(worker.wake)

        with news.listening(storage._store, wake):
            if storage._notifications is None:
                await asyncio.Event().wait()
            else:
                await storage._notifications.listen(worker.wake)
