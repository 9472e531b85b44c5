"""Old checkpoints and runs are taken away, and whatever stays can be read and goes on as before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from stepwell.admin.retention.inventory import all_known, entries_of, forked_since, known_for, together
from stepwell.admin.retention.policy import (
    Keep,
    Known,
    Removal,
    beginnings,
    may_lose_some,
    old_ones,
    what_goes,
    whole_runs,
)
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine import lease_renewal as claims
from stepwell.errors import CommitConflict, DurabilityError, RunBusy, StoreUnavailable
from stepwell.model.event import CheckpointInfo
from stepwell.storage import clock
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import this_process
from stepwell.storage.port import Entry, Record, Store
from stepwell.storage.record import fold, record

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
        runs, checkpoints = _counted(len(self.runs), "run"), _counted(len(self.checkpoints), "checkpoint")
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
    runs = await all_known(store, only, lambda run: policy.of(run.status) is not None)
    removal = what_goes(policy, runs, now, named, only)
    whole = set(removal.runs)
    begun_at = beginnings(runs, whole)
    pruning = _Pruning(store, runs, dry_run)
    await pruning.drop(removal.waves)
    await pruning.thin_out(
        (one for one in runs if one.run.run_id not in whole and may_lose_some(policy, one, named, only)),
        lambda one: old_ones(policy, one, begun_at, now),
    )
    return pruning.report(removal)


async def delete_runs(storage: BuiltInStorage, run_ids: Collection[str], *, dry_run: bool = False) -> PruneReport:
    """Take away whole runs, wherever they are: also those that wait for answers, failed, have mail or are damaged.

    The runs inside them go, too. A run that somebody drives is skipped, and one that a fork was begun from stays
    unless the fork is named as well; a run that works for another goes with that one. It may end anywhere: what is
    left is whole.
    """
    runs = await known_for(storage.store, run_ids)
    removal = whole_runs(run_ids, runs)
    pruning = _Pruning(storage.store, runs, dry_run, unread_too=True)
    await pruning.drop(removal.waves)
    return pruning.report(removal)


class _Pruning:
    """One call of `prune`, and what it has done so far."""

    def __init__(self, store: Store, runs: Sequence[Known], dry_run: bool, *, unread_too: bool = False) -> None:
        self._store, self._dry, self._unread_too = store, dry_run, unread_too
        self._known = {one.run.run_id: one for one in runs}
        self._runs: list[str] = []
        self._checkpoints: list[CheckpointInfo] = []
        self._skipped: dict[str, str] = {}
        self._bytes = 0
        self._forked: dict[str, str] = {}  # runs that a fork was begun from since we looked, and that fork

    async def drop(self, waves: Sequence[Sequence[str]]) -> None:
        """Take whole runs away."""
        for wave in waves:
            self._forked = {} if self._dry else await forked_since(self._store, self._known)
            await together(self._drop(run_id) for run_id in wave)

    async def thin_out(self, runs: Iterable[Known], choose: Callable[[Known], Sequence[int]]) -> None:
        """Take the chosen checkpoints of runs away. Those of a few runs are known at a time: all may be millions."""
        await together(self._thin_out(one, choose) for one in runs)

    def report(self, removal: Removal) -> PruneReport:
        order = {id: n for n, id in enumerate(dict.fromkeys((*removal.runs, *self._known)))}
        return PruneReport(
            tuple(sorted(self._runs, key=order.__getitem__)),
            tuple(sorted(self._checkpoints, key=lambda one: (order[one.run_id], -one.number))),
            self._bytes,
            self._skipped,
            self._dry,
            dict(removal.stays),
        )

    async def _drop(self, run_id: str) -> None:
        """Take a whole run away, if nobody drives it and nobody who was skipped needs it."""
        size = await _size(self._store, run_id)
        why = self._needed(run_id)
        if why is None and not self._dry:
            why = await self._dropped(run_id)
        if why is not None:
            self._skipped[run_id] = why
            return
        self._runs.append(run_id)
        self._bytes += size

    def _needed(self, run_id: str) -> str | None:
        if run_id in self._forked:
            return f"run {self._forked[run_id]!r} was forked from it meanwhile"
        for id in self._skipped:
            parent = self._known[id].parent
            if self._known[run_id].run.about.caller == id or (parent is not None and parent[0] == run_id):
                return f"run {id!r} stays, and needs it"
        return None

    async def _dropped(self, run_id: str) -> str | None:
        """Drop a run; in words, why not."""
        archive = StoreArchive(self._store, DEFAULT_CODEC)
        try:
            held = await claims.acquire(archive, run_id, this_process(new_run_id()), _nobody_listens)
        except RunBusy as busy:
            return f"it is being driven by {busy.owner}"
        try:
            run = await self._store.run(run_id)
            if run is not None and run.checkpoint_id != self._known[run_id].run.checkpoint_id:
                return "it has moved on meanwhile"
            heeds_mail = not self._unread_too and run is not None and run.about.caller is None
            if heeds_mail and await self._store.mail(run_id):
                return "something was sent to it meanwhile"
            await self._store.drop(run_id)
            return None
        finally:
            await claims.release(held)

    async def _thin_out(self, one: Known, choose: Callable[[Known], Sequence[int]]) -> None:
        """Take checkpoints of a run away, many in one transaction."""
        run_id = one.run.run_id
        going: list[Entry] = []
        whole: list[Record] = []
        try:
            entries = await entries_of(self._store, run_id)
            numbers = choose(replace(one, entries=entries))
            for gap, follower in _gaps({entry.number: entry for entry in entries}, numbers):
                if (found := await self._looked_at(gap, follower)) is None:
                    continue
                going += gap
                whole += found
                if len(going) >= _AT_ONCE:
                    await self._take_out(run_id, going, whole)
                    going, whole = [], []
            await self._take_out(run_id, going, whole)
        except StoreUnavailable:
            raise
        except CommitConflict:
            self._skipped[run_id] = "it has moved on meanwhile"
        except DurabilityError as error:
            self._skipped[run_id] = str(error)

    async def _take_out(self, run_id: str, going: Sequence[Entry], whole: Sequence[Record]) -> None:
        if going and not self._dry:
            await self._store.thin_out(run_id, [entry.number for entry in going], whole=whole)
        self._checkpoints += [CheckpointInfo(run_id, entry.checkpoint_id, entry.number) for entry in going]

    async def _looked_at(self, gap: Sequence[Entry], follower: Entry) -> list[Record] | None:
        """What has to be stored whole if neighbours go; None if that would take more space than it gives back."""
        run_id, first, last = follower.run_id, gap[-1].number, gap[0].number
        if follower.frame:
            size = await _size(self._store, run_id, first, last)
            self._bytes += size
            return []
        chain = await self._store.chain(run_id, follower.number)
        if not chain:
            return None  # the run went meanwhile
        checkpoint, commit = fold(chain, DEFAULT_CODEC)[-1]
        whole = record(commit, checkpoint, framed=True)
        size = sum(len(one.body) for one in chain if first <= one.entry.number <= last)
        size -= len(whole.body) - len(chain[-1].body)
        if size <= 0:
            return None
        self._bytes += size
        return [whole]


def _gaps(entries: Mapping[int, Entry], numbers: Sequence[int]) -> Iterator[tuple[list[Entry], Entry]]:
    """Numbers that go, newest first, in pieces that can go each for itself, each with what comes after it: none reaches
    over something that stays, or over a frame, which needs nothing of what is before it."""
    above = dict(pairwise(sorted(entries)))
    piece: list[int] = []

    def cut() -> tuple[list[Entry], Entry]:
        return [entries[number] for number in piece], entries[above[piece[0]]]

    for number in numbers:
        if piece and (above[number] != piece[-1] or entries[piece[-1]].frame):
            yield cut()
            piece = []
        piece.append(number)
    if piece:
        yield cut()


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
        size += sum(len(one.body) for one in page)
    return size


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _nobody_listens() -> None:
    """A run that is about to go takes nothing in."""
