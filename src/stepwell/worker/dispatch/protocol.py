"""What a worker needs of a dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stepwell.storage.built_in_storage import BuiltInStorage


class WorkerDispatcher(Protocol):
    """Makes workers look at a store soon after something has happened in it."""

    async def listen(self, storage: BuiltInStorage, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a run may have become ready, until cancelled.

        Raises StoreUnavailable if what it listens to is away; the worker logs that, looks at the
        store by itself meanwhile, and calls this again.
        """
