"""A store in memory: for tests, experiments and runs that need not outlive their process."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.conflicts import check_fence, check_follows, check_workflow
from stepwell.storage.encryption import Seal
from stepwell.storage.filters import (
    ANY_CHECKPOINT,
    ANY_REQUEST,
    ANY_RUN,
    EVERY_RUN,
    CheckpointFilter,
    RequestFilter,
    RunFilter,
)
from stepwell.storage.ids import place_of, run_hash
from stepwell.storage.lease import LEASE, Lease, Owner
from stepwell.storage.rewrite_plan import plan_rewrite
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    CommitEffects,
    Entry,
    LeaseReport,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    RunMetadata,
    SignalRow,
    Survey,
    Wake,
)
from stepwell.stores.memory.records import MemoryRun


class MemoryStore:
    """Everything in dictionaries.

    Keeps every promise of `Store` except that of outliving the process.

    No method awaits anything, so one lock makes each of them a transaction.
    """

    completes_writes = True
    keeps_order = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, MemoryRun] = {}
        # Of runs with records: when it began and its id, sorted; and its id by the hash of it.
        self._by_age: list[tuple[str, str]] = []
        self._by_hash: dict[int, str] = {}

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        with self._lock:
            # All checks come before the first change: a refused append must leave no trace.
            run = self._run(entry.run_id)
            check_fence(entry.run_id, effects.fence, run.fence)
            check_follows(entry, run.latest)
            self._store(run, record)
            self._apply(run, effects)
            for request_id in effects.closed:
                run.requests.pop(request_id, None)
            _open_requests(run, effects)
            if effects.release and run.fence == effects.fence:
                run.lease = None

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        with self._lock:
            fence = None if owner is None else self._acquire(run_id, owner, seconds)
            run = self._runs.get(run_id)
            if run is None:
                return OpenedRun(fence=fence)
            return OpenedRun(run.read(run.latest), run.log_rows(), _pending(run), fence)

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        with self._lock:
            run = self._runs.get(run_id)
            return [] if run is None else run.read(run.latest if number is None else number)

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        with self._lock:
            records = self._runs[run_id].between(after, upto) if run_id in self._runs else []
        return [record for record in records if record.entry.outputs or not outputs_only]

    # ---------------------------------------------------------------- superstep log and signals

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        with self._lock:
            run = self._run(run_id)
            check_fence(run_id, fence, run.fence)
            if (place, key) in run.log:
                return False
            run.log[place, key] = body
            return True

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> None:
        return None

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        with self._lock:
            run = self._run(run_id)
            if key in run.used_keys:
                return False
            run.used_keys.add(key)
            run.signals[key] = body
            return True

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        with self._lock:
            return _pending(self._runs[run_id]) if run_id in self._runs else []

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        with self._lock:
            return self._acquire(run_id, owner, seconds)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        with self._lock:
            held = {run_id: self._runs[run_id] for run_id in fences if run_id in self._runs}
            for run_id, run in held.items():
                # A released lease is not brought back, and that of another owner is left alone.
                if seconds is not None and run.lease is not None and run.fence == fences[run_id]:
                    run.lease = Lease(run.lease.owner, run.lease.owner.clock() + seconds)
            lost = [run_id for run_id, run in held.items() if run.fence > fences[run_id]]
            return LeaseReport(lost, [run_id for run_id, run in held.items() if run.signals])

    async def release(self, run_id: str, owner: Owner) -> None:
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None and run.lease is not None and run.lease.owner == owner:
                run.lease = None
                self._forget_if_empty(run)

    # ---------------------------------------------------------------- lists

    async def run(self, run_id: str) -> RunEntry | None:
        with self._lock:
            run = self._runs.get(run_id)
            return run.entry if run is not None and run.records else None

    async def runs(
        self, run_filter: RunFilter = ANY_RUN, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        with self._lock:
            return list(islice(filter(run_filter.matches, self._from_the_youngest(past)), limit))

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        run_id = checkpoint_filter.run_id
        with self._lock:
            runs = self._runs.values() if run_id is None else filter(None, [self._runs.get(run_id)])
            entries = [record.entry for run in runs for record in run.records.values()]
        return checkpoint_filter.page(entries, before, limit)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        place = place_of(checkpoint_id)
        with self._lock:
            if place is not None and (run_id := self._by_hash.get(place.run_hash)) is not None:
                record = self._runs[run_id].records.get(place.number)
                if record is not None and record.entry.checkpoint_id == checkpoint_id:
                    return record.entry
            # An id that was made elsewhere: looked for everywhere.
            stored = [r.entry for run in self._runs.values() for r in run.records.values()]
        return max((e for e in stored if e.checkpoint_id == checkpoint_id), key=lambda entry: entry.at, default=None)

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        with self._lock:
            requests = [request for run in self._runs.values() for request in run.requests.values()]
        return request_filter.page(requests, past, limit)

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        with self._lock:
            wakes = [Wake(run.run_id, run.workflow, run.wake) for run in self._runs.values() if run.wake is not None]
        due = [wake for wake in wakes if workflow in (None, wake.workflow) and (before is None or wake.at <= before)]
        return sorted(due, key=lambda wake: (wake.at, wake.run_id))

    # ---------------------------------------------------------------- maintenance

    async def rewrite(
        self,
        run_id: str,
        *,
        insert: Record | None = None,
        replace: Sequence[Record] = (),
        remove: Sequence[int] = (),
        effects: CommitEffects | None = None,
    ) -> int:
        with self._lock:
            if insert is None and run_id not in self._runs:
                return 0
            run = self._run(run_id)
            entries = {number: record.entry for number, record in run.records.items()}
            plan = plan_rewrite(
                run_id, entries, run.fence, insert=insert, replace=replace, remove=remove, effects=effects
            )
            for record in plan.store:
                self._store(run, record)
            run.remove(plan.remove)
            if not run.records:
                if plan.remove:
                    self._drop(run)
                return len(plan.remove)
            run.drop_log(above=run.latest)
            if effects is not None:
                self._apply(run, effects)
                if plan.is_new_head:
                    run.requests.clear()
                    _open_requests(run, effects)
            return len(plan.remove)

    async def drop(self, run_id: str) -> bool:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or not run.records:
                return False
            run.lease = None
            self._drop(run)
            return True

    async def survey(self) -> Survey:
        return Survey(await self.runs(EVERY_RUN))

    async def numbers(self, run_id: str) -> list[int]:
        with self._lock:
            return list(self._runs[run_id].numbers) if run_id in self._runs else []

    async def compact(self) -> int:
        return 0  # deleted data takes no space

    async def close(self) -> None:
        """Do nothing: what is stored lives as long as this object."""

    # ---------------------------------------------------------------- the lock is held

    def _run(self, run_id: str) -> MemoryRun:
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = MemoryRun(run_id)
        return run

    def _store(self, run: MemoryRun, record: Record) -> None:
        entry = record.entry
        if not run.records:
            run.workflow, run.began = entry.workflow, entry.at
            insort(self._by_age, (entry.at, entry.run_id))
            self._by_hash[run_hash(entry.run_id)] = entry.run_id
        check_workflow(entry, run.workflow)
        run.store(record)

    def _apply(self, run: MemoryRun, effects: CommitEffects) -> None:
        """Apply the effects of a record, except those that only the newest record has.

        Requests and the wake-up time are set by `_open_requests`.
        """
        if effects.drop_log_through is not None:
            run.drop_log(through=effects.drop_log_through)
        for key in effects.consumed:
            run.used_keys.add(key)
            run.signals.pop(key, None)
        if effects.metadata is not None:
            # A copy: the caller's dict may change later.
            run.metadata = RunMetadata(dict(effects.metadata.tags), effects.metadata.caller)
        for record in effects.reduced:
            if record.entry.number in run.records:
                run.store(record)
        if effects.drop_below is not None:
            older = run.numbers[: bisect_left(run.numbers, effects.drop_below)]
            run.remove(number for number in older if not run.records[number].entry.outputs)

    def _acquire(self, run_id: str, owner: Owner, seconds: float) -> int:
        run = self._run(run_id)
        if run.lease is not None and run.lease.owner != owner and not run.lease.is_over():
            raise run.lease.busy_error(run_id)
        run.lease = Lease(owner, owner.clock() + seconds)
        run.fence += 1
        return run.fence

    def _from_the_youngest(self, past: RunEntry | None) -> Iterator[RunEntry]:
        """Yield the runs that began before `past`, latest start first."""
        end = len(self._by_age) if past is None else bisect_left(self._by_age, (past.began, past.run_id))
        for n in reversed(range(end)):
            yield self._runs[self._by_age[n][1]].entry

    def _drop(self, run: MemoryRun) -> None:
        """Forget a run, except for a lease that is held and its fence, and start it anew if one is."""
        del self._by_age[bisect_left(self._by_age, (run.began, run.run_id))]
        self._by_hash.pop(run_hash(run.run_id), None)
        self._runs[run.run_id] = kept = MemoryRun(run.run_id, lease=run.lease, fence=run.fence)
        self._forget_if_empty(kept)

    def _forget_if_empty(self, run: MemoryRun) -> None:
        """Forget the fence of a run without records and lease: there is nothing to protect."""
        if run.lease is None and not (run.records or run.log or run.used_keys):
            del self._runs[run.run_id]


def _pending(run: MemoryRun) -> list[SignalRow]:
    return [SignalRow(key, body) for key, body in run.signals.items()]


def _open_requests(run: MemoryRun, effects: CommitEffects) -> None:
    """Open the requests of a record, and set or clear the wake-up time."""
    for request in effects.asked:
        run.requests.pop(request.request_id, None)  # one that is asked again moves to the end
        run.requests[request.request_id] = request
    run.wake = effects.wake


class InMemoryCheckpointStorage(BuiltInStorage):
    """Runs in the memory of this process, for tests and short-lived programs; lost when it ends."""

    def __init__(self, *, seal: Seal | None = None, retention: Retention = FullHistory, lease: float = LEASE) -> None:
        super().__init__(MemoryStore(), seal=seal, retention=retention, lease=lease)
