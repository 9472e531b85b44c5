"""Commits as records, and records as checkpoints: what is written to a store, and what the records of it come to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from stepwell.codec.codec import Codec
from stepwell.errors import CheckpointCorrupt
from stepwell.kernel.lifecycle import apply, full_commit
from stepwell.model.event import WorkflowRunState
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint, Commit, Retention, RunHeader
from stepwell.storage.port import Entry, Pending, Record, RunMetadata
from stepwell.storage.wire.format import header_of, read_commit, write_commit


def metadata_of(header: RunHeader) -> RunMetadata:
    return RunMetadata(header.tags, header.caller)


def wake_of(after: Checkpoint) -> str | None:
    """When somebody should look at a run again: when it can go on, or when a question runs out of time.

    A run that works for another is woken with it.
    """
    if after.header.caller is not None:
        return None
    if after.wake is not None or after.status is not WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
        return after.wake
    deadlines = [r.deadline for r in after.requests.values() if r.deadline is not None]
    return min(deadlines, key=datetime.fromisoformat, default=None)


def pending_of(header: RunHeader, requests: Collection[Request]) -> tuple[Pending, ...]:
    """Open questions as a store lists them. Those of a run that works for another are asked by that one."""
    if not requests or header.caller is not None:
        return ()
    return tuple(
        Pending(
            header.run_id,
            r.id,
            header.workflow,
            r.executor,
            r.request_type,
            r.response_type,
            r.schema,
            r.at,
            r.deadline,
        )
        for r in requests
    )


def build_record(commit: Commit, after: Checkpoint, *, snapshot: bool, before: Checkpoint | None = None) -> Record:
    """A commit as it is stored: what changed since `before`, or everything."""
    header = after.header
    if snapshot:
        full = full_commit(after)
        commit = replace(
            full,
            kind=commit.kind,
            children={**_closed_children(commit, header), **full.children},
            done=commit.done,
            failures=commit.failures,
            warnings=commit.warnings,
            metadata=commit.metadata,
            restored=commit.restored,
            migrated=commit.migrated,
        )
    entry = Entry(
        header.run_id,
        commit.number,
        commit.stamp.checkpoint_id,
        header.workflow,
        commit.status.value,
        commit.iteration,
        commit.stamp.at,
        is_snapshot=snapshot,
        # a commit that takes outputs back belongs among them
        outputs=commit.restored is not None or any(done.outputs for done in commit.done),
        fleeting=header.retention is Retention.LatestOnly,
    )
    body = write_commit(commit, header if snapshot else None, after.previous_id, None if snapshot else before)
    return Record(entry, body)


def _closed_children(commit: Commit, header: RunHeader) -> dict[str, None]:
    """The runs inside that a commit is done with, if the run keeps only its latest.

    Where they were is told by no other record then, and a crash may keep the commit from clearing them up.
    """
    if header.retention is Retention.FullHistory:
        return {}
    return {key: None for key, child in commit.children.items() if child is None}


def fold(chain: Sequence[Record], codec: Codec) -> list[tuple[Checkpoint, Commit]]:
    """Each checkpoint of a chain that begins with a frame, and the commit that led to it."""
    checkpoints: list[tuple[Checkpoint, Commit]] = []
    before: Checkpoint | None = None
    for record in chain:
        commit, shape = read_commit(record, codec)
        if shape.run is not None:
            before = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        elif before is None or before.number != commit.number - 1:
            raise CheckpointCorrupt(
                f"checkpoint {record.entry.checkpoint_id} of run {record.entry.run_id!r} tells only what changed, "
                f"and what it changed from is missing"
            )
        else:
            before = apply(before.header, before, commit)
        checkpoints.append((before, commit))
    return checkpoints
