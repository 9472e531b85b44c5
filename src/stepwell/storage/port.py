"""The port: what a back end has to implement, as six small protocols.

It speaks bytes and keys, and no back end knows what a checkpoint is.

A run is one sequence of records, numbered from 0 without gaps. Beside it lies the superstep log:
what has been completed inside the superstep in progress, until that superstep commits.

The process that drives a run holds its lease and gets a fence, a number higher than any before it
for that run. A write that carries its fence is refused once a higher one has been issued, so a
driver that wakes up after a long pause cannot do harm. The package docstring of `stepwell.storage`
explains why.

Every method may be called from any event loop and any thread. Coroutines never block the loop.
Errors of a database driver become StoreUnavailable, never raw. Where a cost is stated, a store of
files, or one in memory, may look at each run instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stepwell.storage.filters import (
    ANY_CHECKPOINT,
    ANY_REQUEST,
    TOP_RUNS,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
)
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    NO_LOG_EFFECTS,
    CommitEffects,
    Entry,
    LeaseReport,
    LogEffects,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    SignalRow,
    Survey,
)
from stepwell.storage.transactions import Transaction


class RunLog(Protocol):
    """The records of runs."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        """Append the next record of its run and apply its effects, all or nothing.

        Durable on return. Raises CommitConflict unless the number is one past the latest of the run
        (0 for a new run), if the run belongs to another workflow, and if another process has
        acquired the run since `effects.fence`. One transaction; the cost grows with the record and
        its effects.
        """

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        """Return everything that is needed to continue a run, as it is at one moment.

        With an `owner`, first give it the lease, as `acquire` does: then nobody else can move the
        run. Raises RunBusy as `acquire` does, and CheckpointCorrupt as `read` does. One
        transaction, and one round trip.
        """

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        """Return the last snapshot at or before `number` (None: the newest), and each record from there to it.

        Empty if `number` is not stored. Raises CheckpointCorrupt if a record in between is missing.
        One transaction; the cost grows with these records, not with the history.
        """

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        """Return the records of a run past `after`, up to and including `upto`, oldest first."""


class SuperstepLogs(Protocol):
    """What has been completed inside supersteps that are not committed yet."""

    async def write_log(
        self,
        run_id: str,
        place: int,
        key: str,
        body: bytes,
        *,
        effects: LogEffects = NO_LOG_EFFECTS,
        fence: int | None = None,
    ) -> bool:
        """Store what was completed inside a superstep, with its effects, all or nothing.

        False, changing nothing, if the key exists. Durable on return. Raises CommitConflict if
        another process has acquired the run since `fence`.
        """

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes] | None:
        """Return a transaction whose result is stored as `write_log` does; None if there are none."""


class Signals(Protocol):
    """What is sent to runs from outside."""

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        """Store a signal for a run; False, storing nothing, if the key was ever used in it.

        Durable on return. A consumed signal counts as used: its tombstone stays. Raises
        CommitConflict, storing nothing, if another process has acquired the run since `fence`.
        """

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        """Return the signals of a run that are not consumed, oldest first."""


class Leases(Protocol):
    """Who drives which run, and until when."""

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        """Give `owner` the lease of a run, to be renewed within `seconds`; return its fence.

        The fence is higher than 0, and than that of every earlier lease of this run. Raises RunBusy if another
        owner holds a lease that is not over (`Lease.is_over`).
        """

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        """Extend leases, given as run and fence, and report how they stand.

        A lease that is no longer held is left alone. With `seconds=None` nothing is extended, and
        nothing is written. Called from a thread; may block.
        """

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        """End the lease, if `owner` still holds it. On return, any process may acquire the run.

        `stalls`: the owner leaves the run in the middle. Unless the run has no record, it keeps the owner, with a
        lease that is over and whose end is 0 (`Lease.was_released`), until somebody acquires it. That does not count as
        a takeover.
        """


class Index(Protocol):
    """Lists and searches. Bodies are never read."""

    async def run(self, run_id: str) -> RunEntry | None:
        """Return the entry of one run, even if it is a child."""

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        """Return the runs that match, latest start first: at most `limit`, continuing after `past`.

        The cost grows with the page, not with the number of runs or records, even for a range of
        start times. A prefix costs as much as there are runs with it, `due_by` as much as there are
        runs that can be driven or have signals. A filter by text, by time of change, by owner, by a
        time to sleep, or by several criteria that no index has together looks at every run that it
        passes over.
        """

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return the entries of the records that match, oldest first: by time, run and number.

        With a filter by run, the order is that of their numbers. With `limit`, the last so many;
        with `before`, those that come before that entry, which may be gone meanwhile. In one run
        the cost grows with the page; otherwise it also looks at each run that matches. With a filter by
        decisions it grows with the page or, in one run, with the records of the run.
        """

    async def locate(self, checkpoint_id: str) -> Entry | None:
        """Return the entry of the checkpoint with that id.

        If there are several, that of the run that made it; of copies elsewhere, the latest one.
        """

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        """Return the open requests that match, oldest first (by deadline, with `due_until`).

        Those of a run that is completed, failed or cancelled are left out, unless it has an owner
        (somebody drives it again, even if the lease is over), or `request_filter.stopped`.

        At most `limit`, continuing after `past`, which may have been closed meanwhile; then other
        requests that its run asked at the same moment may be repeated. The cost grows with the
        page, and with the requests of stopped runs that it passes over.
        """

    async def ready(self, ready_filter: ReadyFilter, *, limit: int | None = None) -> list[RunEntry]:
        """Return the runs that can be driven and that nobody drives, at most `limit`.

        By priority, the highest first, and then oldest first. Those whose `wake` is reached, and
        those with signals in a status of `resting`; not those with a lease that is not over
        (`Lease.is_over`), nor those that have a caller. The cost grows with the runs that are due or
        have signals, driven or not.
        """


