"""What a back end must do: bytes and keys. No store knows what a checkpoint is.

A run is one sequence of records, numbered from 0 without gaps as they are committed. Beside it lies a
memory: what was finished inside the superstep that is still under way, kept until that superstep commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..core.errors import CommitConflict
from .ownership import Owner


@dataclass(frozen=True, slots=True)
class Entry:
    """What can be known of a record without reading its body."""

    run_id: str
    number: int  # its place in the run's one sequence of commits
    checkpoint_id: str
    workflow: str
    status: str
    iteration: int
    at: str  # UTC, ISO 8601
    frame: bool  # the body stands alone; otherwise it tells only what changed since number - 1
    outputs: bool  # the body holds outputs


@dataclass(frozen=True, slots=True)
class Record:
    """One commit as it is stored. The body is UTF-8 JSON text."""

    entry: Entry
    body: bytes


def needs_follower(run_id: str, number: int) -> CommitConflict:
    """The error of a `remove` that would take away what the next record is based on."""
    return CommitConflict(f"commit {number} of run {run_id!r} cannot go: commit {number + 1} is based on it")


class Store(Protocol):
    """The port of the built-in stores. Errors of a driver come out as StoreUnavailable, never raw.

    Every method may be called from any event loop and any thread. Nothing blocks the loop.
    """

    async def append(self, record: Record, *, settled: int | None = None) -> None:
        """Add the next record of its run and forget the memory of place `settled`, both or neither.

        Raises CommitConflict unless the number is one past the latest of the run (0 for a new run).
        Durable when it returns.
        """

    async def put(self, record: Record) -> None:
        """Store a record that was made elsewhere, wherever it belongs, in place of one of the same number.

        For the order of `entries` and for `newest` it counts as committed now.
        """

    async def remove(self, run_id: str, number: int, *, follower: Record | None = None) -> bool:
        """Take a record out, and store `follower` in place of the record after it, both or neither.

        A follower for a record that is not there is left out. Raises CommitConflict, and changes nothing, if
        the record after it tells only what changed since, and no follower was given.

        False if there is no such record. The memory of places that are no more is forgotten; a run whose last
        record goes is gone.
        """

    async def head(self, run_id: str) -> Record | None:
        """The newest record of the run."""

    async def chain(self, run_id: str, number: int) -> list[Record]:
        """The last frame at or before `number` and every record from there to `number`.

        Empty if `number` is not stored. Raises CheckpointCorrupt if a link is missing or damaged.
        """

    async def history(self, run_id: str, *, upto: int | None = None, outputs_only: bool = False) -> list[Record]:
        """The records of a run, oldest first, up to and including number `upto`."""

    async def locate(self, checkpoint_id: str) -> Entry | None:
        """Where the checkpoint of that id is."""

    async def entries(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Entry]:
        """The records of all runs that match, in the order they were committed, without their bodies."""

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        """The record that was committed last among those that match."""

    async def remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        """Keep what was finished inside a superstep; False (and nothing kept) if that key is there already.

        Durable when it returns.
        """

    async def recall(self, run_id: str, place: int) -> dict[str, bytes]:
        """Everything remembered at that place of the run, by key."""

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        """Make `owner` the one who drives the run, for so many seconds unless renewed.

        Raises RunBusy if somebody else holds it and `Lease.is_over` does not say otherwise.
        """

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        """Extend the claims on those runs that `owner` still holds. Called from a thread; may block."""

    async def release(self, run_id: str, owner: Owner) -> None:
        """Let go, if `owner` still holds it. When it returns, anybody may claim the run."""

    async def close(self) -> None:
        """Finish what is under way and give back files and connections. May be called twice."""
