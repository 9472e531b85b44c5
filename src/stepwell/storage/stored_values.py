"""The values that pass through the port: entries, records, requests, effects of a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepwell.model.event import CheckpointInfo
from stepwell.storage.lease import Lease

# Few enough that a search for ready runs may look at one priority after the other.
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


# gc=False: the fields are strings and numbers, which cannot form reference cycles, so the garbage
# collector need not track the thousands of entries that a long list holds.
class _Value(msgspec.Struct, frozen=True, gc=False):
    """The base of everything that is passed through the port."""


class Entry(_Value, frozen=True, omit_defaults=True):
    """What is known of a record without reading its body."""

    run_id: str
    number: int  # position in the run's sequence of commits
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str  # UTC, ISO 8601
    is_snapshot: bool  # the body stands alone; otherwise it is a delta to the record before it
    outputs: bool  # the body contains outputs
    # The run keeps only its latest checkpoint: once a later record exists, readers do not see this
    # one.
    latest_only: bool = False
    decisions: bool = False  # the body says what people decided: see `model.commit.decides`

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} of run {self.run_id!r}"


class Record(_Value, frozen=True):
    """One commit as it is stored. The body is UTF-8 JSON text."""

    entry: Entry
    body: bytes


class RequestEntry(_Value, frozen=True):
    """An open request as it is listed. Only its body is protected as those of records are."""

    run_id: str
    request_id: str
    workflow: str
    executor: str
    request_type: str
    response_type: str
    schema: str  # JSON schema of an acceptable response, as JSON text
    at: str  # when it was asked; UTC, ISO 8601
    deadline: str | None = None
    body: str = "{}"  # what is asked: a JSON object, see `storage.pending_requests`


class RunMetadata(_Value, frozen=True, omit_defaults=True):
    """What never changes in a run, as far as runs are listed and searched by it."""

    tags: Mapping[str, str] = {}
    # The run that called this one as a sub-workflow; requests are listed under it.
    caller: str | None = None
    priority: int = 0  # of several ready runs, those with the highest come first
    parent: CheckpointInfo | None = None  # what it was forked from, which may be deleted by now


class RunEntry(_Value, frozen=True):
    """What is known of a run without reading a body: where it is now."""

    run_id: str
    workflow: str
    status: str
    number: int  # of its newest record, like the fields up to `at`
    checkpoint_id: str
    iteration: int
    at: str  # UTC, ISO 8601
    began: str  # `at` of the first record that was stored
    metadata: RunMetadata
    wake: str | None = None  # from when on it can be driven; None: only a signal gives it something to do
    signalled: bool = False  # it has pending signals
    lease: Lease | None = None  # the one that is recorded; it may be over


class LogRow(_Value, frozen=True):
    """One entry of a superstep log."""

    place: int  # the commit that put the messages of the superstep in flight
    key: str
    body: bytes


class SignalRow(_Value, frozen=True):
    """One signal that is not consumed."""

    key: str
    body: bytes


class OpenedRun(_Value, frozen=True):
    """Everything a driver needs to continue a run, read at one moment."""

    # The newest snapshot and every record since; empty if the run is not stored.
    records: Sequence[Record] = ()
    log: Sequence[LogRow] = ()
    signals: Sequence[SignalRow] = ()  # oldest first
    fence: int | None = None  # of the lease that was acquired; None if none was asked for
    has_outputs: bool = True  # False only if no record of the run has outputs, which saves reading them
    # How often the lease was acquired from an owner that had not released it, since the newest
    # record; 0 if the store does not count.
    takeovers: int = 0


class LeaseReport(_Value, frozen=True):
    """How the leases of a process stand."""

    lost: Sequence[str] = ()  # runs that another process has acquired
    signalled: Sequence[str] = ()  # runs with pending signals


class CommitEffects(_Value, frozen=True):
    """What happens in the same transaction as a record: all of it, or none."""

    drop_log_through: int | None = None  # drop the superstep log up to this place
    # Keys of the signals that caused the record; they become tombstones, even if never sent here.
    consumed: tuple[str, ...] = ()
    asked: tuple[RequestEntry, ...] = ()  # requests that are open from now on
    # Ids of requests that no longer are; one record may close an id and ask it again.
    closed: tuple[str, ...] = ()
    # From when on the run can be driven; None: not before a signal arrives. The time of the record
    # itself means that it can be driven now: see `ready_from`.
    wake: str | None = None
    # Replaces the stored one; None: unchanged, or empty if the run is new.
    metadata: RunMetadata | None = None
    drop_below: int | None = None  # drop the records before this number, except those with outputs
    fence: int | None = None  # of the lease under which the record is written
    release: bool = False  # end that lease: the driver will not write again
    # What to keep of earlier records: each replaces that of its number, if stored.
    reduced: tuple[Record, ...] = ()
    # Ids of requests whose deadline has passed without a response, for webhooks. They are in `closed`, or stay
    # open in a run that fails.
    expired: tuple[str, ...] = ()


NO_EFFECTS = CommitEffects()


class LogEffects(_Value, frozen=True):
    """What happens in the same transaction as an entry of the superstep log: all of it, or none."""

    asked: tuple[RequestEntry, ...] = ()  # requests that are open from now on
    closed: tuple[str, ...] = ()  # ids of requests that no longer are; closed before others are asked
    consumed: tuple[str, ...] = ()  # keys of signals, which become tombstones
    expired: tuple[str, ...] = ()  # those in `closed` whose deadline has passed without a response


NO_LOG_EFFECTS = LogEffects()


def ready_from(stored: str | None, wake: str | None, at: str) -> str | None:
    """Return from when on a run can be driven, after a record of the time `at` with the effect `wake`.

    A run that could be driven before, and still can, keeps its time: so it does not lose its place
    in the order, and the index over these times does not change with every commit.
    """
    return stored if wake == at and stored is not None and stored < at else wake


class DamagedRun(_Value, frozen=True):
    """A run that cannot be listed. `run_id` is None if not even that can be read."""

    run_id: str | None
    why: str


class Survey(_Value, frozen=True):
    """All runs of a store: those that can be listed, and the damaged ones."""

    runs: Sequence[RunEntry] = ()
    damaged: Sequence[DamagedRun] = ()
    flaws: Sequence[str] = ()  # what is wrong with the store itself, one sentence each
