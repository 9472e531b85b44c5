"""Old checkpoints and runs are taken away, and whatever stays can be read and goes on as before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from stepwell.admin.retention.inventory import (
    entries_of,
    find_new_forks,
    gather_in_batches,
    load_all_facts,
    load_facts_for,
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
from stepwell.engine import lease_renewal
from stepwell.errors import CommitConflict, DurabilityError, RunBusy, StoreUnavailable
from stepwell.model.event import CheckpointInfo
from stepwell.storage import clock
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import this_process
from stepwell.storage.port import Entry, Record, Store
from stepwell.storage.record import build_record, fold

_PAGE = 500  # records whose texts are in memory at a time
_AT_ONCE = 1000  # checkpoints that go in one transaction


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What went, or would go: whole runs, single checkpoints, and how many bytes of text that is."""

    runs: tuple[str, ...]
    checkpoints: tuple[CheckpointInfo, ...]
    bytes: int  # of the stored texts; what a store needs around them is not counted
    skipped: dict[str, str] = field(default_factory=dict)  # runs that could not go, and why
    dry_run: bool = False
    stays: dict[str, str] = field(default_factory=dict)  # runs that were looked at and do not go whole, and why

    def lines(self) -> list[str]:
        """In words."""
        verb = "would go" if self.dry_run else "gone"
        runs, checkpoints = _count(len(self.runs), "run"), _count(len(self.checkpoints), "checkpoint")
        head = f"{verb}: {runs} and {checkpoints} of other runs, {self.bytes:,} bytes"
        return [head, *(f"left alone: {id}: {why}" for id, why in self.skipped.items())]


async def prune(
    storage: BuiltInStorage,
    policy: Keep,
    *,
    named: Collection[str] = (),
    only: Collection[str] | None = None,
    dry_run: bool = False,
) -> PruneReport:
    """Take away what the policy does not keep, of all runs or `only` of those with these ids; with `dry_run`, only say
    what that would be.

    Runs with open questions are left alone, except those whose ids are `named`. What stays, stays readable: a
    checkpoint that was stored as what changed is stored whole before those it is based on go, and if that took more
    space than it gave back, they stay. It may end anywhere, also by a crash: what is left is whole, and the next call
    goes on. Runs that somebody drives, or that moved on meanwhile, or are damaged, are skipped as a whole.

    Raises CannotUnseal if the storage is sealed and was opened without its keys.

    Reads the list of runs, the list of each run's checkpoints, one frame of each run for its lineage, and what goes.
    """
    store, now = storage.store, clock.now()
    runs = await load_all_facts(store, only, lambda run: policy.of(run.status) is not None)
    removal = plan_removal(policy, runs, now, named, only)
    whole = set(removal.runs)
    fork_points = find_fork_points(runs, whole)
    pruning = _Pruning(store, runs, dry_run)
    await pruning.drop(removal.waves)
    await pruning.thin_out(
        (facts for facts in runs if facts.run.run_id not in whole and allows_thinning(policy, facts, named, only)),
        lambda facts: find_old_checkpoints(policy, facts, fork_points, now),
    )
    return pruning.report(removal)


async def delete_runs(storage: BuiltInStorage, run_ids: Collection[str], *, dry_run: bool = False) -> PruneReport:
    """Take away whole runs, wherever they are: also those that wait for answers, failed, have mail or are damaged.

    The runs inside them go, too. A run that somebody drives is skipped, and one that a fork was begun from stays
    unless the fork is named as well; a run that works for another goes with that one. It may end anywhere: what is
    left is whole.
    """
    runs = await load_facts_for(storage.store, run_ids)
    removal = plan_deletion(run_ids, runs)
    pruning = _Pruning(storage.store, runs, dry_run, discard_signals=True)
    await pruning.drop(removal.waves)
    return pruning.report(removal)