class Maintenance(Protocol):
    """What changes or examines stored data outside a drive."""

    async def rewrite(
        self,
        run_id: str,
        *,
        insert: Record | None = None,
        replace: Sequence[Record] = (),
        remove: Sequence[int] = (),
        effects: CommitEffects | None = None,
    ) -> int:
        """Change the records of a run in one transaction; return how many were removed.

        `insert` is stored, in place of one of the same number if there is one. Each record of
        `replace` replaces that of its number; it is ignored if none is stored, or if it is removed.
        Numbers in `remove` that are not stored are ignored. Without `effects`, the newest record
        must stay. With them, they are applied; and if the newest record was removed or is the
        inserted one, `effects.asked` are the only open requests from then on and `effects.wake` is
        from when on it can be driven. It ends no lease: `effects.release` is ignored. The superstep
        log of places that no longer exist is dropped. A run whose last record is removed is gone, as
        after `drop`.

        Raises CommitConflict, and changes nothing, if the newest record would go without `effects`,
        if a record that stays is a delta to one that goes and is not replaced, if the run belongs
        to another workflow, and if another process has acquired it since `effects.fence`. A store
        of files may be killed halfway: what is left is readable, and a second call does the rest.
        """

    async def drop(self, run_id: str) -> bool:
        """Delete a run and everything that belongs to it, all or nothing.

        False if no record of it is stored.
        """

    async def survey(self) -> Survey:
        """Return all runs, even if some of them are damaged, and what is wrong with the store.

        It may read everything. Only this finds a run that is missing from an index.
        """

    async def numbers(self, run_id: str) -> list[int]:
        """Return the numbers of a run's records, even if some of them are damaged."""

    async def compact(self) -> int:
        """Reclaim the space of deleted data; return by how many bytes the store shrank.

        It may read and write everything, and other writers wait meanwhile. Nothing that is stored
        changes.
        """

    async def close(self) -> None:
        """Finish the work in progress and close files and connections. May be called twice."""


class Store(RunLog, SuperstepLogs, Signals, Leases, Index, Maintenance, Protocol):
    """A back end: all six protocols, on one object."""

    @property
    def completes_writes(self) -> bool:
        """Whether a write that was begun completes even if the task that awaits it is cancelled."""

    @property
    def keeps_order(self) -> bool:
        """Whether writes take effect in the order in which they were begun."""
