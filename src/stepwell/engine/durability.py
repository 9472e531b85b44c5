"""Commits that are stored a little later than they are made: `durability="async"` and `"exit"`.

`sync` needs nothing of this: there a commit is made when it is stored.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, cast

from stepwell.model.superstep import Checkpoint, Commit, Outcome
from stepwell.storage.archive import Archive

Durability = Literal["sync", "async", "exit"]
"""How much may be lost: nothing; what was committed last; what was committed since the last pause."""

LEVELS: tuple[Durability, ...] = ("sync", "async", "exit")


def archive_at(level: Durability, archive: Archive | None) -> Archive | None:
    """The archive at a level of durability."""
    if archive is None or level == "sync":
        return archive
    return cast(Archive, DeferredArchive(archive, 1 if level == "async" else None))


class DeferredArchive:
    """An archive whose commits are stored in order behind the one who makes them, at most `most` of them at a time.

    What could not be stored is raised by the next commit, or by `settle`.
    """

    unbroken = False

    def __init__(self, archive: Archive, most: int | None) -> None:
        self._archive, self._most = archive, most
        self._waiting: list[tuple[Commit, Checkpoint, dict[str, Any]]] = []
        self._storing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # several handlers may want it settled at once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def commit(self, commit: Commit, after: Checkpoint, **effects: Any) -> None:
        """Store it later; waits while too much is waiting already."""
        if self._most is not None:
            await self.settle()
        self._waiting.append((commit, after, effects))
        if self._most is not None:
            self._storing = asyncio.create_task(self._store())

    async def log_outcome(self, run_id: str, place: int, outcome: Outcome) -> None:
        """Kept only where the superstep it belongs to can be found again."""
        if self._most is not None:
            await self._archive.log_outcome(run_id, place, outcome)

    async def settle(self) -> None:
        """Store everything that is waiting; when it returns, nothing is."""
        async with self._turn:
            storing, self._storing = self._storing, None
            if storing is not None:
                await asyncio.wait([storing])
                storing.result()
            await self._store()

    async def _store(self) -> None:
        while self._waiting:
            commit, after, effects = self._waiting[0]
            await self._archive.commit(commit, after, **effects)
            del self._waiting[0]


async def settle(archive: Archive | None) -> None:
    """What was committed is stored, at whatever level."""
    target: object = archive
    if isinstance(target, DeferredArchive):
        await target.settle()
