"""The port: what a back end has to implement.

It speaks bytes and keys, and no back end knows what a checkpoint is.

A run is one sequence of records, numbered from 0 without gaps. Beside it lies the superstep log:
what has been completed inside the superstep in progress, until that superstep commits.

The process that drives a run acquires a lease and gets a fence, a number higher than any before it
for that run. A write that carries its fence is refused once a higher one has been issued, so a
driver that wakes up after a long pause cannot do harm. The package docstring of `stepwell.storage`
explains why.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from stepwell.errors import CommitConflict
from stepwell.storage.lease import Owner


# gc=False: the fields are strings and numbers, which cannot form reference cycles, so the garbage
# collector need not track the thousands of entries that a long list holds.
class _Value(msgspec.Struct, frozen=True, gc=False):
    """The base of everything that is passed through the port."""


class Entry(_Value, frozen=True):
    """What is known of a record without reading its body."""

    run_id: str
    number: int  # position in the run's sequence of commits
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str  # UTC, ISO 8601
    # The body stands alone; otherwise it is a delta to the record before it. Columns, files and
    # exports call it `frame`, and stored names never change.
    is_snapshot: bool = msgspec.field(name="frame")
    outputs: bool  # the body contains outputs
    # Hidden from readers once a later record exists: the run keeps only its latest.
    fleeting: bool = False


class Record(_Value, frozen=True):
    """One commit as it is stored. The body is UTF-8 JSON text."""

    entry: Entry
    body: bytes


class Pending(_Value, frozen=True):
    """What is known of an open request without reading its payload."""

    run_id: str
    request_id: str
    workflow: str
    executor: str
    request_type: str
    response_type: str
    schema: str  # JSON schema of an acceptable response, as JSON text
    at: str  # when it was asked; UTC, ISO 8601
    deadline: str | None = None


class Wake(_Value, frozen=True):
    """A run that wants to be resumed at a certain time."""

    run_id: str
    workflow: str
    at: str  # UTC, ISO 8601


class RunMetadata(_Value, frozen=True):
    """What never changes in a run, as far as runs are listed and searched by it."""

    tags: Mapping[str, str] = {}
    # The run that this one works for; requests are listed under the caller.
    caller: str | None = None


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


class DamagedRun(_Value, frozen=True):
    """A run that cannot be listed. `run_id` is None if not even that can be read."""

    run_id: str | None
    why: str


class Survey(msgspec.Struct, frozen=True):
    """All runs of a store: those that can be listed, and the damaged ones."""

    runs: Sequence[RunEntry]
    damaged: Sequence[DamagedRun]


class RunFilter(_Value, frozen=True):
    """Criteria for a search of runs. None matches everything; times are UTC, ISO 8601."""

    prefix: str | None = None  # the id starts with this
    # In the id, the workflow, or a name or value of a tag; ignores the case of A to Z.
    text: str | None = None
    since: str | None = None  # began at this time or later
    until: str | None = None  # began before this time
    changed_since: str | None = None  # the newest record is from this time or later
    changed_until: str | None = None  # the newest record is from before this time

    def matches(self, run: RunEntry) -> bool:
        return (
            (self.prefix is None or run.run_id.startswith(self.prefix))
            and (self.text is None or any(fold_case(self.text) in fold_case(text) for text in _searchable_texts(run)))
            and (self.since is None or run.began >= self.since)
            and (self.until is None or run.began < self.until)
            and (self.changed_since is None or run.at >= self.changed_since)
            and (self.changed_until is None or run.at < self.changed_until)
        )


ANY_RUN = RunFilter()


def _searchable_texts(run: RunEntry) -> Iterator[str]:
    yield from (run.run_id, run.workflow)
    for tag in run.metadata.tags.items():
        yield from tag


_LOWER_CASE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def fold_case(text: str) -> str:
    """Return a string as searches compare it: A to Z become a to z, and nothing else changes.

    Only ASCII, because SQLite's `lower` and PostgreSQL's in the C collation fold no more: every
    store must find the same runs.
    """
    return text.translate(_LOWER_CASE)


def prefix_end(prefix: str) -> str | None:
    """Return the first text after all those that start with `prefix`; None if there is none.

    Texts are compared by code points. With this bound, a search by prefix is a range query that an
    index can answer.
    """
    for end in range(len(prefix), 0, -1):
        following = ord(prefix[end - 1]) + 1
        if following <= sys.maxunicode:
            # U+D800 to U+DFFF are surrogates, which UTF-8 cannot encode: skip them.
            return prefix[: end - 1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)
    return None


class CommitEffects(_Value, frozen=True):
    """What happens in the same transaction as a record: all of it, or none."""

    drop_log_through: int | None = None  # drop the superstep log up to this place
    # Keys of the signals that caused the record; they become tombstones.
    consumed: tuple[str, ...] = ()
    asked: tuple[Pending, ...] = ()  # requests that are open from now on
    # Ids of requests that no longer are; one record may close an id and ask it again.
    closed: tuple[str, ...] = ()
    wake: str | None = None  # when the run wants to be resumed; replaces the previous time
    # Replaces the stored one; None: unchanged, or empty if the run is new.
    metadata: RunMetadata | None = None
    drop_below: int | None = None  # drop the records before this number, except those with outputs
    fence: int | None = None  # of the lease under which the record is written
    # What to keep of earlier records: each replaces that of its number, if stored.
    reduced: tuple[Record, ...] = ()


NO_EFFECTS = CommitEffects()


def follower_error(run_id: str, number: int) -> CommitConflict:
    """The error of a `remove` that would take away what the next record is based on."""
    return CommitConflict(f"commit {number} of run {run_id!r} cannot be removed: commit {number + 1} is a delta to it")


def newest_error(run_id: str, number: int) -> CommitConflict:
    """The error of a `thin_out` that would remove the head of the run."""
    return CommitConflict(
        f"commit {number} of run {run_id!r} is its newest and cannot be thinned out: remove that checkpoint, or the run"
    )


def fence_error(run_id: str, fence: int) -> CommitConflict:
    """The error of a write under a lease that another process has taken over."""
    return CommitConflict(f"run {run_id!r} was acquired by another process after lease {fence}: stop driving it here")


class Store(Protocol):
    """The port of the built-in stores.

    Errors of a database driver become StoreUnavailable, never raw.

    Every method may be called from any event loop and any thread. Coroutines never block the loop.
    """

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        """Append the next record of its run and apply its effects, all or nothing.

        Durable on return. Raises CommitConflict unless the number is one past the latest of the run
        (0 for a new run), and if another process has acquired the run since `effects.fence`.
        """

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        """Store a record that was made elsewhere, replacing one of the same number.

        If it is then the newest of its run, `effects.asked` are the only open requests. In the
        order of `entries` and for `newest`, the record counts as committed now.
        """

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        """Remove a record and replace the one after it, both or neither; False if there is none.

        If it was the newest of its run, `asked` are the only open requests from then on, and `wake`
        is when the run wants to be resumed. A follower is ignored if there is no record after the
        removed one. The superstep log of places that no longer exist is dropped. A run whose last
        record is removed is gone, with its signals and requests.

        Raises CommitConflict, and changes nothing, if the next record is a delta and no follower is
        given.
        """

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        """Remove many records of a run in one transaction, and return how many were there.

        Each of `rewritten` replaces the record of its number. Numbers that are not stored are
        ignored, and so are rewritten records that are not stored. `numbers` may be empty.

        Raises CommitConflict, and changes nothing, if the newest record of the run is among the
        numbers, or if a record that stays is a delta to one that goes and is not rewritten. A store
        of files may be killed halfway: what is left is readable, and a second call removes the
        rest.
        """

    async def drop(self, run_id: str) -> bool:
        """Delete a run and everything that belongs to it, all or nothing.

        False if no record of it is stored.
        """

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
        """Return the runs that match, latest start first: at most `limit`, continuing after `past`.

        A run must have all the tags. Runs that work for others are listed only with `inner`. Bodies
        are never read.

        The cost grows with the page, not with the number of runs or records (a store of files may
        look at each run), even for a range of start times. A prefix costs as much as there are runs
        with it. A filter by text or by time of change looks at every run that it passes over.
        """

    async def run(self, run_id: str) -> RunEntry | None:
        """Return the entry of one run, even if it works for another. No body is read."""

    async def head(self, run_id: str) -> Record | None:
        """Return the newest record of the run."""

    async def chain(self, run_id: str, number: int) -> list[Record]:
        """Return the last snapshot at or before `number` and every record from there to `number`.

        Empty if `number` is not stored. Raises CheckpointCorrupt if a delta is missing or damaged.
        """

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        """Return the records of a run past `after`, up to and including `upto`, oldest first."""

    async def locate(self, checkpoint_id: str) -> Entry | None:
        """Return the entry of the checkpoint with that id."""

    async def checkpoints(self, prefix: str, *, limit: int) -> list[Entry]:
        """Return the records whose checkpoint id starts with `prefix`, by id, at most `limit`.

        The cost grows with the page (a store of files looks at the names of all files).
        """

    async def entries(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return the entries of all records that match, in the order in which they were committed.

        With `limit`, the last so many; with `before`, those committed before the checkpoint of that
        id (none if there is no such checkpoint). The cost grows with the page.
        """

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        """Return the record that was committed last among those that match."""

    # ---------------------------------------------------------------- superstep log

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        """Store what was completed inside a superstep; False, storing nothing, if the key exists.

        Durable on return. Raises CommitConflict if another process has acquired the run since
        `fence`.
        """

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        """Return the superstep log of a place, by key."""

    # ---------------------------------------------------------------- signals

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        """Store a signal for a run; False, storing nothing, if the key was ever used in it.

        Durable on return. A consumed signal counts as used: its tombstone stays.
        """

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        """Return the signals of a run that are not consumed, oldest first: keys and bodies."""

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        """Return those of the runs that have pending signals. Called from a thread; may block."""

    # ---------------------------------------------------------------- requests and timers

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
        """Return the open requests that match, oldest first, at most `limit`. No payload is read.

        `asked_by`: asked at that time or before. `due_by`: with a deadline at that time or before,
        ordered by deadline. The page continues after `past`, which may have been closed meanwhile;
        then other requests that its run asked at the same moment may be repeated. The cost grows
        with the page (a store of files looks at each run).
        """

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        """Return the runs that want to be resumed, soonest first.

        With `before`, those that are due by then.
        """

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        """Give `owner` the lease of a run, to be renewed within `seconds`; return its fence.

        The fence is higher than that of every earlier lease of this run. Raises RunBusy if another
        owner holds a lease that is not over (`Lease.is_over`).
        """

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        """Extend leases, given as run and fence; return the runs that others have acquired.

        A lease that is no longer held is left alone.

        Called from a thread; may block.
        """

    async def release(self, run_id: str, owner: Owner) -> None:
        """End the lease, if `owner` still holds it. On return, any process may acquire the run."""

    # ---------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        """Reclaim the space of deleted data; return by how many bytes the store shrank.

        It may read and write everything, and other writers wait meanwhile. Nothing that is stored
        changes.
        """

    async def close(self) -> None:
        """Finish the work in progress and close files and connections. May be called twice."""
