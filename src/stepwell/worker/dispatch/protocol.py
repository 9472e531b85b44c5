"""What a worker and its dispatcher need of each other."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from stepwell.storage.built_in_storage import BuiltInStorage


class HintReceiver(Protocol):
    """What a worker offers to its dispatcher."""

    name: str
    slots: int

    @property
    def workflows(self) -> Collection[str]:
        """The names of the workflows whose runs it drives."""

    def wake(self) -> None:
        """Look at the store soon: some run may be ready."""

    async def drive_run(self, run_id: str) -> None:
        """Drive a run, if it is ready and nobody drives it; return when the worker has let it go.

        Waits for a free slot first. What goes wrong in the run is not raised.
        """

    def assigning(self) -> AbstractContextManager[None]:
        """Inside the block, leave new and answered runs to `drive_run` for a moment.

        After that moment the hint counts as lost, and the worker that sees the run takes it.
        """


class WorkerDispatcher(Protocol):
    """Makes workers look at a store soon after something has happened in it."""

    async def check(self, storage: BuiltInStorage) -> None:
        """Raise DefinitionError if it cannot work with that storage, and StoreUnavailable if its server is away."""

    async def listen(self, storage: BuiltInStorage, worker: HintReceiver) -> None:
        """Pass hints to a worker, until cancelled.

        Raises StoreUnavailable if what it listens to is away; the worker logs that, looks at the
        store by itself meanwhile, and calls this again.
        """
