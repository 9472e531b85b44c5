"""What a back end must do: bytes and keys. No store knows what a checkpoint is.

A run is one sequence of records, numbered from 0 without gaps as they are committed. Beside it lies a
memory: what was finished inside the superstep that is still under way, kept until that superstep commits.

Who drives a run claims it and is given a number, higher than any given for that run before. A write that names its
number is refused once a higher one was given: whoever comes back after a long pause cannot disturb.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from stepwell.errors import CommitConflict
from stepwell.storage.lease import Owner


class _Plain(msgspec.Struct, frozen=True, gc=False):
    """Made of texts and numbers only: no circle can go through it, so that nobody need look for one."""


class Entry(_Plain, frozen=True):
    """What can be known of a record without reading its body."""

    run_id: str
    number: int  # its place in the run's one sequence of commits
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str  # UTC, ISO 8601
    # The body stands alone; otherwise it is a delta to the record before it. Stored under its first name.
    is_snapshot: bool = msgspec.field(name="frame")
    outputs: bool  # the body holds outputs
    fleeting: bool = False  # not for readers once there is a later one: the run keeps only its latest


class Record(_Plain, frozen=True):
    """One commit as it is stored. The body is UTF-8 JSON text."""

    entry: Entry
    body: bytes


class Pending(_Plain, frozen=True):
    """A question that waits for an answer: what can be known of it without reading payloads."""

    run_id: str
    request_id: str
    workflow: str
    executor: str
    request_type: str
    response_type: str
    schema: str  # JSON schema of an acceptable answer, as JSON text
    at: str  # when it was asked; UTC, ISO 8601
    deadline: str | None = None


class Wake(_Plain, frozen=True):
    """A run that wants to be moved on at a certain time."""

    run_id: str
    workflow: str
    at: str  # UTC, ISO 8601


class RunMetadata(_Plain, frozen=True):
    """What never changes in a run, as far as it is listed and searched by it."""

    tags: Mapping[str, str] = {}
    caller: str | None = None  # it works for another run, which speaks for it


class RunEntry(_Plain, frozen=True):
    """What can be known of a run without reading a body: where it is now."""

    run_id: str
    workflow: str
    status: str
    number: int  # of its newest record, as all that follows up to `at`
    checkpoint_id: str
    iteration: int
    at: str  # UTC, ISO 8601
    began: str  # `at` of the first record of it that was stored
    metadata: RunMetadata


class DamagedRun(_Plain, frozen=True):
    """A run that cannot be listed. `run_id` is None if not even that can be read."""

    run_id: str | None
    why: str


class Survey(msgspec.Struct, frozen=True):
    """All runs of a store: those that can be listed, and the others."""

    runs: Sequence[RunEntry]
    damaged: Sequence[DamagedRun]


class RunFilter(_Plain, frozen=True):
    """What else a run must be that is looked for. What is None does not matter. Times are UTC, ISO 8601."""

    prefix: str | None = None  # its id begins so
    text: str | None = None  # is in its id, its workflow, or a name or a value of its tags; A to Z are as a to z
    since: str | None = None  # it began then, or later
    until: str | None = None  # it began before
    changed_since: str | None = None  # its newest record was made then, or later
    changed_until: str | None = None  # its newest record was made before

    def matches(self, run: RunEntry) -> bool:
        return (
            (self.prefix is None or run.run_id.startswith(self.prefix))
            and (self.text is None or any(plain(self.text) in plain(one) for one in _searchable_texts(run)))
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


_CAPITALS = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def plain(text: str) -> str:
    """A text as it is searched: the same for A to Z as for a to z. Other letters are as they are, in every store."""
    return text.translate(_CAPITALS)


def past_prefix(prefix: str) -> str | None:
    """The first text that comes after all those that begin so, character by character; None if there is none."""
    for end in range(len(prefix), 0, -1):
        following = ord(prefix[end - 1]) + 1
        if following <= sys.maxunicode:
            # what is between cannot be written as UTF-8
            return prefix[: end - 1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)
    return None


class CommitEffects(_Plain, frozen=True):
    """What happens together with a record: all of it, or none."""

    settled: int | None = None  # forget the memory up to this place
    consumed: tuple[str, ...] = ()  # mail that caused the record; it stays as a tombstone
    asked: tuple[Pending, ...] = ()  # questions that are open from now on
    closed: tuple[str, ...] = ()  # request ids that no longer are; an id may be closed and asked again in one record
    wake: str | None = None  # when the run wants to be woken; takes the place of what it wanted before
    metadata: RunMetadata | None = (
        None  # takes the place of what was known; None: as before, or nothing if the run is new
    )
    drop_below: int | None = None  # records before this number go, except those with outputs
    fence: int | None = None  # the number of the claim under which it is written
    reduced: tuple[Record, ...] = ()  # what is kept of earlier records: each replaces the one of its number, if there


NO_EFFECTS = CommitEffects()


def follower_error(run_id: str, number: int) -> CommitConflict:
    """The error of a `remove` that would take away what the next record is based on."""
    return CommitConflict(f"commit {number} of run {run_id!r} cannot go: commit {number + 1} is based on it")


def newest_error(run_id: str, number: int) -> CommitConflict:
    """The error of a `thin_out` that would take away where the run is."""
    return CommitConflict(f"commit {number} of run {run_id!r} is its newest and stays: remove it by itself, or the run")


def fence_error(run_id: str, fence: int) -> CommitConflict:
    """The error of a write by somebody whose claim was taken over."""
    return CommitConflict(f"run {run_id!r} was claimed by somebody else after claim {fence}: stop driving it here")


class Store(Protocol):
    """The port of the built-in stores. Errors of a driver come out as StoreUnavailable, never raw.

    Every method may be called from any event loop and any thread. Nothing blocks the loop.
    """

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        """Add the next record of its run and do what goes along with it, all or nothing.

        Raises CommitConflict unless the number is one past the latest of the run (0 for a new run), and if the run
        was claimed by somebody else since `along.fence`. Durable when it returns.
        """

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        """Store a record that was made elsewhere, wherever it belongs, in place of one of the same number.

        If it is then the newest of its run, `along.asked` is what is open, and nothing else. For the order of
        `entries` and for `newest` it counts as committed now.
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
        """Take a record out, and store `follower` in place of the record after it, both or neither.

        If it was the newest of its run, `asked` is what is open from then on, and nothing else, and `wake` is when the
        run wants to be woken.

        A follower for a record that is not there is left out. Raises CommitConflict, and changes nothing, if
        the record after it tells only what changed since, and no follower was given.

        False if there is no such record. The memory of places that are no more is forgotten; a run whose last
        record goes is gone, with its mail and questions.
        """

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, whole: Sequence[Record] = ()) -> int:
        """Take many records of a run out in one transaction, and store each of `whole` in place of the record of its
        number; how many went.

        Numbers that are not there are passed over, and what is whole of a record that is not there is left out. There
        may be no numbers: then only `whole` is stored. Raises
        CommitConflict, and changes nothing, if the newest record of the run is among them, or if one that stays tells
        only what changed since one that goes, and is not in `whole`. A store of files may be killed in the midst of
        it: what is there then can be read, and doing it again takes out the rest.
        """

    async def drop(self, run_id: str) -> bool:
        """Take a whole run out, with everything beside it, all or nothing. False if no record of it is stored."""

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
        """The runs that match, those that began last first: at most `limit`, from the one after `past` on.

        All the tags must be those given. Runs that work for others are listed only with `inner`. What it costs grows
        with the page, not with the number of runs or of records (a store of files may look at each run), also if they
        are looked for by when they began. Those whose id begins so cost as much as there are of them. Where a text, or
        when they changed, matters, each run is looked at that is passed over. Bodies are never read.
        """

    async def run(self, run_id: str) -> RunEntry | None:
        """The run of that id as it is listed, also if it works for another one. No body is read."""

    async def head(self, run_id: str) -> Record | None:
        """The newest record of the run."""

    async def chain(self, run_id: str, number: int) -> list[Record]:
        """The last frame at or before `number` and every record from there to `number`.

        Empty if `number` is not stored. Raises CheckpointCorrupt if a link is missing or damaged.
        """

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        """The records of a run, oldest first, past number `after`, up to and including number `upto`."""

    async def locate(self, checkpoint_id: str) -> Entry | None:
        """Where the checkpoint of that id is."""

    async def checkpoints(self, prefix: str, *, limit: int) -> list[Entry]:
        """The records whose checkpoint id begins so, in the order of the ids, at most `limit`.

        What it costs grows with the page (a store of files looks at the names of all files).
        """

    async def entries(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The records of all runs that match, in the order they were committed, without their bodies.

        With `limit` the last so many of them, with `before` those committed before the checkpoint of that id (none, if
        there is no such checkpoint): what it costs grows with the page.
        """

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        """The record that was committed last among those that match."""

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        """Keep what was finished inside a superstep; False (and nothing kept) if that key is there already.

        Raises CommitConflict if the run was claimed by somebody else since `fence`. Durable when it returns.
        """

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        """Everything remembered at that place of the run, by key."""

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        """Leave mail for a run; False (and nothing left) if that key was ever used in it, also if it was consumed.

        Durable when it returns.
        """

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        """The mail of a run that is not consumed, oldest first."""

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        """Those of the runs that have mail which is not consumed. Called from a thread; may block."""

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
        """The open questions of all runs that match, oldest first; no payload is read.

        `asked_by`: those that were asked then, or before. `due_by`: those whose deadline is then, or before, in the
        order of their deadlines. At most `limit`, from the one after `past` on, which need not be open any more; then
        others that its run asked at the same moment may come again. What it costs grows with the page (a store of
        files looks at each run).
        """

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        """The runs that want to be woken, soonest first; with `before`, those that are due by then."""

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        """Make `owner` the one who drives the run, for so many seconds unless renewed; the number of the claim.

        The number is higher than that of every claim on this run before. Raises RunBusy if somebody else holds it and
        `Lease.is_over` does not say otherwise.
        """

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        """Extend those claims, given by run and number, that still hold; the runs that somebody else has claimed since.

        Called from a thread; may block.
        """

    async def release(self, run_id: str, owner: Owner) -> None:
        """Let go, if `owner` still holds it. When it returns, anybody may claim the run."""

    async def compact(self) -> int:
        """Give back the space of what is gone, as far as the store can; how many bytes less it takes.

        It may read and write all there is, and whoever writes meanwhile waits. Nothing that is stored changes.
        """

    async def close(self) -> None:
        """Finish what is under way and give back files and connections. May be called twice."""
