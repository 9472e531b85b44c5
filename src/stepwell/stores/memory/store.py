"""A store in memory: for tests, experiments and runs that need not outlive their process."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.lease import LEASE, Lease, Owner
from stepwell.storage.port import (
    ANY_RUN,
    NO_EFFECTS,
    CommitEffects,
    Entry,
    Pending,
    Record,
    RunEntry,
    RunFilter,
    RunMetadata,
    Wake,
    fence_error,
    follower_error,
    newest_error,
)
from stepwell.stores.memory.records import MemoryRecords, MemoryRun, refuse_another_workflow
from stepwell.stores.request_order import page_of


@dataclass(slots=True)
class _Signals:
    """The signals of one run."""

    pending: dict[str, bytes] = field(default_factory=dict)  # by key, oldest first
    used: set[str] = field(default_factory=set)  # every key ever used; consumed ones are tombstones


class MemoryStore:
    """Everything in dictionaries.

    Keeps every promise of `Store` except that of outliving the process.

    No method awaits anything, so one lock makes each of them a transaction.
    """

    unbroken = True  # a write, once begun, completes even if its caller is cancelled
    in_order = True  # writes take effect in the order in which they were begun

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = MemoryRecords()
        self._logs: dict[str, dict[int, dict[str, bytes]]] = {}  # superstep logs by run and place
        self._signals: dict[str, _Signals] = {}
        self._requests: dict[str, dict[str, Pending]] = {}
        self._wakes: dict[str, Wake] = {}
        self._leases: dict[str, Lease] = {}
        # Of the last lease of each run. It outlives the lease, because fences must keep rising.
        self._fences: dict[str, int] = {}

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        with self._lock:
            # All checks come before the first change: a refused append must leave no trace.
            self._check_fence(entry.run_id, effects.fence)
            run = self._records.runs.get(entry.run_id)
            latest = run.latest if run else -1
            if entry.number != latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            run = self._records.add(record)
            self._apply_effects(run, effects)
            for request_id in effects.closed:
                self._requests.get(entry.run_id, {}).pop(request_id, None)
            self._open_requests(entry, effects)

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        with self._lock:
            self._check_fence(entry.run_id, effects.fence)
            run = self._records.add(record)
            self._apply_effects(run, effects)
            if entry.number == run.latest:
                self._requests.pop(entry.run_id, None)
                self._open_requests(entry, effects)

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        with self._lock:
            run = self._records.runs.get(run_id)
            if run is None or number not in run.records:
                return False
            removed, was_newest = run.records[number].entry, number == run.latest
            after = run.records.get(number + 1)
            if after is not None and follower is None and not after.entry.is_snapshot:
                raise follower_error(run_id, number)
            if after is not None and follower is not None:
                self._records.replace(follower)
            self._records.remove(run, number)
            if not run.records:
                self._forget_run(run_id)
                return True
            self._drop_log_after(run_id, run.latest)
            if was_newest:
                self._requests.pop(run_id, None)
                self._open_requests(removed, CommitEffects(asked=asked, wake=wake))
            return True

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        with self._lock:
            run = self._records.runs.get(run_id)
            if run is None:
                return 0
            going = {number for number in numbers if number in run.records}
            if run.latest in going:
                raise newest_error(run_id, run.latest)
            replacements = {record.entry.number: record for record in rewritten}
            for number in going:
                after = run.records.get(number + 1)
                if after is not None and number + 1 not in going | replacements.keys() and not after.entry.is_snapshot:
                    raise follower_error(run_id, number)
            staying = [
                record for number, record in replacements.items() if number in run.records and number not in going
            ]
            for record in staying:  # check all before changing any
                refuse_another_workflow(run, record.entry)
            for record in staying:
                self._records.replace(record)
            for number in going:
                self._records.remove(run, number)
            return len(going)

    async def drop(self, run_id: str) -> bool:
        with self._lock:
            run = self._records.runs.get(run_id)
            if run is None:
                return False
            self._records.drop(run)
            self._leases.pop(run_id, None)
            self._forget_run(run_id)
            return True

    # ---------------------------------------------------------------- reading

    async def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        tags: Mapping[str, str] | None = None,
        inner: bool = False,
        run_filter: RunFilter = ANY_RUN,
        past: RunEntry | None = None,
        limit: int | None = None,
    ) -> list[RunEntry]:
        wanted = (tags or {}).items()
        with self._lock:
            matching = (
                run.run_entry()
                for run in self._records.from_the_youngest(past)
                if workflow in (None, run.workflow)
                and status in (None, run.newest.status)
                and (inner or run.metadata.caller is None)
                and wanted <= run.metadata.tags.items()
            )
            return list(islice(filter(run_filter.matches, matching), limit))

    async def run(self, run_id: str) -> RunEntry | None:
        with self._lock:
            run = self._records.runs.get(run_id)
            return run.run_entry() if run else None

    async def head(self, run_id: str) -> Record | None:
        with self._lock:
            run = self._records.runs.get(run_id)
            return run.records[run.latest] if run else None

    async def chain(self, run_id: str, number: int) -> list[Record]:
        with self._lock:
            run = self._records.runs.get(run_id)
            if run is None or number not in run.records:
                return []
            backwards = [run.records[number]]
            while not backwards[-1].entry.is_snapshot:
                delta = backwards[-1].entry.number
                before = run.records.get(delta - 1)
                if before is None:
                    raise CheckpointCorrupt(
                        f"commit {delta} of run {run_id!r} cannot be read: it is a delta to commit {delta - 1}, "
                        f"which is not stored"
                    )
                backwards.append(before)
            return backwards[::-1]

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        with self._lock:
            run = self._records.runs.get(run_id)
            if run is None:
                return []
            end = len(run.numbers) if upto is None else bisect_right(run.numbers, upto)
            records = [run.records[number] for number in run.numbers[bisect_right(run.numbers, after) : end]]
            return [record for record in records if record.entry.outputs or not outputs_only]

    async def locate(self, checkpoint_id: str) -> Entry | None:
        with self._lock:
            located = self._records.find_checkpoint(checkpoint_id)
            return None if located is None else located[1]

    async def checkpoints(self, prefix: str, *, limit: int) -> list[Entry]:
        with self._lock:
            return self._records.find_by_prefix(prefix)[:limit]

    async def entries(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        with self._lock:
            order = self._records.order_of(workflow, run_id)
            if before is None:
                return order.page(None, limit)
            located = self._records.find_checkpoint(before)
            return [] if located is None else order.page(located[0], limit)

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        entries = await self.entries(workflow=workflow, run_id=run_id, limit=1)
        return entries[0] if entries else None

    # ---------------------------------------------------------------- superstep log and signals

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        with self._lock:
            self._check_fence(run_id, fence)
            log = self._logs.setdefault(run_id, {}).setdefault(place, {})
            if key in log:
                return False
            log[key] = body
            return True

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        with self._lock:
            return dict(self._logs.get(run_id, {}).get(place, {}))

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        with self._lock:
            signals = self._signals.setdefault(run_id, _Signals())
            if key in signals.used:
                return False
            signals.used.add(key)
            signals.pending[key] = body
            return True

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        with self._lock:
            return list(self._signals[run_id].pending.items()) if run_id in self._signals else []

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        with self._lock:
            return [run_id for run_id in run_ids if run_id in self._signals and self._signals[run_id].pending]

    async def pending(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        asked_by: str | None = None,
        due_by: str | None = None,
        past: Pending | None = None,
        limit: int | None = None,
    ) -> list[Pending]:
        with self._lock:
            requests = [request for of_run in self._requests.values() for request in of_run.values()]
        matching = [p for p in requests if workflow in (None, p.workflow) and run_id in (None, p.run_id)]
        return page_of(matching, asked_by, due_by, past, limit)

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        with self._lock:
            wakes = list(self._wakes.values())
        due = [wake for wake in wakes if workflow in (None, wake.workflow) and (before is None or wake.at <= before)]
        return sorted(due, key=lambda wake: (wake.at, wake.run_id))

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        with self._lock:
            lease = self._leases.get(run_id)
            if lease is not None and lease.owner != owner and not lease.is_over():
                raise lease.busy_error(run_id)
            self._leases[run_id] = Lease(owner, owner.clock() + seconds)
            self._fences[run_id] = fence = self._fences.get(run_id, 0) + 1
            return fence

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        with self._lock:
            for run_id, fence in fences.items():
                # A released lease is not brought back, and that of another owner is left alone.
                lease = self._leases.get(run_id)
                if lease is not None and self._fences[run_id] == fence:
                    self._leases[run_id] = Lease(lease.owner, lease.owner.clock() + seconds)
            return [run_id for run_id, fence in fences.items() if self._fences.get(run_id, 0) > fence]

    async def release(self, run_id: str, owner: Owner) -> None:
        with self._lock:
            lease = self._leases.get(run_id)
            if lease is not None and lease.owner == owner:
                del self._leases[run_id]
                self._forget_fence(run_id)

    async def compact(self) -> int:
        return 0  # deleted data takes no space

    async def close(self) -> None:
        """Do nothing: what is stored lives as long as this object."""

    # ---------------------------------------------------------------- helpers; the lock is held

    def _check_fence(self, run_id: str, fence: int | None) -> None:
        """Refuse a write under a lease that another has followed."""
        if fence is not None and self._fences.get(run_id, 0) > fence:
            raise fence_error(run_id, fence)

    def _apply_effects(self, run: MemoryRun, effects: CommitEffects) -> None:
        """Apply the effects of a record, except those that only the newest record has.

        Requests and the wake-up time are set by `_open_requests`.
        """
        if effects.drop_log_through is not None:
            places = self._logs.get(run.run_id, {})
            for place in [p for p in places if p <= effects.drop_log_through]:
                del places[place]
        for key in effects.consumed:
            # A key may be consumed that was never sent here: it counts as used all the same.
            signals = self._signals.setdefault(run.run_id, _Signals())
            signals.used.add(key)
            signals.pending.pop(key, None)
        if effects.metadata is not None:
            # A copy: the caller's dict may change later.
            run.metadata = RunMetadata(dict(effects.metadata.tags), effects.metadata.caller)
        for record in effects.reduced:
            if record.entry.number in run.records:
                self._records.replace(record)
        if effects.drop_below is not None:
            self._records.drop_below(run, effects.drop_below)

    def _open_requests(self, entry: Entry, effects: CommitEffects) -> None:
        """Open the requests of a record, and set or clear the wake-up time."""
        requests = self._requests.setdefault(entry.run_id, {})
        for request in effects.asked:
            requests.pop(request.request_id, None)  # one that is asked again moves to the end
            requests[request.request_id] = request
        self._wakes.pop(entry.run_id, None)
        if effects.wake is not None:
            self._wakes[entry.run_id] = Wake(entry.run_id, entry.workflow, effects.wake)

    def _forget_run(self, run_id: str) -> None:
        """Forget what belongs to a run without records."""
        for by_run in (self._logs, self._signals, self._requests, self._wakes):
            by_run.pop(run_id, None)
        self._forget_fence(run_id)

    def _forget_fence(self, run_id: str) -> None:
        """Forget the fence of a run without records and lease: there is nothing to protect."""
        if run_id not in self._records.runs and run_id not in self._leases:
            self._fences.pop(run_id, None)

    def _drop_log_after(self, run_id: str, place: int) -> None:
        places = self._logs.get(run_id, {})
        for stale in [other for other in places if other > place]:
            del places[stale]


class InMemoryCheckpointStorage(BuiltInStorage):
    """Runs in the memory of this process, for tests and short-lived programs; lost when it ends."""

    def __init__(self, *, seal: Seal | None = None, retention: Retention = FullHistory, lease: float = LEASE) -> None:
        super().__init__(MemoryStore(), seal=seal, retention=retention, lease=lease)
