"""The archive on a store: it joins codec and store, and decides what is stored as a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from stepwell.codec.codec import Codec
from stepwell.errors import CheckpointMissing, CommitConflict, RunError, StepwellError
from stepwell.kernel.commit import apply, is_at_rest
from stepwell.kernel.lifecycle import drop_undone, fork
from stepwell.kernel.requests import early_requests
from stepwell.model.checkpoint import Checkpoint, Retention, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.event import CheckpointInfo
from stepwell.model.log_keys import LogEntry, RecalledLog
from stepwell.model.message import Outcome
from stepwell.model.payload import Pack
from stepwell.model.request import Request
from stepwell.model.signal import Signal
from stepwell.storage import news
from stepwell.storage.archive import StoredRun, commit_error
from stepwell.storage.expiry import find_expired, is_default
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.ids import forked_child_id, new_stamp
from stepwell.storage.large_work import build_in_thread
from stepwell.storage.lease import LEASE, Owner
from stepwell.storage.nested_retention import drop_left_over, drop_superseded, superseded_inside
from stepwell.storage.port import Store
from stepwell.storage.record import Chain, build_record, fold, is_large_work, metadata_of, pending_of, wake_of
from stepwell.storage.run_list import RunInfo, run_info
from stepwell.storage.signals import read_signals, write_signal
from stepwell.storage.stored_values import (
    NO_LOG_EFFECTS,
    CommitEffects,
    Entry,
    LeaseReport,
    LogEffects,
    LogRow,
    Record,
)
from stepwell.storage.transactions import Transaction, Translated
from stepwell.storage.wire.format import read_commit
from stepwell.storage.wire.log_format import read_log_entry, read_outcome, write_log_entry, write_outcome


class StoreArchive:
    """An archive on a store, for one drive: it tracks the chain since the last snapshot.

    `needed` is the number of a commit that another run refers to: it and all later ones stay.
    """

    is_durable = True
    shortcomings: str | None = None
    has_superstep_log = True

    def __init__(
        self,
        store: Store,
        codec: Codec,
        retention: Retention = Retention.FullHistory,
        *,
        lease: float = LEASE,
        needed: int | None = None,
    ) -> None:
        self.store, self._codec, self.retention = store, codec, retention
        self.needed, self.lease = needed, lease
        self.pack: Pack = codec.pack
        self.completes_log_writes = store.completes_writes
        self._chain = Chain()
        self._fences: dict[str, int] = {}  # by run
        self._without_outputs: set[str] = set()  # runs
        self._early: dict[str, Request] = {}  # requests in the superstep log, by id

    @property
    def where(self) -> object:
        return self.store

    # ---------------------------------------------------------------- reading

    async def open(self, run_id: str, owner: Owner) -> StoredRun:
        opened = await self.store.open(run_id, owner=owner, seconds=self.lease)
        fence = self._fences[run_id] = opened.fence or 0
        if not opened.records:
            return StoredRun(fence=fence)
        self._chain.add_all(opened.records)
        if not opened.has_outputs:
            self._without_outputs.add(run_id)
        head, commit = fold(opened.records, self._codec)
        # A run that keeps only its latest checkpoint: a crash may have left more of its children.
        if head.header.retention is Retention.LatestOnly and self.needed is None:
            await drop_left_over(self.store, self._codec, head, commit)
        signals = read_signals(run_id, opened.signals, self._codec)
        log = self._read_log(head, opened.log)
        self._early = early_requests(head, log)
        return StoredRun(head, log, signals, fence, opened.takeovers)

    async def look(self, run_id: str) -> StoredRun:
        opened = await self.store.open(run_id)
        if not opened.records:
            return StoredRun()
        head = fold(opened.records, self._codec)[0]
        return StoredRun(head, self._read_log(head, opened.log), read_signals(run_id, opened.signals, self._codec))

    def _read_log(self, head: Checkpoint, rows: Sequence[LogRow]) -> RecalledLog:
        return read_log(head.run_id, {row.key: row.body for row in rows if row.place == head.place}, self._codec)

    async def head(self, run_id: str) -> Checkpoint | None:
        records = await self.store.read(run_id)
        return fold(records, self._codec)[0] if records else None

    async def at(self, entry: Entry) -> tuple[Checkpoint, Commit]:
        """Return the checkpoint of an entry, and the commit that led to it."""
        records = await self.store.read(entry.run_id, entry.number)
        if not records:
            raise superseded_error(entry)
        return fold(records, self._codec)

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        entry = await self.store.locate(checkpoint_id)
        if entry is None:
            return None
        # A superseded record may still be stored, until the next snapshot drops it. Readers must
        # not depend on that; only a child reads one, if its caller refers to it (`needed`).
        if entry.latest_only and self.needed is None and not await is_head(self.store, entry):
            raise superseded_error(entry)
        return (await self.at(entry))[0]

    async def pending_signals(self, run_id: str) -> dict[str, Signal]:
        return read_signals(run_id, await self.store.pending_signals(run_id), self._codec)

    async def output_commits(self, checkpoint: Checkpoint) -> list[tuple[str, Commit]]:
        commits = await self._lineage(checkpoint.header)
        if checkpoint.run_id in self._without_outputs:
            return commits
        records = await self.store.history(checkpoint.run_id, upto=checkpoint.number, outputs_only=True)
        self._chain.note_outputs(records)
        return commits + self._read_commits(checkpoint.run_id, records)

    async def _lineage(self, header: RunHeader) -> list[tuple[str, Commit]]:
        """Return the output commits of the runs this one was forked from, if still stored."""
        forked_at = await parent_of(self.store, header)
        parent = None if forked_at is None else await self.head(forked_at[0])
        if forked_at is None or parent is None:  # not a fork, or the parent was deleted
            return []
        run_id, number = forked_at
        records = await self.store.history(run_id, upto=number, outputs_only=True)
        return await self._lineage(parent.header) + self._read_commits(run_id, records)

    def _read_commits(self, run_id: str, records: Sequence[Record]) -> list[tuple[str, Commit]]:
        commits = drop_undone([read_commit(record, self._codec)[0] for record in records])
        return [(run_id, commit) for commit in commits]

    async def run_info(self, run_id: str) -> RunInfo | None:
        entry = await self.store.run(run_id)
        return None if entry is None else run_info(entry)

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        entries = await self.store.checkpoints(CheckpointFilter(run_id=run_id))
        # Hidden records are stored only because the deltas after them need them.
        readable = [entry for entry in entries if not entry.latest_only or entry is entries[-1]]
        return [CheckpointInfo(run_id, entry.checkpoint_id, entry.number) for entry in readable]

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        return [read_commit(record, self._codec)[0] for record in await self.store.history(run_id, after=after)]

    # ---------------------------------------------------------------- writing

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
        # A new, restored or migrated run has a new header from here on, and only snapshots hold a
        # header.
        new_header = commit.number == 0 or commit.restored is not None or commit.kind is CommitKind.MIGRATED
        header = after.header
        latest_only = header.retention is Retention.LatestOnly
        # A run at rest must not keep superseded values: no later commit may ever drop them.
        rests = latest_only and is_at_rest(after)
        snapshot = new_header or rests or self._chain.wants_snapshot(after)
        below = self._chain.unneeded_below(after.number, self.needed) if snapshot and latest_only else None
        effects = CommitEffects(
            drop_log_through,
            consumed,
            asked=pending_of(header, [r for r in commit.asked if r.id in after.requests]) if commit.asked else (),
            closed=commit.closed,
            wake=wake_of(after),
            metadata=metadata_of(header) if new_header or commit.tags else None,
            drop_below=below,
            fence=self._fences.get(header.run_id),
            release=release,
            reduced=() if below is None else self._chain.outputs_below(below),
            expired=find_expired(commit, before, self._early) if commit.answers or commit.failures else (),
        )
        work = self._append(commit, after, before, effects, snapshot=snapshot)
        # A store that completes its writes by itself saves a task. A commit with children is more than one write:
        # superseded records of theirs are dropped after it.
        if commit.children or not self.completes_log_writes:
            from stepwell.storage.cancellation_shield import finish  # lazy: it imports asyncio

            work = finish(work)
        try:
            await work
        except StepwellError:
            raise
        except Exception as error:
            raise commit_error(commit, header.run_id, error) from error
        if drop_log_through is not None:
            self._early = {}
        if effects.fence is None:  # nobody drives it: it was forked, or changed from outside
            news.publish(self.store, header.run_id)

    async def submit(self, commit: Commit, after: Checkpoint) -> bool:
        # No lease has this number: the store refuses the commit if anybody has ever acquired the run.
        self._fences[after.run_id] = 0
        try:
            await self.commit(commit, after)
        except CommitConflict:
            return False
        finally:
            del self._fences[after.run_id]
        news.publish(self.store, after.run_id)
        return True

    async def _append(
        self, commit: Commit, after: Checkpoint, before: Checkpoint | None, effects: CommitEffects, *, snapshot: bool
    ) -> None:
        if is_large_work(commit, after, snapshot=snapshot):
            build = partial(build_record, commit, after, snapshot=snapshot, before=before)
            record = await build_in_thread(build, lambda record: self.store.append(record, effects))
        else:
            record = build_record(commit, after, snapshot=snapshot, before=before)
            await self.store.append(record, effects)
        self._chain.add(record)
        if record.entry.outputs:
            self._without_outputs.discard(record.entry.run_id)
        if effects.drop_below is not None:
            self._chain.drop_below(effects.drop_below)
        # Children are cleaned up after the commit: a crash in between leaves too much, never too
        # little, and `drop_left_over` removes it. If this run is itself a child that its caller
        # refers to, the caller does it.
        if after.header.retention is Retention.LatestOnly and before is not None and self.needed is None:
            for superseded in superseded_inside(before, after):
                await drop_superseded(self.store, self._codec, superseded)

    async def send(self, run_id: str, key: str, signal: Signal, *, as_driver: bool = False) -> bool:
        fence = self._fences.get(run_id) if as_driver else None
        is_new = await self.store.send(run_id, key, write_signal(signal), fence=fence)
        news.publish(self.store, run_id)
        return is_new

    async def log_outcome(self, at: Checkpoint, outcome: Outcome, *, closed: Sequence[str] = ()) -> None:
        # What was answered while its sub-workflow run was at work is not listed again.
        held = {message.reply.request_id for message in at.messages if message.is_held and message.reply is not None}
        effects, asked = NO_LOG_EFFECTS, [request for request in outcome.requests if request.id not in held]
        if asked or closed:
            effects = LogEffects(pending_of(at.header, asked), tuple(closed))
            self._early.update({request.id: request for request in asked})
        await self._log(at, outcome.delivery, write_outcome(outcome), effects)

    async def log_entry(
        self,
        at: Checkpoint,
        key: str,
        entry: LogEntry,
        *,
        closed: Sequence[str] = (),
        consumed: Sequence[str] = (),
    ) -> None:
        asked = () if entry.request is None else pending_of(at.header, (entry.request,))
        if entry.request is not None:
            self._early[entry.request.id] = entry.request
        effects = NO_LOG_EFFECTS
        if asked or closed or consumed:
            answered = self._early.get(entry.answer.request_id) if entry.answer is not None else None
            is_late = answered is not None and entry.answer is not None and is_default(answered, entry.answer)
            effects = LogEffects(asked, tuple(closed), tuple(consumed), tuple(closed) if is_late else ())
        await self._log(at, key, write_log_entry(entry), effects)

    async def _log(self, at: Checkpoint, key: str, body: bytes, effects: LogEffects) -> None:
        fence = self._fences.get(at.run_id)
        await self.store.write_log(at.run_id, at.place, key, body, effects=effects, fence=fence)

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        inner = self.store.transaction(run_id, place, key, fence=self._fences.get(run_id))
        if inner is None:
            return None
        return Translated(inner, write_log_entry, lambda body: read_log_entry(run_id, key, body, self._codec))

    async def flush(self) -> None:
        """Do nothing: a commit is stored when `commit` returns."""

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self.store.renew(fences, seconds=seconds)

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self.store.release(run_id, owner, stalls=stalls)
        news.publish(self.store, run_id)  # it was left in the middle, or submitted under a lease

    # ---------------------------------------------------------------- forks

    async def copy_children_for_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        return {key: await self._copy_child_for_fork(child, run_id) for key, child in source.children.items()}

    async def _copy_child_for_fork(self, child: Child, run_id: str) -> Child:
        entry = await self.store.locate(child.checkpoint_id)
        records = [] if entry is None else await self.store.read(entry.run_id, entry.number)
        # A child that is gone cannot be copied. One that keeps its history is forked later, when it
        # gets a response.
        if not records or not records[-1].entry.latest_only:
            return child
        source, copy = fold(records, self._codec)[0], forked_child_id(run_id, 0, child.run_id)
        stamp = new_stamp(copy, 0, 0)
        await self._remove_leftover_copy(copy, run_id)
        first = fork(replace(source, children=await self.copy_children_for_fork(source, copy)), stamp)
        origin = {"parent_id": child.checkpoint_id, "parent_run": source.run_id, "parent_number": source.number}
        identity = {"run_id": copy, "epoch": 0, "caller": run_id, "retention": self.retention}
        after = apply(replace(source.header, **origin, **identity), None, first, previous_id=child.checkpoint_id)
        await StoreArchive(self.store, self._codec).commit(first, after)
        return Child(copy, child.executor, stamp.checkpoint_id, 0, Child.caller_of(run_id, 0))

    async def _remove_leftover_copy(self, copy: str, run_id: str) -> None:
        """Remove a copy that was made for a fork that then crashed before its first commit."""
        stored = await self.store.run(copy)
        # Only a copy that has moved since it was made belongs to a run that really existed.
        if stored is not None and stored.number > 0:
            raise RunError(
                f"run {copy!r} is a child of an earlier run {run_id!r}, which was deleted without it; give the new "
                f"run another id, or delete the child too",
                run_id=run_id,
            )
        if stored is not None:
            await self.store.drop(copy)


def read_log(run_id: str, bodies: Mapping[str, bytes], codec: Codec) -> RecalledLog:
    """Decode the superstep log of one place, given by key. Raises CheckpointCorrupt if an entry is damaged."""
    # Outcomes are stored under the name of their delivery, everything else under delivery/kind/….
    return RecalledLog(
        {key: read_outcome(run_id, key, body, codec) for key, body in bodies.items() if "/" not in key},
        {key: read_log_entry(run_id, key, body, codec) for key, body in bodies.items() if "/" in key},
    )


def superseded_error(entry: Entry) -> CheckpointMissing:
    """The error for a checkpoint that was dropped because there is a newer one."""
    return CheckpointMissing(
        f"checkpoint {entry.checkpoint_id!r} is no longer stored: run {entry.run_id!r} keeps only its latest"
    )


async def is_head(store: Store, entry: Entry) -> bool:
    """Return whether an entry is that of the newest checkpoint of its run."""
    run = await store.run(entry.run_id)
    return run is not None and run.number == entry.number


async def parent_of(store: Store, header: RunHeader) -> tuple[str, int] | None:
    """Return the run and the number that a run was forked from; None if neither is known."""
    if header.parent_run is not None and header.parent_number is not None:
        return header.parent_run, header.parent_number
    # A header may name only the checkpoint; then the parent must still be stored to be found.
    parent = None if header.parent_id is None else await store.locate(header.parent_id)
    return None if parent is None else (parent.run_id, parent.number)
