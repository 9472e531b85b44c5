"""Old checkpoints and runs are taken away, and whatever stays can be read and goes on as before."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..core.errors import RunBusy
from ..core.events import CheckpointInfo
from ..durable import clock
from ..durable.archive import StoreArchive, fold, parent_of, record
from ..durable.codec import DEFAULT_CODEC
from ..durable.ids import new_run_id
from ..durable.ownership import this_process
from ..durable.ports import Entry, RunEntry, Store
from ..durable.storage import BuiltInStorage
from ..durable.wire import header_of, read_commit
from ..runtime import claims
from .keeping import Keep, Known, what_goes

_PAGE = 500


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What went, or would go: whole runs, single checkpoints, and how many bytes of text that is."""

    runs: tuple[str, ...]
    checkpoints: tuple[CheckpointInfo, ...]
    bytes: int  # of the stored texts; what a store needs around them is not counted
    skipped: dict[str, str] = field(default_factory=dict)  # runs that could not go, and why
    dry_run: bool = False

    def lines(self) -> list[str]:
        """In words."""
        verb = "would go" if self.dry_run else "gone"
        runs, checkpoints = _counted(len(self.runs), "run"), _counted(len(self.checkpoints), "checkpoint")
        head = f"{verb}: {runs} and {checkpoints} of other runs, {self.bytes:,} bytes"
        return [head, *(f"left alone: {id}: {why}" for id, why in self.skipped.items())]


async def prune(
    storage: BuiltInStorage, policy: Keep, *, named: Collection[str] = (), dry_run: bool = False
) -> PruneReport:
    """Take away what the policy does not keep; with `dry_run`, only say what that would be.

    Runs with open questions are left alone, except those whose ids are `named`. What stays, stays readable: a
    checkpoint that was stored as what changed is stored whole before those it is based on go, and if that took more
    space than it gave back, they stay. It may end anywhere, also by a crash: what is left is whole, and the next call
    goes on. Runs that somebody drives, or that moved on meanwhile, are skipped as a whole.

    Reads the list of runs, the list of each run's checkpoints, one frame of each run for its lineage, and what goes.
    """
    known = {one.run.run_id: one for one in await _known(storage.store)}
    made = _Pruning(storage.store, known, dry_run)
    removal = what_goes(policy, list(known.values()), clock.now(), named)
    for run_id in removal.runs:
        await made.drop(run_id)
    for run_id, numbers in removal.checkpoints.items():
        await made.thin_out(run_id, numbers)
    return PruneReport(tuple(made.runs), tuple(made.checkpoints), made.bytes, made.skipped, dry_run)


class _Pruning:
    """One call of `prune`, and what it has done so far."""

    def __init__(self, store: Store, known: Mapping[str, Known], dry_run: bool) -> None:
        self._store, self._known, self._dry = store, known, dry_run
        self.runs: list[str] = []
        self.checkpoints: list[CheckpointInfo] = []
        self.skipped: dict[str, str] = {}
        self.bytes = 0

    async def drop(self, run_id: str) -> None:
        """Take a whole run away, if nobody drives it and nobody who was skipped needs it."""
        size = sum(len(one.body) for one in await self._store.history(run_id))
        why = self._needed(run_id)
        if why is None and not self._dry:
            why = await self._dropped(run_id)
        if why is not None:
            self.skipped[run_id] = why
            return
        self.runs.append(run_id)
        self.bytes += size

    def _needed(self, run_id: str) -> str | None:
        for id in self.skipped:
            parent = self._known[id].parent
            if self._known[run_id].run.about.caller == id or (parent is not None and parent[0] == run_id):
                return f"run {id!r} stays, and needs it"
        return None

    async def _dropped(self, run_id: str) -> str | None:
        """Drop a run; in words, why not."""
        archive = StoreArchive(self._store, DEFAULT_CODEC)
        try:
            held = await claims.claim(archive, run_id, this_process(new_run_id()), _nobody_listens)
        except RunBusy as busy:
            return f"it is being driven by {busy.owner}"
        try:
            head = await self._store.head(run_id)
            if head is not None and head.entry.checkpoint_id != self._known[run_id].run.checkpoint_id:
                return "it has moved on meanwhile"
            if await self._store.mail(run_id) and self._known[run_id].run.about.caller is None:
                return "something was sent to it meanwhile"
            await self._store.drop(run_id)
            return None
        finally:
            await claims.let_go(held)

    async def thin_out(self, run_id: str, numbers: Sequence[int]) -> None:
        """Take checkpoints of a run away, given newest first."""
        entries = {entry.number: entry for entry in self._known[run_id].entries}
        for gap in _gaps(entries, numbers):
            await self._take_out([entries[number] for number in gap], _after(entries, gap))

    async def _take_out(self, gap: Sequence[Entry], follower: Entry) -> None:
        """Take neighbours out, newest first: only the first of them is something that stays based on."""
        run_id, first, last = follower.run_id, gap[-1].number, gap[0].number
        going = {entry.number for entry in gap}
        texts = [
            one for one in await self._store.history(run_id, after=first - 1, upto=last) if one.entry.number in going
        ]
        size, whole = sum(len(one.body) for one in texts), None
        if not follower.frame:
            chain = await self._store.chain(run_id, follower.number)
            if not chain:
                return  # the run went meanwhile
            checkpoint, commit = fold(chain, DEFAULT_CODEC)[-1]
            whole = record(commit, checkpoint, framed=True)
            size -= len(whole.body) - len(chain[-1].body)
            if size <= 0:
                return  # it would take more space than it gives back
        for entry in gap:
            if not self._dry:
                await self._store.remove(run_id, entry.number, follower=whole)
            self.checkpoints.append(CheckpointInfo(run_id, entry.checkpoint_id, entry.number))
            whole = None  # the next one down is followed by a gap
        self.bytes += size


def _gaps(entries: Mapping[int, Entry], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Numbers that go, newest first, in pieces that can go each for itself: none reaches over something that stays, or
    over a frame, which needs nothing of what is before it."""
    stored = sorted(entries)
    above = dict(pairwise(stored))
    piece: list[int] = []
    for number in numbers:
        if piece and (above[number] != piece[-1] or entries[piece[-1]].frame):
            yield piece
            piece = []
        piece.append(number)
    if piece:
        yield piece


def _after(entries: Mapping[int, Entry], gap: Sequence[int]) -> Entry:
    return entries[min(number for number in entries if number > gap[0])]


async def _known(store: Store) -> list[Known]:
    asking = {one.run_id for one in await store.pending()}
    found: list[Known] = []
    past: RunEntry | None = None
    while page := await store.runs(inner=True, past=past, limit=_PAGE):
        mailed = set(await asyncio.to_thread(store.mailed, [run.run_id for run in page]))
        for run in page:
            entries = tuple(sorted(await store.entries(run_id=run.run_id), key=lambda one: one.number))
            if entries:  # else it went meanwhile
                parent = await _parent(store, entries)
                found.append(Known(run, entries, parent, run.run_id in asking, run.run_id in mailed))
        past = page[-1]
    return found


async def _parent(store: Store, entries: Sequence[Entry]) -> tuple[str, int] | None:
    """What a run was forked from. Any frame of it says so; the first is the cheapest to find."""
    first = next((entry for entry in entries if entry.frame), entries[-1])
    chain = await store.chain(first.run_id, first.number)
    return await parent_of(store, header_of(read_commit(chain[0], DEFAULT_CODEC)[1])) if chain else None


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _nobody_listens() -> None:
    """A run that is about to go takes nothing in."""
