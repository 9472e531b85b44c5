"""From commits to records, and from records back to checkpoints.

The chain of a run is its last snapshot and the deltas since; it decides when the next snapshot is due.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import pairwise

from msgspec.structs import replace

from stepwell.codec.codec import Codec
from stepwell.codec.encoded import Encoded
from stepwell.errors import CheckpointCorrupt
from stepwell.kernel.commit import apply
from stepwell.kernel.lifecycle import full_commit
from stepwell.model.checkpoint import Checkpoint, Retention, RunHeader
from stepwell.model.commit import DECIDED, Commit, decides
from stepwell.model.event import CheckpointInfo, WorkflowRunState
from stepwell.model.request import Request
from stepwell.model.state_writes import Assigned
from stepwell.model.status_words import IN_PROGRESS
from stepwell.storage.json_text import size_of
from stepwell.storage.kept_outputs import outputs_alone
from stepwell.storage.large_work import LARGE_WORK
from stepwell.storage.request_bodies import write_request_body
from stepwell.storage.stored_values import Entry, Record, RequestEntry, RunMetadata
from stepwell.storage.wire.format import header_of, read_changes, read_commit, read_shape, write_commit
from stepwell.storage.wire.shapes import WireCommit


def metadata_of(header: RunHeader) -> RunMetadata:
    parent = None
    if header.parent_id is not None and header.parent_run is not None and header.parent_number is not None:
        parent = CheckpointInfo(header.parent_run, header.parent_id, header.parent_number)
    return RunMetadata(header.tags, header.caller, header.priority, parent)


def wake_of(after: Checkpoint) -> str | None:
    """Return from when on a run can be driven: now, when its wait is over, or when a deadline is reached."""
    if after.header.caller is not None:  # a child is resumed by its caller
        return None
    if after.status in IN_PROGRESS and after.wake is None:
        return after.stamp.at
    if after.status not in (*IN_PROGRESS, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS):
        return after.wake
    times = [after.wake, *(request.deadline for request in after.requests.values())]
    return min((time for time in times if time is not None), key=datetime.fromisoformat, default=None)


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
            body=write_request_body(header.epoch, request),
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
            asked=(*full.asked, *(r for r in commit.asked if r.id not in after.requests)),
            children={**_closed_children(commit, header), **full.children},
            tags=commit.tags,
            done=commit.done,
            failures=commit.failures,
            warnings=commit.warnings,
            metadata=commit.metadata,
            restored=commit.restored,
            migrated=commit.migrated,
            answers=commit.answers,
            withdrawn=commit.withdrawn,
            questions=commit.questions,
            by=commit.by,
            reason=commit.reason,
        )
    # Most commits are plain: a function is called only for the others.
    is_special = commit.kind in DECIDED or commit.by is not None or bool(commit.answers)
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
        decisions=is_special
        and decides(commit.kind, caller=header.caller, by=commit.by, has_answers=bool(commit.answers)),
    )
    body = write_commit(commit, header if snapshot else None, after.previous_id, None if snapshot else before)
    return Record(entry, body)


def is_large_work(commit: Commit, after: Checkpoint, *, snapshot: bool) -> bool:
    """Return whether building the record of a commit is work for a thread."""
    if snapshot:
        return sum(map(size_of, (*after.state.values(), *after.executors.values()))) >= LARGE_WORK
    size = 0
    for write in (*commit.state.values(), *commit.executors.values()):
        payload = write.value if isinstance(write, Assigned) else write
        # Values in chunks are not counted: only the chunks that changed are looked at.
        if isinstance(payload, Encoded):
            size += len(payload.json)
    return size >= LARGE_WORK


def _closed_children(commit: Commit, header: RunHeader) -> dict[str, None]:
    """Return the children that a commit has finished with, if the run keeps only its latest.

    Then no other record names them, and if a crash prevents their clean-up, the next drive needs
    this one to find them.
    """
    if header.retention is Retention.FullHistory:
        return {}
    return {key: None for key, child in commit.children.items() if child is None}


def fold(chain: Sequence[Record], codec: Codec) -> tuple[Checkpoint, Commit]:
    """Return the last checkpoint of a chain that starts with a snapshot, with its commit.

    All records are checked, but of those before the last one only what they changed is read.
    """
    *earlier, last = chain
    commit, shape = read_commit(last, codec)
    shapes = [*map(read_shape, earlier), shape]
    for replaced, later in pairwise(shapes):
        if later.messages is not None:
            replaced.messages = None
    run_id, before = last.entry.run_id, None
    for record, changes in zip(earlier, shapes, strict=False):
        before = _follow(before, changes, read_changes(changes, record.entry, codec), run_id)
    return _follow(before, shape, commit, run_id), commit


def fold_each(chain: Sequence[Record], codec: Codec) -> list[tuple[Checkpoint, Commit]]:
    """Return each checkpoint of a chain that starts with a snapshot, with its commit."""
    checkpoints: list[tuple[Checkpoint, Commit]] = []
    before: Checkpoint | None = None
    for record in chain:
        commit, shape = read_commit(record, codec)
        before = _follow(before, shape, commit, record.entry.run_id)
        checkpoints.append((before, commit))
    return checkpoints


def _follow(before: Checkpoint | None, shape: WireCommit, commit: Commit, run_id: str) -> Checkpoint:
    if shape.run is not None:
        return apply(header_of(shape), None, commit, previous_id=shape.previous_id)
    if before is None or before.number != commit.number - 1:
        raise CheckpointCorrupt(
            f"checkpoint {commit.stamp.checkpoint_id} of run {run_id!r} cannot be read: it is a delta, and the record "
            f"before it is missing"
        )
    return apply(before.header, before, commit)


SNAPSHOT_EVERY = 8  # records between two snapshots, at least
# Records after which the state is measured in any case: it may have become smaller. Otherwise only
# when that may be enough for a snapshot, because measuring means visiting every value.
_MEASURE_EVERY = 64
# Bytes. Fetching one more record takes about as long as reading this much more of one.
_RECORD = 512
# How many times the size of the state may be read as superseded bytes. Less would mean more
# snapshots and larger stores, more would mean slower reads.
_WASTE = 1


class Chain:
    """The chain of one run, as far as its driver has read or written it."""

    def __init__(self) -> None:
        self._bytes = self._records = 0
        self._enough = 0.0  # bytes to read that would be worth a snapshot of the state as it was measured last
        self._first_snapshot: int | None = None
        self._last_snapshot = 0
        # By number: what to keep of records that hold more than outputs.
        self._outputs: dict[int, Record] = {}

    def add_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        if record.entry.is_snapshot:
            self._bytes = self._records = 0
            if self._first_snapshot is None:
                self._first_snapshot = record.entry.number
            self._last_snapshot = record.entry.number
        if record.entry.latest_only and record.entry.outputs:
            self._outputs[record.entry.number] = outputs_alone(record)
        self._bytes += len(record.body)
        self._records += 1

    def wants_snapshot(self, after: Checkpoint) -> bool:
        """Return whether so much of the chain is superseded that a snapshot is worth it.

        Bytes of the chain that are still part of the state are not wasted. So a large value that
        never changes is written once, a list that only grows a few times, and a small state
        regularly.
        """
        # This driver has seen no record, so there is nothing to be a delta to.
        if self._records == 0:
            return True
        read = self._bytes + self._records * _RECORD
        if self._records % SNAPSHOT_EVERY or (read < self._enough and self._records % _MEASURE_EVERY):
            return False
        payloads = (*after.state.values(), *after.executors.values())
        self._enough = (1 + _WASTE) * sum(size_of(payload) for payload in payloads)
        return read >= self._enough

    def unneeded_below(self, snapshot: int, needed: int | None) -> int | None:
        """Return before which number no record is needed once `snapshot` is written.

        For a run that keeps only its latest checkpoint. `needed` is an older commit that its caller
        still refers to; then everything since the snapshot under that commit stays.
        """
        if needed is None:
            return snapshot
        first = self._first_snapshot
        return first if first is not None and first <= needed else None

    def outputs_below(self, number: int) -> tuple[Record, ...]:
        """Return the reduced forms of the records before a number: their outputs alone."""
        return tuple(record for n, record in self._outputs.items() if n < number)

    def drop_below(self, number: int) -> None:
        """Forget the records before a number: only their outputs are stored now."""
        for record in self.outputs_below(number):
            del self._outputs[record.entry.number]

    def note_outputs(self, records: Sequence[Record]) -> None:
        """Note records that should have been reduced when a later snapshot was written.

        A killed process left them whole; the next snapshot of this driver reduces them.
        """
        for record in records:
            if record.entry.latest_only and record.entry.number < self._last_snapshot:
                outputs = outputs_alone(record)
                if outputs != record:
                    self._outputs[record.entry.number] = outputs
