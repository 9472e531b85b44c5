"""Commits that are stored shortly after they are made: `durability="async"` and `"exit"`.

With `sync`, the default, a commit is made when it is stored, and nothing here is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal

from stepwell.model.checkpoint import Checkpoint, Retention
from stepwell.model.child import Child
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.model.log_keys import LogEntry
from stepwell.model.message import Outcome
from stepwell.model.payload import Pack
from stepwell.model.signal import Signal
from stepwell.storage.archive import Archive, StoredRun
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.lease import Owner
from stepwell.storage.run_list import RunInfo
from stepwell.storage.stored_values import LeaseReport
from stepwell.storage.transactions import Transaction

Durability = Literal["sync", "async", "exit"]
"""What a crash may lose: nothing; the latest commit; all commits since the last pause."""

LEVELS: tuple[Durability, ...] = ("sync", "async", "exit")


def archive_at(level: Durability, archive: Archive) -> Archive:
    """Return the archive to use at a level of durability."""
    return archive if level == "sync" else DeferredArchive(archive, 1 if level == "async" else None)


class DeferredArchive:
    """An archive that stores commits in order, in the background, at most `most` at a time (None: at `flush`).

    A commit that could not be stored is raised by the next commit, or by `flush`. With None, outcomes are stored by
    `flush` too: unless a commit contains them before.
    """

    def __init__(self, archive: Archive, most: int | None) -> None:
        self._archive, self._most = archive, most
        self._waiting: list[Callable[[], Awaitable[None]]] = []  # commits to be stored, oldest first
        self._outcomes: list[Callable[[], Awaitable[None]]] = []  # of the superstep after them
        self._over = -1  # the place of the latest superstep that a commit has ended
        self._storing: asyncio.Task[None] | None = None
        # Several handlers may call `flush` at once.
        self._turn = asyncio.Lock()

    async def commit(
        self,
        commit: Commit,
        after: Checkpoint,
        *,
        before: Checkpoint | None = None,
        drop_log_through: int | None = None,
        consumed: tuple[str, ...] = (),
        release: bool = False,
    ) -> None:
        """Queue a commit; with a limit, wait first until everything before it is stored."""
        store = partial(
            self._archive.commit,
            commit,
            after,
            before=before,
            drop_log_through=drop_log_through,
            consumed=consumed,
            release=release,
        )
        if drop_log_through is None:
            self._queue_outcomes()  # the superstep is not over: a resume recalls them
        else:
            self._outcomes.clear()
            self._over = drop_log_through
        if self._most is None:
            self._waiting.append(store)
        else:
            await finish(self._store_next(store))

    async def _store_next(self, store: Callable[[], Awaitable[None]]) -> None:
        await self.flush()
        self._waiting.append(store)
        self._storing = asyncio.create_task(self._store())

    async def log_outcome(self, at: Checkpoint, outcome: Outcome, *, closed: Sequence[str] = ()) -> None:
        """Store an outcome: with `exit` at the next flush, unless people can answer other requests from now on."""
        if at.place <= self._over:
            return  # the commit contains it
        store = partial(self._archive.log_outcome, at, outcome, closed=closed)
        changes_requests = bool(outcome.requests or closed)
        if self._most is not None and not changes_requests:
            await store()
            return
        self._outcomes.append(store)
        if changes_requests:
            # A request must not be listed before the commit that led to it is stored.
            await self.flush()

    async def flush(self) -> None:
        """Store everything that is queued."""
        async with self._turn:
            storing, self._storing = self._storing, None
            if storing is not None:
                # Not `await storing`: a cancellation of the caller must not cancel the write.
                await asyncio.wait([storing])
                storing.result()
            self._queue_outcomes()
            await self._store()

    def _queue_outcomes(self) -> None:
        self._waiting += self._outcomes
        self._outcomes.clear()

    async def _store(self) -> None:
        while self._waiting:
            await self._waiting[0]()
            # Only now: a commit that failed stays first in the queue, and nothing is stored past it.
            del self._waiting[0]

    # ---------------------------------------------------------------- passed on unchanged

    @property
    def is_durable(self) -> bool:
        return self._archive.is_durable

    @property
    def shortcomings(self) -> str | None:
        return self._archive.shortcomings

    @property
    def has_superstep_log(self) -> bool:
        return self._archive.has_superstep_log

    @property
    def completes_log_writes(self) -> bool:
        return False  # a request waits for the commits before it

    @property
    def retention(self) -> Retention:
        return self._archive.retention

    @property
    def lease(self) -> float:
        return self._archive.lease

    @property
    def pack(self) -> Pack:
        return self._archive.pack

    @property
    def where(self) -> object:
        return self._archive.where

    @property
    def needed(self) -> int | None:
        return self._archive.needed

    async def open(self, run_id: str, owner: Owner) -> StoredRun:
        return await self._archive.open(run_id, owner)

    async def head(self, run_id: str) -> Checkpoint | None:
        return await self._archive.head(run_id)

    async def look(self, run_id: str) -> StoredRun:
        return await self._archive.look(run_id)

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        return await self._archive.find(checkpoint_id)

    async def submit(self, commit: Commit, after: Checkpoint) -> bool:
        return await self._archive.submit(commit, after)

    async def send(self, run_id: str, key: str, signal: Signal, *, as_driver: bool = False) -> bool:
        return await self._archive.send(run_id, key, signal, as_driver=as_driver)

    async def pending_signals(self, run_id: str) -> Mapping[str, Signal]:
        return await self._archive.pending_signals(run_id)

    async def output_commits(self, checkpoint: Checkpoint) -> Sequence[tuple[str, Commit]]:
        return await self._archive.output_commits(checkpoint)

    async def run_info(self, run_id: str) -> RunInfo | None:
        return await self._archive.run_info(run_id)

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        return await self._archive.checkpoints(run_id)

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        return await self._archive.commits(run_id, after=after)

    async def copy_children_for_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        return await self._archive.copy_children_for_fork(source, run_id)

    async def log_entry(
        self,
        at: Checkpoint,
        key: str,
        entry: LogEntry,
        *,
        closed: Sequence[str] = (),
        consumed: Sequence[str] = (),
    ) -> None:
        # A request must not be listed before the commit that led to it is stored.
        if entry.request is not None:
            await self.flush()
        await self._archive.log_entry(at, key, entry, closed=closed, consumed=consumed)

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        return self._archive.transaction(run_id, place, key)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self._archive.renew(fences, seconds=seconds)

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self._archive.release(run_id, owner, stalls=stalls)
