"""The archive: what the engine knows of durability. Commits go in, checkpoints come out.

An archive joins codec and store. It decides which commits are stored as snapshots and which as
deltas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from stepwell.codec.codec import Codec
from stepwell.errors import CheckpointMissing, CommitConflict, RunError
from stepwell.kernel.apply import apply
from stepwell.kernel.lifecycle import drop_undone, fork, is_at_rest
from stepwell.model.checkpoint import Checkpoint, Retention, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import CheckpointInfo
from stepwell.model.log_keys import LogEntry, RecalledLog
from stepwell.model.message import Outcome
from stepwell.storage import clock
from stepwell.storage.ids import checkpoint_id, forked_child_id
from stepwell.storage.large_work import build_in_thread, is_large_work
from stepwell.storage.lease import LEASE, Owner
from stepwell.storage.nested_retention import drop_left_over, drop_superseded, superseded_inside
from stepwell.storage.port import CommitEffects, Entry, Record, Store
from stepwell.storage.record import build_record, fold, metadata_of, pending_of, wake_of
from stepwell.storage.snapshot_chain import Chain
from stepwell.storage.transactions import Transaction, Translated
from stepwell.storage.wire.format import read_commit, read_log_entry, read_outcome, write_log_entry, write_outcome


class Archive(Protocol):
    """Stores the commits of runs, and reads their checkpoints."""

    shortcomings: str | None  # what this storage cannot promise, as a sentence for users
    unbroken: bool  # a commit, once begun, completes even if the task that awaits it is cancelled
    has_superstep_log: bool  # log entries survive a restart
    retention: Retention  # which checkpoints of a new run are kept
    lease: float  # seconds for which a driver holds a run, unless it renews
    # The number of a commit that another run refers to. It and all later ones stay, whatever the
    # retention.
    needed: int | None

    @property
    def where(self) -> object:
        """The storage: the same object for every archive on it."""

    async def head(self, run_id: str) -> Checkpoint | None:
        """Return the newest checkpoint of a run."""

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        """Return a checkpoint by its id."""

    async def commit(
        self,
        commit: Commit,
        after: Checkpoint,
        *,
        before: Checkpoint | None = None,
        drop_log_through: int | None = None,
        consumed: tuple[str, ...] = (),
    ) -> None:
        """Append a commit if the run is still where it was. Durable on return. `before` is where
        the run was: large values are written as a delta to it. In the same transaction, drops the
        superstep log up to the place `drop_log_through` and consumes signals.
        """

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        """Store a signal; False if the key was ever used in the run."""

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        """Return the signals that are not consumed, oldest first."""

    async def output_commits(self, checkpoint: Checkpoint) -> Sequence[tuple[str, Commit]]:
        """Return the commits with outputs up to a checkpoint, with their runs, oldest first."""

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        """List the checkpoints of a run, oldest first; none is read."""

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        """Return the commits of a run past a number, oldest first."""

    async def inside_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        """Return the children for `run_id`, a new run that is forked from a checkpoint.

        Children that keep only their latest checkpoint are copied as they are at that checkpoint:
        the original continues with its own caller, and drops what the fork would need.
        """

    async def log_outcome(self, run_id: str, place: int, outcome: Outcome) -> None:
        """Log an outcome before its superstep commits. Durable on return."""

    async def log_entry(self, run_id: str, place: int, key: str, entry: LogEntry) -> None:
        """Log a step, timer or attempt before the superstep commits. Durable on return. The first
        entry under a key stands.
        """

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        """Return a transaction whose result is logged; None if this storage has no transactions."""

    async def read_log(self, run_id: str, place: int) -> RecalledLog:
        """Return the superstep log of a place."""

    async def drop_left_over(self, checkpoint: Checkpoint) -> None:
        """Drop what a crash left of the children, if the run keeps only its latest checkpoint."""

    async def check_newest(self, checkpoint: Checkpoint) -> None:
        """Raise CommitConflict if the run has moved past this checkpoint."""

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        """Return those of the runs that have pending signals. Called from a thread; may block."""

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        """Acquire the run; later writes to it through this archive carry the fence."""

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]: ...
    async def release(self, run_id: str, owner: Owner) -> None: ...


class StoreArchive:
    """An archive on a built-in store.

    One for each drive, because it tracks the chain since the last snapshot.
    """

    shortcomings: str | None = None
    has_superstep_log = True

    def __init__(self, store: Store, codec: Codec, retention: Retention = Retention.FullHistory) -> None:
        self.store, self._codec, self.retention = store, codec, retention
        self.needed: int | None = None
        self.lease: float = getattr(store, "lease", LEASE)
        self._chain = Chain()
        # The commit that led to the checkpoint read as the head.
        self._head_commit: Commit | None = None
        self._fences: dict[str, int] = {}  # by run
        # Looked up in the class itself, not inherited: a subclass that overrides a method may write
        # in another way, and must make that promise itself.
        self.unbroken: bool = vars(type(getattr(store, "inner", store))).get("unbroken", False)

    @property
    def where(self) -> object:
        return self.store

    async def head(self, run_id: str) -> Checkpoint | None:
        while (head := await self.store.head(run_id)) is not None:
            chain = await self.store.chain(run_id, head.entry.number)
            # Between the two reads, a driver may have committed a newer record and dropped this
            # one.
            if chain:
                self._chain.add_all(chain)
                at, self._head_commit = fold(chain, self._codec)[-1]
                return at
        return None

    async def at(self, entry: Entry) -> tuple[Checkpoint, Commit]:
        """Return the checkpoint of an entry, and the commit that led to it."""
        chain = await self.store.chain(entry.run_id, entry.number)
        if not chain:
            raise superseded_error(entry)
        return fold(chain, self._codec)[-1]

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        entry = await self.store.locate(checkpoint_id)
        if entry is None:
            return None
        # A superseded record may still be stored, until the next snapshot drops it. Readers must
        # not depend on that; only a child reads one, if its caller refers to it (`needed`).
        if entry.fleeting and self.needed is None and not await is_head(self.store, entry):
            raise superseded_error(entry)
        return (await self.at(entry))[0]

    async def commit(
        self,
        commit: Commit,
        after: Checkpoint,
        *,
        before: Checkpoint | None = None,
        drop_log_through: int | None = None,
        consumed: tuple[str, ...] = (),
    ) -> None:
        # A restored or migrated run has a new header from here on, and only snapshots hold a
        # header.
        new_header = commit.restored is not None or commit.kind is CommitKind.MIGRATED
        latest_only = after.header.retention is Retention.LatestOnly
        # A run at rest must not keep superseded values: no later commit may ever drop them.
        rests = latest_only and is_at_rest(after)
        snapshot = commit.number == 0 or new_header or rests or self._chain.wants_snapshot(after)
        below = self._unneeded_below(after) if snapshot else None
        effects = CommitEffects(
            drop_log_through,
            consumed,
            asked=pending_of(after.header, commit.asked),
            closed=commit.closed,
            wake=wake_of(after),
            metadata=metadata_of(after.header) if snapshot else None,
            drop_below=below,
            fence=self._fences.get(after.run_id),
            reduced=self._chain.outputs_below(below),
        )
        build = partial(build_record, commit, after, snapshot=snapshot, before=before)
        if is_large_work(commit, after, snapshot=snapshot):
            record = await build_in_thread(build, lambda record: self.store.append(record, effects))
        else:
            record = build()
            await self.store.append(record, effects)
        self._chain.add(record)
        self._chain.drop_below(below)
        # Children are cleaned up after the commit: a crash in between leaves too much, never too
        # little, and `drop_left_over` removes it. If this run is itself a child that its caller
        # refers to, the caller does it.
        if latest_only and before is not None and self.needed is None:
            for superseded in superseded_inside(before, after):
                await drop_superseded(self.store, self._codec, superseded)

    def _unneeded_below(self, after: Checkpoint) -> int | None:
        if after.header.retention is Retention.FullHistory:
            return None
        return self._chain.unneeded_below(after.number, self.needed)

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await self.store.send(run_id, key, body)

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return await self.store.pending_signals(run_id)

    async def output_commits(self, checkpoint: Checkpoint) -> list[tuple[str, Commit]]:
        commits = await self._lineage(checkpoint.header)
        records = await self.store.history(checkpoint.run_id, upto=checkpoint.number, outputs_only=True)
        self._chain.note_outputs(records)
        return commits + self._read_commits(checkpoint.run_id, records)

    async def _lineage(self, header: RunHeader) -> list[tuple[str, Commit]]:
        """Return the output commits of the runs this one was forked from, if still stored."""
        forked_at = await parent_of(self.store, header)
        parent = None if forked_at is None else await self.store.head(forked_at[0])
        if forked_at is None or parent is None:  # not a fork, or the parent was deleted
            return []
        before = (await self.at(parent.entry))[0].header
        run_id, number = forked_at
        records = await self.store.history(run_id, upto=number, outputs_only=True)
        return await self._lineage(before) + self._read_commits(run_id, records)

    def _read_commits(self, run_id: str, records: Sequence[Record]) -> list[tuple[str, Commit]]:
        commits = drop_undone([read_commit(record, self._codec)[0] for record in records])
        return [(run_id, commit) for commit in commits]

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        entries = sorted(await self.store.entries(run_id=run_id), key=lambda entry: entry.number)
        # Hidden records are stored only because the deltas after them need them.
        readable = [entry for entry in entries if not entry.fleeting or entry is entries[-1]]
        return [CheckpointInfo(run_id, entry.checkpoint_id, entry.number) for entry in readable]

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        return [read_commit(record, self._codec)[0] for record in await self.store.history(run_id, after=after)]

    async def inside_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        return {key: await self._inside_fork(child, run_id) for key, child in source.children.items()}

    async def _inside_fork(self, child: Child, run_id: str) -> Child:
        entry = await self.store.locate(child.checkpoint_id)
        chain = [] if entry is None else await self.store.chain(entry.run_id, entry.number)
        # A child that is gone cannot be copied. One that keeps its history is forked later, when it
        # gets a response.
        if not chain or not chain[-1].entry.fleeting:
            return child
        source, copy = fold(chain, self._codec)[-1][0], forked_child_id(run_id, 0, child.run_id)
        stamp = Stamp(checkpoint_id(copy, 0, 0), clock.stamp())
        await self._make_room(copy, run_id)
        first = fork(replace(source, children=await self.inside_fork(source, copy)), stamp)
        origin = {"parent_id": child.checkpoint_id, "parent_run": source.run_id, "parent_number": source.number}
        identity = {"run_id": copy, "epoch": 0, "caller": run_id, "retention": self.retention}
        after = apply(replace(source.header, **origin, **identity), None, first, previous_id=child.checkpoint_id)
        await StoreArchive(self.store, self._codec).commit(first, after)
        return Child(copy, child.executor, stamp.checkpoint_id, 0, Child.caller_of(run_id, 0))

    async def _make_room(self, copy: str, run_id: str) -> None:
        """Remove a copy that was made for a fork that then crashed before its first commit."""
        head = await self.store.head(copy)
        # Only a copy that has moved since it was made belongs to a run that really existed.
        if head is not None and head.entry.number > 0:
            raise RunError(
                f"run {copy!r} is a child of an earlier run {run_id!r}, which was deleted without it; give the new "
                f"run another id, or delete the child too",
                run_id=run_id,
            )
        if head is not None:
            await self.store.drop(copy)

    async def log_outcome(self, run_id: str, place: int, outcome: Outcome) -> None:
        fence = self._fences.get(run_id)
        await self.store.write_log(run_id, place, outcome.delivery, write_outcome(outcome), fence=fence)

    async def log_entry(self, run_id: str, place: int, key: str, entry: LogEntry) -> None:
        await self.store.write_log(run_id, place, key, write_log_entry(entry), fence=self._fences.get(run_id))

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        # An optional ability, not part of the port.
        begin = getattr(self.store, "transaction", None)
        if begin is None:
            return None
        inner: Transaction[bytes] = begin(run_id, place, key, fence=self._fences.get(run_id))
        return Translated(inner, write_log_entry, lambda body: read_log_entry(run_id, key, body, self._codec))

    async def read_log(self, run_id: str, place: int) -> RecalledLog:
        log = await self.store.read_log(run_id, place)
        # Outcomes are stored under the name of their delivery, everything else under
        # delivery/kind/….
        return RecalledLog(
            {key: read_outcome(run_id, key, body, self._codec) for key, body in log.items() if "/" not in key},
            {key: read_log_entry(run_id, key, body, self._codec) for key, body in log.items() if "/" in key},
        )

    async def drop_left_over(self, checkpoint: Checkpoint) -> None:
        commit = self._head_commit
        if commit is None or commit.number != checkpoint.number or self.needed is not None:
            return
        if checkpoint.header.retention is Retention.LatestOnly:
            await drop_left_over(self.store, self._codec, checkpoint, commit)

    async def check_newest(self, checkpoint: Checkpoint) -> None:
        head = await self.store.head(checkpoint.run_id)
        if head is None or head.entry.number != checkpoint.number:
            raise CommitConflict(
                f"another process has moved run {checkpoint.run_id!r} past commit {checkpoint.number}: "
                f"stop driving it here"
            )

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        return self.store.runs_with_signals(run_ids)

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        fence = self._fences[run_id] = await self.store.acquire(run_id, owner, seconds=seconds)
        return fence

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        return self.store.renew(fences, seconds=seconds)

    async def release(self, run_id: str, owner: Owner) -> None:
        await self.store.release(run_id, owner)


def superseded_error(entry: Entry) -> CheckpointMissing:
    """The error for a checkpoint that was dropped because there is a newer one."""
    return CheckpointMissing(
        f"checkpoint {entry.checkpoint_id!r} is no longer stored: run {entry.run_id!r} keeps only its latest"
    )


async def is_head(store: Store, entry: Entry) -> bool:
    """Return whether an entry is that of the newest checkpoint of its run."""
    head = await store.head(entry.run_id)
    return head is not None and head.entry.number == entry.number


async def parent_of(store: Store, header: RunHeader) -> tuple[str, int] | None:
    """Return the run and the number that a run was forked from; None if neither is known."""
    if header.parent_run is not None and header.parent_number is not None:
        return header.parent_run, header.parent_number
    # A header may name only the checkpoint; then the parent must still be stored to be found.
    parent = None if header.parent_id is None else await store.locate(header.parent_id)
    return None if parent is None else (parent.run_id, parent.number)
