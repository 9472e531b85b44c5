"""Removes old runs and checkpoints from a store.

Everything that stays remains readable and resumable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from stepwell.admin.retention.inventory import (
    entries_of,
    find_new_forks,
    gather_in_batches,
    load_facts,
)
from stepwell.admin.retention.policy import (
    Keep,
    Removal,
    RunFacts,
    allows_thinning,
    find_fork_points,
    find_old_checkpoints,
    plan_deletion,
    plan_removal,
)
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CommitConflict, DurabilityError, RunBusy, StoreUnavailable
from stepwell.model.event import CheckpointInfo
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.lease import LEASE, this_process
from stepwell.storage.port import Store
from stepwell.storage.record import build_record, fold
from stepwell.storage.stored_values import Entry, Record

_PAGE = 500  # records in memory at a time
_PER_TRANSACTION = 1000  # checkpoints removed in one transaction


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was removed, or would be: complete runs, single checkpoints, and their size."""

    runs: tuple[str, ...]
    checkpoints: tuple[CheckpointInfo, ...]
    bytes: int  # of the records; the overhead of the store is not counted
    skipped: dict[str, str] = field(default_factory=dict)  # runs that could not be removed, and why
    dry_run: bool = False
    stays: dict[str, str] = field(default_factory=dict)  # runs that were considered and not deleted, and why

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of the single checkpoints, by run."""
        numbers: dict[str, list[int]] = {}
        for checkpoint in self.checkpoints:
            numbers.setdefault(checkpoint.run_id, []).append(checkpoint.number)
        return numbers

    def lines(self) -> list[str]:
        """Return the report as text: a summary, then a line for each run that was skipped."""
        verb = "would remove" if self.dry_run else "removed"
        runs, checkpoints = _count(len(self.runs), "run"), _count(len(self.checkpoints), "checkpoint")
        summary = f"{verb} {runs} and {checkpoints} of other runs, {self.bytes:,} bytes"
        return [summary, *(f"skipped {id}: {why}" for id, why in self.skipped.items())]


async def prune(
    storage: BuiltInStorage,
    policy: Keep,
    *,
    named: Collection[str] = (),
    only: Collection[str] | None = None,
    dry_run: bool = False,
) -> PruneReport:
    """Remove what the policy does not keep, of all runs or `only` of those with these ids.

    With `dry_run`, nothing is changed and the report says what would be removed. Runs with open
    requests are left alone, except those whose ids are `named`. Everything that stays remains
    readable: a delta is rewritten as a snapshot before the records it is based on are removed; if
    that would take more space than it frees, they stay. The call may be interrupted anywhere, even
    by a crash: the store stays consistent, and the next call continues. Runs that are being driven,
    have moved on since they were listed, or are damaged are skipped.

    Raises CannotUnseal if the storage is sealed and was opened without its keys.

    Reads the list of runs, the list of each run's checkpoints, one snapshot of each run for its
    parent, and what is removed.
    """
    store, now = storage._store, clock.now()
    runs = await load_facts(store, only, lambda run: policy.of(run.status) is not None)
    removal = plan_removal(policy, runs, now, named, only)
    deleted = set(removal.runs)
    fork_points = find_fork_points(runs, deleted)
    pruning = _Pruning(store, runs, dry_run)
    await pruning.drop(removal.waves)
    # Entries are loaded for a few runs at a time: all may be millions.
    await gather_in_batches(
        pruning.thin_out(facts, lambda facts: find_old_checkpoints(policy, facts, fork_points, now))
        for facts in runs
        if facts.run.run_id not in deleted and allows_thinning(policy, facts, named, only)
    )
    return pruning.report(removal)


async def delete_runs(storage: BuiltInStorage, run_ids: Collection[str], *, dry_run: bool = False) -> PruneReport:
    """Delete runs, whatever their status, even if they wait for answers or are damaged.

    The runs of their sub-workflows are deleted with them, never alone. A run that is being driven
    is skipped, and so is the parent of a fork, unless the fork is deleted as well. The call may be
    interrupted anywhere: the store stays consistent.
    """
    runs = await load_facts(storage._store, run_ids)
    removal = plan_deletion(run_ids, runs)
    pruning = _Pruning(storage._store, runs, dry_run, discard_signals=True)
    await pruning.drop(removal.waves)
    return pruning.report(removal)


class _Pruning:
    """One call of `prune` or `delete_runs`, and what it has done so far."""

    def __init__(self, store: Store, runs: Sequence[RunFacts], dry_run: bool, *, discard_signals: bool = False) -> None:
        self._store, self._dry, self._discard_signals = store, dry_run, discard_signals
        self._facts = {facts.run.run_id: facts for facts in runs}
        self._runs: list[str] = []
        self._checkpoints: list[CheckpointInfo] = []
        self._skipped: dict[str, str] = {}
        self._bytes = 0
        self._forked: dict[str, str] = {}  # parents of forks created since the runs were listed, and those forks

    async def drop(self, waves: Sequence[Sequence[str]]) -> None:
        """Delete complete runs, wave by wave."""
        for wave in waves:
            # Looked up again before each wave: a run may have been forked since the removal was
            # planned.
            self._forked = {} if self._dry else await find_new_forks(self._store, self._facts)
            await gather_in_batches(self._drop(run_id) for run_id in wave)

    def report(self, removal: Removal) -> PruneReport:
        # Batches finish in any order; a report must not depend on that.
        order = {id: n for n, id in enumerate(dict.fromkeys((*removal.runs, *self._facts)))}
        return PruneReport(
            tuple(sorted(self._runs, key=order.__getitem__)),
            tuple(sorted(self._checkpoints, key=lambda checkpoint: (order[checkpoint.run_id], -checkpoint.number))),
            bytes=self._bytes,
            skipped=self._skipped,
            dry_run=self._dry,
            stays=dict(removal.stays),
        )

    async def _drop(self, run_id: str) -> None:
        """Delete a run, unless it is being driven or a skipped run needs it."""
        size = await _size(self._store, run_id)
        if reason := self._reason_to_keep(run_id) or (None if self._dry else await self._try_drop(run_id)):
            self._skipped[run_id] = reason
        else:
            self._runs.append(run_id)
            self._bytes += size

    def _reason_to_keep(self, run_id: str) -> str | None:
        if run_id in self._forked:
            return f"run {self._forked[run_id]!r} was forked from it meanwhile"
        for id in self._skipped:
            parent = self._facts[id].parent
            if self._facts[run_id].run.metadata.caller == id or (parent is not None and parent[0] == run_id):
                return f"run {id!r} stays, and needs it"
        return None

    async def _try_drop(self, run_id: str) -> str | None:
        """Delete a run; return why that was not possible, or None."""
        owner = this_process(new_run_id())
        try:
            # Acquired, and not opened: a run that is damaged can be deleted, too.
            await self._store.acquire(run_id, owner, seconds=LEASE)
        except RunBusy as busy:
            return f"it is being driven by {busy.owner}"
        try:
            # Checked again under the lease: from here on no process can move the run.
            run = await self._store.run(run_id)
            if run is not None and run.checkpoint_id != self._facts[run_id].run.checkpoint_id:
                return "it has moved on since it was listed"
            heeds_signals = not self._discard_signals and run is not None and run.metadata.caller is None
            if heeds_signals and await self._store.pending_signals(run_id):
                return "a signal was sent to it meanwhile"
            await self._store.drop(run_id)
            return None
        finally:
            await self._store.release(run_id, owner)

    async def thin_out(self, facts: RunFacts, choose: Callable[[RunFacts], Sequence[int]]) -> None:
        """Remove the chosen checkpoints of a run, many in one transaction."""
        run_id = facts.run.run_id
        going: list[Entry] = []
        snapshots: list[Record] = []
        try:
            entries = await entries_of(self._store, run_id)
            numbers = choose(replace(facts, entries=entries))
            for gap, follower in _split_into_gaps({entry.number: entry for entry in entries}, numbers):
                if (replacements := await self._plan_gap(gap, follower)) is None:
                    continue
                going += gap
                snapshots += replacements
                if len(going) >= _PER_TRANSACTION:
                    await self._remove(run_id, going, snapshots)
                    going, snapshots = [], []
            await self._remove(run_id, going, snapshots)
        except StoreUnavailable:
            raise
        # One run that cannot be thinned out must not keep the others from it.
        except CommitConflict:
            self._skipped[run_id] = "it has moved on since it was listed"
        except DurabilityError as error:
            self._skipped[run_id] = str(error)

    async def _remove(self, run_id: str, going: Sequence[Entry], snapshots: Sequence[Record]) -> None:
        # No lease is needed: the store refuses to remove the head, or a record that a remaining
        # delta is based on, so a driver of the run does not notice.
        if going and not self._dry:
            await self._store.rewrite(run_id, replace=snapshots, remove=[entry.number for entry in going])
        self._checkpoints += [CheckpointInfo(run_id, entry.checkpoint_id, entry.number) for entry in going]

    async def _plan_gap(self, gap: Sequence[Entry], follower: Entry) -> list[Record] | None:
        """Return the records to rewrite as snapshots if a gap is made before `follower`.

        None if that would take more space than it frees.
        """
        run_id, first, last = follower.run_id, gap[-1].number, gap[0].number
        # A snapshot needs nothing of what is before it.
        if follower.is_snapshot:
            size = await _size(self._store, run_id, first, last)
            self._bytes += size
            return []
        chain = await self._store.read(run_id, follower.number)
        if not chain:
            return None  # the run was deleted meanwhile
        checkpoint, commit = fold(chain, DEFAULT_CODEC)
        replacement = build_record(commit, checkpoint, snapshot=True)
        size = sum(len(record.body) for record in chain if first <= record.entry.number <= last)
        size -= len(replacement.body) - len(chain[-1].body)
        if size <= 0:
            return None
        self._bytes += size
        return [replacement]


def _split_into_gaps(entries: Mapping[int, Entry], numbers: Sequence[int]) -> list[tuple[list[Entry], Entry]]:
    """Split the numbers to remove, newest first, into independent gaps, each with its follower.

    A gap ends at a checkpoint that stays, and at a snapshot, which needs nothing of what is before
    it.
    """
    above, gaps = dict(pairwise(sorted(entries))), list[list[int]]()
    for number in numbers:
        if gaps and above[number] == gaps[-1][-1] and not entries[gaps[-1][-1]].is_snapshot:
            gaps[-1].append(number)
        else:
            gaps.append([number])
    return [([entries[number] for number in gap], entries[above[gap[0]]]) for gap in gaps]


async def _size(store: Store, run_id: str, first: int = 0, last: int | None = None) -> int:
    """Return the size of a run's records as they are stored; unreadable ones are not counted."""
    # The store inside a wrapper: what is removed need not be verified or decrypted.
    inner = store.inner if isinstance(store, VerifiedStore) else store
    if last is None:
        run = await store.run(run_id)
        last = -1 if run is None else run.number
    size = 0
    for begin in range(first, last + 1, _PAGE):
        try:
            page = await inner.history(run_id, after=begin - 1, upto=min(begin + _PAGE - 1, last))
        except StoreUnavailable:
            raise
        except DurabilityError:
            continue  # removed all the same
        size += sum(len(record.body) for record in page)
    return size


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
