"""From commits to records, and from records back to checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from stepwell.codec.codec import Codec
from stepwell.errors import CheckpointCorrupt
from stepwell.kernel.commit import apply
from stepwell.kernel.lifecycle import full_commit
from stepwell.model.checkpoint import Checkpoint, Retention, RunHeader
from stepwell.model.commit import Commit
from stepwell.model.event import WorkflowRunState
from stepwell.model.request import Request
from stepwell.storage.stored_values import Entry, Record, RequestEntry, RunMetadata
from stepwell.storage.wire.format import header_of, read_commit, write_commit


def metadata_of(header: RunHeader) -> RunMetadata:
    return RunMetadata(header.tags, header.caller)


def wake_of(after: Checkpoint) -> str | None:
    """Return when a run should be resumed: its wait is over, or a deadline is reached."""
    if after.header.caller is not None:  # a child is resumed by its caller
        return None
    if after.wake is not None or after.status is not WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
        return after.wake
    deadlines = [r.deadline for r in after.requests.values() if r.deadline is not None]
    return min(deadlines, key=datetime.fromisoformat, default=None)


def pending_of(header: RunHeader, requests: Collection[Request]) -> tuple[RequestEntry, ...]:
    """Return open requests as a store lists them."""
    # The requests of a child are asked by its caller, under the caller's id; listing them here too
    # would show each one twice.
    if not requests or header.caller is not None:
        return ()
    return tuple(
        RequestEntry(
            run_id=header.run_id,
            request_id=request.id,
            workflow=header.workflow,
            executor=request.executor,
            request_type=request.request_type,
            response_type=request.response_type,
            schema=request.schema,
            at=request.at,
            deadline=request.deadline,
        )
        for request in requests
    )


def build_record(commit: Commit, after: Checkpoint, *, snapshot: bool, before: Checkpoint | None = None) -> Record:
    """Return a commit as it is stored: as a snapshot, or as a delta to `before`."""
    header = after.header
    if snapshot:
        # Everything the checkpoint holds, and what this commit did to get there.
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
        checkpoint_id=commit.stamp.checkpoint_id,
        workflow=header.workflow,
        status=commit.status.value,
        iteration=commit.iteration,
        at=commit.stamp.at,
        is_snapshot=snapshot,
        # A restore withdraws outputs, so readers of outputs alone must see it too.
        outputs=commit.restored is not None or any(done.outputs for done in commit.done),
        latest_only=header.retention is Retention.LatestOnly,
    )
    body = write_commit(commit, header if snapshot else None, after.previous_id, None if snapshot else before)
    return Record(entry, body)


def _closed_children(commit: Commit, header: RunHeader) -> dict[str, None]:
    """Return the children that a commit has finished with, if the run keeps only its latest.

    Then no other record names them, and if a crash prevents their clean-up, the next drive needs
    this one to find them.
    """
    if header.retention is Retention.FullHistory:
        return {}
    return {key: None for key, child in commit.children.items() if child is None}


def fold(chain: Sequence[Record], codec: Codec) -> list[tuple[Checkpoint, Commit]]:
    """Return each checkpoint of a chain that starts with a snapshot, with its commit."""
    checkpoints: list[tuple[Checkpoint, Commit]] = []
    before: Checkpoint | None = None
    for record in chain:
        commit, shape = read_commit(record, codec)
        if shape.run is not None:
            before = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        elif before is None or before.number != commit.number - 1:
            raise CheckpointCorrupt(
                f"checkpoint {record.entry.checkpoint_id} of run {record.entry.run_id!r} cannot be read: it is a "
                f"delta, and the record before it is missing"
            )
        else:
            before = apply(before.header, before, commit)
        checkpoints.append((before, commit))
    return checkpoints
