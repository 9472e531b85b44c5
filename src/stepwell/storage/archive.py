"""The archive: what the engine knows of durability. Commits go in, checkpoints come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from stepwell.errors import StoreUnavailable
from stepwell.model.checkpoint import Checkpoint, Retention
from stepwell.model.child import Child
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.model.log_keys import LogEntry, RecalledLog
from stepwell.model.message import Outcome
from stepwell.model.payload import Pack
from stepwell.model.signal import Signal
from stepwell.storage.lease import Owner
from stepwell.storage.run_list import RunInfo
from stepwell.storage.stored_values import LeaseReport
from stepwell.storage.transactions import Transaction

EMPTY_LOG = RecalledLog()


class StoredRun(msgspec.Struct, frozen=True):
    """A run as it is stored at one moment: everything a drive needs to continue it."""

    head: Checkpoint | None = None  # None: no such run is stored
    log: RecalledLog = EMPTY_LOG  # of the superstep in progress
    signals: Mapping[str, Signal] = {}  # not consumed yet, by key, oldest first
    fence: int = 0  # of the lease that was acquired
    takeovers: int = 0  # drivers in a row that were lost since the newest commit


def commit_error(commit: Commit, run_id: str, error: Exception) -> StoreUnavailable:
    """The error for a commit that failed in code of a user's own storage, which may raise anything."""
    return StoreUnavailable(
        f"commit {commit.number} of run {run_id!r} could not be stored: {type(error).__name__}: {error}; "
        f"the run is still at its previous commit, resume it when the storage works again"
    )


class Archive(Protocol):
    """Stores the commits of runs, and reads their checkpoints.

    One for each drive, because it tracks what the drive has read and written.
    """

    @property
    def is_durable(self) -> bool:
        """Whether a later drive, perhaps in another process, can find what is stored."""

    @property
    def shortcomings(self) -> str | None:
        """What this storage cannot promise, as a sentence for users."""

    @property
    def has_superstep_log(self) -> bool:
        """Whether log entries survive a restart."""

    @property
    def completes_log_writes(self) -> bool:
        """Whether `log_entry`, once begun, completes even if the task that awaits it is cancelled."""

    @property
    def retention(self) -> Retention:
        """Which checkpoints of a new run are kept."""

    @property
    def lease(self) -> float:
        """The seconds for which a driver holds a run, unless it renews."""

    @property
    def pack(self) -> Pack:
        """Turns values into payloads as this archive keeps them."""

    @property
    def where(self) -> object:
        """The storage: the same object for every archive on it."""

    @property
    def needed(self) -> int | None:
        """The number of a commit that another run refers to.

        It and all later ones stay, whatever the retention.
        """

    async def open(self, run_id: str, owner: Owner) -> StoredRun:
        """Acquire the run and read it, in one call to the store.

        Later writes to it through this archive carry the fence. Raises RunBusy if another owner
        holds it.
        """

    async def head(self, run_id: str) -> Checkpoint | None:
        """Return the newest checkpoint of a run."""

    async def look(self, run_id: str) -> StoredRun:
        """Return a run as it is stored now, without acquiring it."""

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
        release: bool = False,
    ) -> None:
        """Append a commit if the run is still where it was.

        Durable on return if the archive is, unless it defers commits (`DeferredArchive`).

        A commit that has started is finished even if the caller is cancelled meanwhile: a run is left
        either before a commit or after it. Whatever the storage raises is raised as a DurabilityError.

        `before` is where the run was: large values are written as a delta to it. In the same
        transaction, drops the superstep log up to the place `drop_log_through`, consumes signals
        and, with `release`, ends the lease.
        """

    async def submit(self, commit: Commit, after: Checkpoint) -> bool:
        """Store the first commit of a run without acquiring it, in one call to the store; return whether it was.

        False, storing nothing, if the run is stored, if somebody holds it, and perhaps if somebody did, or if this
        storage cannot tell: then acquire it to find out.
        """

    async def send(self, run_id: str, key: str, signal: Signal, *, as_driver: bool = False) -> bool:
        """Store a signal; False if the key was ever used in the run.

        `as_driver`: it is sent by the drive of this archive, which may have lost its lease. Then CommitConflict
        is raised, and nothing is stored: the run may have moved past what the signal is about.
        """

    async def pending_signals(self, run_id: str) -> Mapping[str, Signal]:
        """Return the signals that are not consumed, by key, oldest first."""

    async def output_commits(self, checkpoint: Checkpoint) -> Sequence[tuple[str, Commit]]:
        """Return the commits with outputs up to a checkpoint, with their runs, oldest first."""

    async def run_info(self, run_id: str) -> RunInfo | None:
        """Return how a run stands, without reading it; None if it is not stored, or if that is not known here."""

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        """List the checkpoints of a run, oldest first; none is read."""

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        """Return the commits of a run past a number, oldest first."""

    async def copy_children_for_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        """Return the children for `run_id`, a new run that is forked from a checkpoint.

        Children that keep only their latest checkpoint are copied as they are at that checkpoint:
        the original continues with its own caller, and drops what the fork would need.
        """

    async def log_outcome(self, at: Checkpoint, outcome: Outcome, *, closed: Sequence[str] = ()) -> None:
        """Log an outcome of the superstep that follows `at` before it commits. Durable on return.

        Its requests can be answered from now on, and those in `closed` no longer.
        """

    async def log_entry(
        self,
        at: Checkpoint,
        key: str,
        entry: LogEntry,
        *,
        closed: Sequence[str] = (),
        consumed: Sequence[str] = (),
    ) -> None:
        """Log a step, timer, attempt, question or answer before the superstep commits. Durable on return.

        The first entry under a key stands. The request of a question can be answered from then on.
        An answer closes its request and consumes its signal.
        """

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        """Return a transaction whose result is logged; None if this storage has no transactions."""

    async def flush(self) -> None:
        """Return when every commit so far is stored."""

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        """Extend leases and report how they stand; None: only report. From a thread; may block."""

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        """End the lease, if `owner` still holds it; `stalls`: in the middle of the work."""