class _Pruning:
    """One call of `prune`, and what it has done so far."""

    def __init__(self, store: Store, runs: Sequence[RunFacts], dry_run: bool, *, discard_signals: bool = False) -> None:
        self._store, self._dry, self._discard_signals = store, dry_run, discard_signals
        self._facts = {facts.run.run_id: facts for facts in runs}
        self._runs: list[str] = []
        self._checkpoints: list[CheckpointInfo] = []
        self._skipped: dict[str, str] = {}
        self._bytes = 0
        self._forked: dict[str, str] = {}  # runs that a fork was begun from since we looked, and that fork

    async def drop(self, waves: Sequence[Sequence[str]]) -> None:
        """Take whole runs away."""
        for wave in waves:
            self._forked = {} if self._dry else await find_new_forks(self._store, self._facts)
            await gather_in_batches(self._drop(run_id) for run_id in wave)

    async def thin_out(self, runs: Iterable[RunFacts], choose: Callable[[RunFacts], Sequence[int]]) -> None:
        """Take the chosen checkpoints of runs away. Those of a few runs are known at a time: all may be millions."""
        await gather_in_batches(self._thin_out(facts, choose) for facts in runs)

    def report(self, removal: Removal) -> PruneReport:
        order = {id: n for n, id in enumerate(dict.fromkeys((*removal.runs, *self._facts)))}
        return PruneReport(
            tuple(sorted(self._runs, key=order.__getitem__)),
            tuple(sorted(self._checkpoints, key=lambda checkpoint: (order[checkpoint.run_id], -checkpoint.number))),
            self._bytes,
            self._skipped,
            self._dry,
            dict(removal.stays),
        )

    async def _drop(self, run_id: str) -> None:
        """Take a whole run away, if nobody drives it and nobody who was skipped needs it."""
        size = await _size(self._store, run_id)
        reason = self._reason_to_keep(run_id)
        if reason is None and not self._dry:
            reason = await self._try_drop(run_id)
        if reason is not None:
            self._skipped[run_id] = reason
            return
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
        """Drop a run; in words, why not."""
        archive = StoreArchive(self._store, DEFAULT_CODEC)
        try:
            lease = await lease_renewal.acquire(archive, run_id, this_process(new_run_id()), _ignore_signals)
        except RunBusy as busy:
            return f"it is being driven by {busy.owner}"
        try:
            run = await self._store.run(run_id)
            if run is not None and run.checkpoint_id != self._facts[run_id].run.checkpoint_id:
                return "it has moved on meanwhile"
            heeds_signals = not self._discard_signals and run is not None and run.metadata.caller is None
            if heeds_signals and await self._store.pending_signals(run_id):
                return "something was sent to it meanwhile"
            await self._store.drop(run_id)
            return None
        finally:
            await lease_renewal.release(lease)

    async def _thin_out(self, facts: RunFacts, choose: Callable[[RunFacts], Sequence[int]]) -> None:
        """Take checkpoints of a run away, many in one transaction."""
        run_id = facts.run.run_id
        going: list[Entry] = []
        whole: list[Record] = []
        try:
            entries = await entries_of(self._store, run_id)
            numbers = choose(replace(facts, entries=entries))
            for gap, follower in _split_into_gaps({entry.number: entry for entry in entries}, numbers):
                if (replacements := await self._plan_gap(gap, follower)) is None:
                    continue
                going += gap
                whole += replacements
                if len(going) >= _AT_ONCE:
                    await self._remove(run_id, going, whole)
                    going, whole = [], []
            await self._remove(run_id, going, whole)
        except StoreUnavailable:
            raise
        except CommitConflict:
            self._skipped[run_id] = "it has moved on meanwhile"
        except DurabilityError as error:
            self._skipped[run_id] = str(error)

    async def _remove(self, run_id: str, going: Sequence[Entry], whole: Sequence[Record]) -> None:
        if going and not self._dry:
            await self._store.thin_out(run_id, [entry.number for entry in going], rewritten=whole)
        self._checkpoints += [CheckpointInfo(run_id, entry.checkpoint_id, entry.number) for entry in going]

    async def _plan_gap(self, gap: Sequence[Entry], follower: Entry) -> list[Record] | None:
        """What has to be stored whole if neighbours go; None if that would take more space than it gives back."""
        run_id, first, last = follower.run_id, gap[-1].number, gap[0].number
        if follower.is_snapshot:
            size = await _size(self._store, run_id, first, last)
            self._bytes += size
            return []
        chain = await self._store.chain(run_id, follower.number)
        if not chain:
            return None  # the run went meanwhile
        checkpoint, commit = fold(chain, DEFAULT_CODEC)[-1]
        replacement = build_record(commit, checkpoint, snapshot=True)
        size = sum(len(record.body) for record in chain if first <= record.entry.number <= last)
        size -= len(replacement.body) - len(chain[-1].body)
        if size <= 0:
            return None
        self._bytes += size
        return [replacement]


def _split_into_gaps(entries: Mapping[int, Entry], numbers: Sequence[int]) -> Iterator[tuple[list[Entry], Entry]]:
    """Numbers that go, newest first, in pieces that can go each for itself, each with what comes after it: none reaches
    over something that stays, or over a frame, which needs nothing of what is before it."""
    above = dict(pairwise(sorted(entries)))
    piece: list[int] = []

    def close_gap() -> tuple[list[Entry], Entry]:
        return [entries[number] for number in piece], entries[above[piece[0]]]

    for number in numbers:
        if piece and (above[number] != piece[-1] or entries[piece[-1]].is_snapshot):
            yield close_gap()
            piece = []
        piece.append(number)
    if piece:
        yield close_gap()


async def _size(store: Store, run_id: str, first: int = 0, last: int | None = None) -> int:
    """How long the texts of a run are, as they are stored; what cannot be read is not counted."""
    inner: Store = getattr(store, "inner", store)  # nobody need open what goes
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
            continue  # it goes all the same
        size += sum(len(record.body) for record in page)
    return size


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _ignore_signals() -> None:
    """A run that is about to go takes nothing in."""
