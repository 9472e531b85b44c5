"""Checks and errors that every store shares: what it refuses, and what it cannot read."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage.stored_values import Entry, Record


def check_follows(entry: Entry, latest: int) -> None:
    """Raise CommitConflict unless a record is the next one of its run."""
    if entry.number != latest + 1:
        raise CommitConflict(
            f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
            f"another process has moved the run; stop driving it here"
        )


def check_fence(run_id: str, fence: int | None, newest: int) -> None:
    """Raise CommitConflict if a newer lease than the writer's was given out."""
    if fence is not None and newest > fence:
        raise CommitConflict(
            f"run {run_id!r} was acquired by another process after lease {fence}: stop driving it here"
        )


def check_workflow(entry: Entry, workflow: str) -> None:
    """Raise CommitConflict if a record is added to a run of another workflow."""
    if entry.workflow != workflow:
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {workflow!r} and cannot continue as a run of "
            f"{entry.workflow!r}; give the new run another id"
        )


def check_chain(run_id: str, number: int, records: Sequence[Record]) -> None:
    """Raise CheckpointCorrupt unless the records lead from a snapshot to `number` without a gap."""
    if not records[0].entry.is_snapshot:
        raise CheckpointCorrupt(
            f"cannot read commit {number} of run {run_id!r}: it is a delta, and no snapshot before it is stored"
        )
    missing = set(range(records[0].entry.number, number + 1)) - {record.entry.number for record in records}
    if missing:
        raise CheckpointCorrupt(
            f"cannot read commit {number} of run {run_id!r}: it is based on commit {min(missing)}, which is missing"
        )


def follower_error(run_id: str, number: int) -> CommitConflict:
    """The error of a rewrite that would take away what the next record is based on."""
    return CommitConflict(f"commit {number} of run {run_id!r} cannot be removed: commit {number + 1} is a delta to it")


def newest_error(run_id: str, number: int) -> CommitConflict:
    """The error of a rewrite that would remove the head of the run without saying what is open then."""
    return CommitConflict(
        f"commit {number} of run {run_id!r} is its newest and cannot be thinned out: remove that checkpoint, or the run"
    )
