"""Codec and store put together: commits in, checkpoints out. What the runtime knows of durability.

A run is stored as frames, which say everything, and between them records that say only what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..core.errors import CheckpointCorrupt
from ..core.model import Checkpoint, Commit, Outcome, RunHeader
from ..core.request import Request
from ..kernel.history import apply, whole
from .codec import Codec
from .ownership import Owner
from .ports import Along, Entry, Pending, Record, Store
from .wire import header_of, read_commit, read_outcome, write_commit, write_outcome

FRAME_EVERY = 64  # reading a checkpoint reads at most so many records; writing it all costs 1/64 of a state each


class Archive(Protocol):
    """Where one run is kept while it is driven."""

    shortcomings: str | None  # in words, what this storage cannot promise

    async def head(self, run_id: str) -> Checkpoint | None:
        """The newest checkpoint of a run."""

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        """A checkpoint by its id."""

    async def commit(
        self, commit: Commit, after: Checkpoint, *, settled: int | None, consumed: tuple[str, ...] = ()
    ) -> None:
        """Append, if the run is still where it was; durable when it returns.

        Forgets the memory of `settled` and consumes mail, in the same transaction.
        """

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        """Leave mail; False if that key was ever used in the run."""

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        """Mail that is not consumed, oldest first."""

    async def told(self, checkpoint: Checkpoint) -> Sequence[tuple[str, Commit]]:
        """The commits that yielded outputs on the way to a checkpoint, with their runs, oldest first."""

    async def remember(self, run_id: str, place: int, outcome: Outcome) -> None:
        """Keep an outcome before its superstep commits; durable when it returns."""

    async def recall(self, run_id: str, place: int) -> dict[str, Outcome]:
        """The outcomes kept at that place, by delivery."""

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None: ...
    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None: ...
    async def release(self, run_id: str, owner: Owner) -> None: ...


class StoreArchive:
    """An archive on a built-in store. One for each drive of a run: it counts how far the last frame is."""

    shortcomings: str | None = None

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store, self._codec = store, codec
        self._since_frame = FRAME_EVERY

    async def head(self, run_id: str) -> Checkpoint | None:
        head = await self._store.head(run_id)
        if head is None:
            return None
        return (await self.at(head.entry))[0]

    async def at(self, entry: Entry) -> tuple[Checkpoint, Commit]:
        """The checkpoint of an entry, and the commit that led to it."""
        chain = await self._store.chain(entry.run_id, entry.number)
        if not chain:
            raise CheckpointCorrupt(f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r} is gone")
        self._since_frame = len(chain)
        return fold(chain, self._codec)[-1]

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        entry = await self._store.locate(checkpoint_id)
        return None if entry is None else (await self.at(entry))[0]

    async def commit(
        self, commit: Commit, after: Checkpoint, *, settled: int | None, consumed: tuple[str, ...] = ()
    ) -> None:
        framed = commit.number == 0 or self._since_frame >= FRAME_EVERY
        along = Along(settled, consumed, pending_of(after.header, commit.asked), commit.closed)
        await self._store.append(record(commit, after, framed=framed), along)
        self._since_frame = 1 if framed else self._since_frame + 1

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        return await self._store.post(run_id, key, body)

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return await self._store.mail(run_id)

    async def told(self, checkpoint: Checkpoint) -> list[tuple[str, Commit]]:
        found = await self._lineage(checkpoint.header.parent_id)
        return found + await self._told(checkpoint.run_id, checkpoint.number)

    async def _lineage(self, parent_id: str | None) -> list[tuple[str, Commit]]:
        """What the runs this one was forked from had told, as far as they are still stored."""
        parent = None if parent_id is None else await self._store.locate(parent_id)
        if parent is None:
            return []
        header = (await self.at(parent))[0].header
        return await self._lineage(header.parent_id) + await self._told(parent.run_id, parent.number)

    async def _told(self, run_id: str, upto: int) -> list[tuple[str, Commit]]:
        records = await self._store.history(run_id, upto=upto, outputs_only=True)
        return [(run_id, read_commit(one, self._codec)[0]) for one in records]

    async def remember(self, run_id: str, place: int, outcome: Outcome) -> None:
        await self._store.remember(run_id, place, outcome.delivery, write_outcome(outcome))

    async def recall(self, run_id: str, place: int) -> dict[str, Outcome]:
        kept = await self._store.recall(run_id, place)
        return {key: read_outcome(run_id, key, body, self._codec) for key, body in kept.items()}

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        await self._store.claim(run_id, owner, seconds=seconds)

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        self._store.renew(run_ids, owner, seconds=seconds)

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._store.release(run_id, owner)


def pending_of(header: RunHeader, requests: Iterable[Request]) -> tuple[Pending, ...]:
    """Open questions as a store lists them."""
    return tuple(
        Pending(
            header.run_id,
            r.id,
            header.workflow,
            r.executor,
            r.request_type,
            r.response_type,
            r.schema,
            r.at,
            r.deadline,
        )
        for r in requests
    )


def record(commit: Commit, after: Checkpoint, *, framed: bool) -> Record:
    """A commit as it is stored: what changed, or everything."""
    header = after.header
    if framed:
        full = whole(after)
        commit = replace(
            full,
            kind=commit.kind,
            done=commit.done,
            failures=commit.failures,
            warnings=commit.warnings,
            metadata=commit.metadata,
        )
    entry = Entry(
        header.run_id,
        commit.number,
        commit.stamp.checkpoint_id,
        header.workflow,
        commit.status.value,
        commit.iteration,
        commit.stamp.at,
        frame=framed,
        outputs=any(done.outputs for done in commit.done),
    )
    return Record(entry, write_commit(commit, header if framed else None, after.previous_id))


def fold(chain: Sequence[Record], codec: Codec) -> list[tuple[Checkpoint, Commit]]:
    """Each checkpoint of a chain that begins with a frame, and the commit that led to it."""
    found: list[tuple[Checkpoint, Commit]] = []
    before: Checkpoint | None = None
    for one in chain:
        commit, shape = read_commit(one, codec)
        if shape.run is not None:
            before = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        elif before is None:
            raise CheckpointCorrupt(
                f"checkpoint {one.entry.checkpoint_id} of run {one.entry.run_id!r} tells only what changed, "
                f"and what it changed from is missing"
            )
        else:
            before = apply(before.header, before, commit)
        found.append((before, commit))
    return found
