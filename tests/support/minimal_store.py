"""A durable back end, as small as one can be: written from docs/writing-a-store.md and the rules alone.

Each run is one JSON file, which every write replaces as a whole. A transaction is: lock the folder, read the file of
the run, change what was read, and replace the file if that made a difference. Simple, not fast: lists read everything.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from stepwell.errors import CheckpointCorrupt, StoreUnavailable
from stepwell.storage import conflicts, filters
from stepwell.storage import stored_values as stored
from stepwell.storage.filters import ANY_CHECKPOINT, ANY_REQUEST, TOP_RUNS, CheckpointFilter, RequestFilter, RunFilter
from stepwell.storage.ids import says_its_location
from stepwell.storage.lease import Lease, Owner
from stepwell.storage.rewrite_plan import plan_rewrite
from stepwell.storage.stored_values import LogEffects, RequestEntry

T = TypeVar("T")
LOG = stored.NO_LOG_EFFECTS


class Run(msgspec.Struct):
    """Everything that is stored of one run. It may have no records (yet): then no list shows it."""

    run_id: str
    workflow: str = ""
    began: str = ""
    metadata: stored.RunMetadata = stored.RunMetadata()
    requests: dict[str, RequestEntry] = {}
    wake: str | None = None
    lease: Lease | None = None
    fence: int = 0
    records: dict[int, stored.Record] = {}
    log: dict[str, stored.LogRow] = {}
    signals: dict[str, stored.SignalRow | None] = {}  # None: consumed, the key is a tombstone

    @property
    def latest(self) -> int:
        return max(self.records, default=-1)

    @property
    def entry(self) -> stored.RunEntry:
        newest = self.records[self.latest].entry
        where = (newest.status, newest.number, newest.checkpoint_id, newest.iteration, newest.at, self.began)
        how = (self.metadata, self.wake, bool(self.pending()), self.lease)
        return stored.RunEntry(self.run_id, self.workflow, *where, *how)

    def read(self, number: int | None) -> list[stored.Record]:
        number = self.latest if number is None else number
        if number not in self.records:
            return []
        numbers = sorted(n for n in self.records if n <= number)
        start = max((n for n in numbers if self.records[n].entry.is_snapshot), default=numbers[0])
        records = [self.records[n] for n in numbers if n >= start]
        conflicts.check_chain(self.run_id, number, records)
        return records

    def pending(self) -> list[stored.SignalRow]:
        return [signal for signal in self.signals.values() if signal is not None]

    def store(self, record: stored.Record) -> None:
        if not self.records:
            self.workflow, self.began = record.entry.workflow, record.entry.at
        conflicts.check_workflow(record.entry, self.workflow)
        self.records[record.entry.number] = record

    def acquire(self, owner: Owner, seconds: float) -> int:
        if self.lease is not None and self.lease.owner != owner and not self.lease.is_over():
            raise self.lease.busy_error(self.run_id)
        self.lease, self.fence = Lease(owner, owner.clock() + seconds), self.fence + 1
        return self.fence

    def release(self, owner: Owner, *, stalls: bool) -> None:
        if self.lease is not None and self.lease.owner == owner:
            self.lease = Lease(owner, 0.0) if stalls and self.records else None

    def forget(self, lease: Lease | None) -> bool:
        self.records, self.log, self.signals, self.requests = {}, {}, {}, {}
        self.workflow, self.began, self.metadata, self.wake, self.lease = "", "", stored.RunMetadata(), None, lease
        return True

    def apply(self, effects: stored.CommitEffects, *, is_newest: bool) -> None:
        """Apply the effects of a record; if it is not the newest, it changes neither requests nor wake-up time."""
        through, below = effects.drop_log_through, effects.drop_below
        self.log = {key: row for key, row in self.log.items() if through is None or row.place > through}
        self.metadata = effects.metadata or self.metadata
        self.records.update({r.entry.number: r for r in effects.reduced if r.entry.number in self.records})
        self.records = {n: r for n, r in self.records.items() if below is None or n >= below or r.entry.outputs}
        self.wake = effects.wake if is_newest else self.wake
        self.change(effects if is_newest else LogEffects(consumed=effects.consumed))

    def change(self, effects: stored.CommitEffects | LogEffects) -> bool:
        self.signals.update(dict.fromkeys(effects.consumed))
        for request_id in (*effects.closed, *(request.request_id for request in effects.asked)):
            self.requests.pop(request_id, None)  # one that is asked again moves to the end
        self.requests |= {request.request_id: request for request in effects.asked}
        return True


class MinimalStore:
    """A folder, which must exist, with a file for each run and one that is locked."""

    completes_writes = keeps_order = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def append(self, record: stored.Record, effects: stored.CommitEffects = stored.NO_EFFECTS) -> None:
        def work(run: Run) -> None:
            conflicts.check_follows(record.entry, run.latest)
            wake = stored.ready_from(run.wake, effects.wake, record.entry.at)
            run.store(record)
            run.apply(effects, is_newest=True)
            run.wake = wake
            if effects.release and effects.fence == run.fence:
                run.lease = None

        await self._change(record.entry.run_id, work, effects.fence)

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> stored.OpenedRun:
        def work(run: Run) -> stored.OpenedRun:
            fence = None if owner is None else run.acquire(owner, seconds)
            return stored.OpenedRun(run.read(None), [*run.log.values()], run.pending(), fence)

        return await self._change(run_id, work)

    async def read(self, run_id: str, number: int | None = None) -> list[stored.Record]:
        return await self._change(run_id, lambda run: run.read(number))

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[stored.Record]:
        records = await self._change(run_id, lambda run: [run.records[number] for number in sorted(run.records)])
        within = [each for each in records if each.entry.number > after and (upto is None or each.entry.number <= upto)]
        return [record for record in within if record.entry.outputs or not outputs_only]

    async def write_log(
        self, run_id: str, place: int, key: str, body: bytes, *, effects: LogEffects = LOG, fence: int | None = None
    ) -> bool:
        row, name = stored.LogRow(place, key, body), f"{place}/{key}"
        return await self._change(run_id, lambda r: r.log.setdefault(name, row) is row and r.change(effects), fence)

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> None:
        return None

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        signal = stored.SignalRow(key, body)
        return await self._change(run_id, lambda run: run.signals.setdefault(key, signal) is signal, fence)

    async def pending_signals(self, run_id: str) -> list[stored.SignalRow]:
        return await self._change(run_id, Run.pending)

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self._change(run_id, lambda run: run.acquire(owner, seconds))

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> stored.LeaseReport:
        def work(run: Run) -> tuple[bool, bool]:
            lease = run.lease if run.fence == fences[run.run_id] else None
            if seconds is not None and lease is not None and not lease.was_released:
                run.lease = Lease(lease.owner, lease.owner.clock() + seconds)
            return run.fence > fences[run.run_id], bool(run.pending())

        report = self._with_lock(lambda: {run_id: self._change_now(run_id, work) for run_id in fences})
        lost = [run_id for run_id, (is_lost, _) in report.items() if is_lost]
        return stored.LeaseReport(lost, [run_id for run_id, (_, is_signalled) in report.items() if is_signalled])

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self._change(run_id, lambda run: run.release(owner, stalls=stalls))

    async def run(self, run_id: str) -> stored.RunEntry | None:
        return await self._change(run_id, lambda run: run.entry if run.records else None)

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: stored.RunEntry | None = None, limit: int | None = None
    ) -> list[stored.RunEntry]:
        return run_filter.page([run.entry for run in await self._all() if run.records], past, limit)

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: stored.Entry | None = None,
        limit: int | None = None,
    ) -> list[stored.Entry]:
        every = [record.entry for run in await self._all() for record in run.records.values()]
        return checkpoint_filter.page(every, before, limit)

    async def locate(self, checkpoint_id: str) -> stored.Entry | None:
        matching = [entry for entry in await self.checkpoints() if entry.checkpoint_id == checkpoint_id]
        return max(matching, key=lambda entry: (says_its_location(entry), entry.at), default=None)

    async def requests(
        self, request_filter: RequestFilter = ANY_REQUEST, *, past: RequestEntry | None = None, limit: int | None = None
    ) -> list[RequestEntry]:
        runs, show = [run for run in await self._all() if run.records], filters.shows_requests
        every = [r for r in runs if request_filter.stopped or show(r.entry.status, has_owner=r.lease is not None)]
        return request_filter.page([request for run in every for request in run.requests.values()], past, limit)

    async def ready(self, ready_filter: filters.ReadyFilter, *, limit: int | None = None) -> list[stored.RunEntry]:
        return ready_filter.page([run.entry for run in await self._all() if run.records], limit)

    async def rewrite(
        self,
        run_id: str,
        *,
        insert: stored.Record | None = None,
        replace: Sequence[stored.Record] = (),
        remove: Sequence[int] = (),
        effects: stored.CommitEffects | None = None,
    ) -> int:
        def work(run: Run) -> int:
            old = {number: record.entry for number, record in run.records.items()}
            plan = plan_rewrite(run_id, old, run.fence, insert=insert, replace=replace, remove=remove, effects=effects)
            for record in plan.store:
                run.store(record)
            run.records = {number: record for number, record in run.records.items() if number not in plan.remove}
            if plan.remove and not run.records:
                run.forget(run.lease)
            run.log = {key: row for key, row in run.log.items() if row.place <= run.latest or not run.records}
            if effects is not None and run.records:
                run.requests = {} if plan.is_new_head else run.requests
                run.apply(effects, is_newest=plan.is_new_head)
            return len(plan.remove)

        return await self._change(run_id, work)

    async def drop(self, run_id: str) -> bool:
        return await self._change(run_id, lambda run: bool(run.records) and run.forget(None))

    async def survey(self) -> stored.Survey:
        def load() -> stored.Survey:
            runs, damaged = [], []
            for path in sorted(self._folder.glob("*.json")):
                try:
                    runs += [run.entry] if (run := self._load(path)).records else []
                except CheckpointCorrupt as error:
                    damaged.append(stored.DamagedRun(None, str(error)))
            return stored.Survey(runs, damaged)

        return await asyncio.to_thread(self._with_lock, load)

    async def numbers(self, run_id: str) -> list[int]:
        return await self._change(run_id, lambda run: sorted(run.records))

    async def close(self) -> None: ...
    async def compact(self) -> int:
        return 0  # a file contains nothing that was deleted

    async def _change(self, run_id: str, work: Callable[[Run], T], fence: int | None = None) -> T:
        """Apply `work` to a run in one transaction: if it raises, or the lease was lost, nothing has changed."""
        return await asyncio.to_thread(self._with_lock, lambda: self._change_now(run_id, work, fence))

    async def _all(self) -> list[Run]:
        return await asyncio.to_thread(self._with_lock, lambda: [*map(self._load, self._folder.glob("*.json"))])

    def _with_lock(self, work: Callable[[], T]) -> T:
        """Lock the folder, against other programs and against other threads of this one."""
        try:
            with (self._folder / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
                return work()
        except OSError as error:
            raise StoreUnavailable(f"cannot use {self._folder}: {error}") from error

    def _change_now(self, run_id: str, work: Callable[[Run], T], fence: int | None = None) -> T:
        # Any text may be a run id, but not a file name.
        path = self._folder / f"{sha256(run_id.encode()).hexdigest()}.json"
        run = self._load(path) if path.exists() else Run(run_id)
        before = msgspec.json.encode(run)
        conflicts.check_fence(run_id, fence, run.fence)
        result = work(run)
        if (after := msgspec.json.encode(run)) != before:
            with path.with_suffix(".new").open("wb") as file:
                file.write(after)
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, path)
            folder = os.open(self._folder, os.O_RDONLY)
            os.fsync(folder)  # the new name is durable, too
            os.close(folder)
        return result

    def _load(self, path: Path) -> Run:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Run)
        except msgspec.DecodeError as error:
            raise CheckpointCorrupt(f"{path} is damaged: {error}; restore it from a backup") from error
