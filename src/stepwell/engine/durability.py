"""Commits that are stored shortly after they are made: `durability="async"` and `"exit"`.

With `sync`, the default, a commit is made when it is stored, and nothing here is used.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, cast

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.message import Outcome
from stepwell.storage.archive import Archive

Durability = Literal["sync", "async", "exit"]
"""What a crash may lose: nothing; the latest commit; all commits since the last pause."""

LEVELS: tuple[Durability, ...] = ("sync", "async", "exit")


def archive_at(level: Durability, archive: Archive | None) -> Archive | None:
    """Return the archive to use at a level of durability."""
    if archive is None or level == "sync":
        return archive
    # It forwards what it does not define (`__getattr__`), which the type checker cannot see.
    return cast(Archive, DeferredArchive(archive, 1 if level == "async" else None))


class DeferredArchive:
    """An archive that stores commits in order, in the background, at most `most` at a time (None: at `flush`).

    A commit that could not be stored is raised by the next commit, or by `flush`.
    """

    unbroken = False

    def __init__(self, archive: Archive, most: int | None) -> None:
        self._archive, self._most = archive, most
        self._waiting: list[tuple[Commit, Checkpoint, dict[str, Any]]] = []
        self._storing: asyncio.Task[None] | None = None
        # Several handlers may call `flush` at once.
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def commit(self, commit: Commit, after: Checkpoint, **effects: Any) -> None:
        """Queue a commit; with a limit, wait first until everything before it is stored."""
        if self._most is not None:
            await self.flush()
        self._waiting.append((commit, after, effects))
        if self._most is not None:
            self._storing = asyncio.create_task(self._store())

    async def log_outcome(self, run_id: str, place: int, outcome: Outcome) -> None:
        """Store an outcome, unless its superstep exists in memory only (`exit`) and no resume could find it."""
        if self._most is not None:
            await self._archive.log_outcome(run_id, place, outcome)

    async def flush(self) -> None:
        """Store everything that is queued."""
        async with self._turn:
            storing, self._storing = self._storing, None
            if storing is not None:
                # Not `await storing`: a cancellation of the caller must not cancel the write.
                await asyncio.wait([storing])
                storing.result()
            await self._store()

    async def _store(self) -> None:
        while self._waiting:
            commit, after, effects = self._waiting[0]
            await self._archive.commit(commit, after, **effects)
            # Only now: a commit that failed stays first in the queue, and nothing is stored past it.
            del self._waiting[0]


async def flush(archive: Archive | None) -> None:
    """Return when every commit is stored, at any level of durability."""
    target: object = archive
    if isinstance(target, DeferredArchive):
        await target.flush()
