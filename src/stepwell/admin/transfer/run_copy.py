"""Reads a run with what must be copied with it: its sub-workflow runs and its parents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from stepwell.admin.transfer.container import Role
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointCorrupt, CheckpointMissing, CommitConflict
from stepwell.kernel.commit import apply
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, decides
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.ids import child_run_id, forked_child_id
from stepwell.storage.port import Store
from stepwell.storage.record import fold
from stepwell.storage.store_archive import parent_of
from stepwell.storage.stored_values import Record, SignalRow
from stepwell.storage.wire.format import header_of, read_commit
from stepwell.storage.wire.log_format import read_log_entry, read_outcome
from stepwell.storage.wire.shapes import WireCommit

PAGE = 32  # records that are in memory at a time
# The key of a signal that marks a run being imported. No drive can read it, so none continues an
# incomplete run. Part of the stored format.
PARTLY_HERE = "import/this run is only partly here: import it again"


@dataclass(frozen=True, slots=True)
class RunCopy:
    """A run at a commit, with its superstep log and its signals at that time."""

    at: Checkpoint
    role: Role
    superstep_log: Mapping[str, bytes]
    signals: Sequence[SignalRow]

    @property
    def run_id(self) -> str:
        return self.at.run_id


async def collect_runs(store: Store, run_id: str) -> tuple[tuple[RunCopy, ...], tuple[str, ...]]:
    """Return a run with its sub-workflow runs and the runs it was forked from; the run itself is the last.

    Also return which runs are referred to, but not stored.

    Raises CheckpointMissing if the run is not stored.
    """
    # A caller is read before its sub-workflow runs: they may then be ahead of what it knows, as
    # after a crash, but never behind.
    first = await load_run_copy(store, run_id)
    copies, missing = {run_id: first}, dict[str, None]()
    queue = [first]
    for current in queue:  # it grows during the loop
        for id, role in (await _find_references(store, current)).items():
            if id in copies or id in missing:
                continue
            if (other := await read_run_copy(store, id, role)) is None:
                missing[id] = None
            else:
                copies[id] = other
                queue.append(other)
    return tuple(copies.values())[::-1], tuple(missing)


async def load_run_copy(store: Store, run_id: str) -> RunCopy:
    """Return a consistent view of a run. Raises CheckpointMissing if it is not stored."""
    run_copy = await read_run_copy(store, run_id, "run")
    if run_copy is None:
        raise CheckpointMissing(f"run {run_id!r} is not in this store; list_runs() returns the runs that are")
    return run_copy


async def read_run_copy(store: Store, run_id: str, role: Role) -> RunCopy | None:
    """Return a consistent view of a run, even if it is being driven; None if it is not stored."""
    opened = await store.open(run_id)
    if not opened.records:
        return None
    if any(signal.key == PARTLY_HERE for signal in opened.signals):
        raise CheckpointCorrupt(
            f"run {run_id!r} is incomplete: its import was interrupted; import it again, or delete it"
        )
    head = fold(opened.records, DEFAULT_CODEC)[0]
    log = {row.key: row.body for row in opened.log if row.place == head.place}
    return RunCopy(head, role, dict(sorted(log.items())), opened.signals)


def apply_record(before: Checkpoint | None, record: Record) -> tuple[Checkpoint | None, Commit, WireCommit]:
    """Return the checkpoint a record leads to, its commit, and that as it is stored.

    A snapshot stands alone; the checkpoint of a delta is None unless `before` is the one before it.
    """
    commit, shape = read_commit(record, DEFAULT_CODEC)
    if shape.run is not None:
        return apply(header_of(shape), None, commit, previous_id=shape.previous_id), commit, shape
    if before is not None and before.number == commit.number - 1:
        return apply(before.header, before, commit), commit, shape
    return None, commit, shape


def check_record(before: Checkpoint | None, record: Record) -> tuple[Checkpoint | None, Commit, WireCommit]:
    """Apply a record as `apply_record` does, and check its list entry.

    Raises CheckpointCorrupt if the entry is wrong, or if the record before a delta is missing. With
    LatestOnly, superseded records stay for their outputs; what they changed is gone.
    """
    after, commit, shape = apply_record(before, record)
    entry = record.entry
    what = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
    # The flag may be set without outputs, but a commit with outputs, or one that undoes outputs,
    # must have it: readers of results skip all other records. So do readers of decisions.
    has_outputs = commit.restored is not None or any(done.outputs for done in commit.done)
    expected = (commit.status.value, commit.iteration, shape.run is not None)
    is_decided = after is not None and decides(
        commit.kind, caller=after.header.caller, by=commit.by, has_answers=bool(commit.answers)
    )
    hides = (has_outputs and not entry.outputs) or (is_decided and not entry.decisions)
    if (entry.status, entry.iteration, entry.is_snapshot) != expected or hides:
        raise CheckpointCorrupt(f"the list entry of {what} does not match its content")
    if after is None and not (entry.latest_only and entry.outputs):
        raise CheckpointCorrupt(f"{what} is a delta, and the record it is based on is missing")
    return after, commit, shape


def check_log_entry(run_id: str, key: str, body: bytes) -> None:
    """Raise CheckpointCorrupt or CodecError if an entry of a superstep log cannot be read."""
    # Outcomes are stored under the id of their delivery, which has no slash.
    read = read_log_entry if "/" in key else read_outcome
    read(run_id, key, body, DEFAULT_CODEC)


async def read_records(store: Store, run_copy: RunCopy) -> AsyncIterator[list[Record]]:
    """Yield the records of a run up to the commit of its copy, oldest first, a page at a time."""
    entries = await store.checkpoints(CheckpointFilter(run_id=run_copy.run_id))
    numbers = [entry.number for entry in entries if entry.number <= run_copy.at.number]
    for begin in range(0, len(numbers), PAGE):
        expected = numbers[begin : begin + PAGE]
        page = await store.history(run_copy.run_id, after=expected[0] - 1, upto=expected[-1])
        if [record.entry.number for record in page] != expected:
            raise CommitConflict(
                f"run {run_copy.run_id!r} dropped records while they were read; try again when it is idle"
            )
        yield page


async def _find_references(store: Store, run_copy: RunCopy) -> dict[str, Role]:
    """Return the runs that any checkpoint of a run refers to, with their roles."""
    roles: dict[str, Role] = {}
    async for page in read_records(store, run_copy):
        for record in page:
            commit, _ = read_commit(record, DEFAULT_CODEC)
            roles |= {child.run_id: "inside" for child in commit.children.values() if child is not None}
    for key, body in run_copy.superstep_log.items():
        if "/" not in key:
            children = read_outcome(run_copy.run_id, key, body, DEFAULT_CODEC).children.values()
            roles |= {child.run_id: "inside" for child in children if child is not None}
    roles |= {id: "inside" for id in _possible_inner_runs(run_copy.at) if await store.run(id) is not None}
    parent = await parent_of(store, run_copy.at.header)
    if parent is not None:
        roles.setdefault(parent[0], "lineage")
    elif run_copy.at.header.parent_id is not None:
        roles.setdefault(f"the run of checkpoint {run_copy.at.header.parent_id}", "lineage")
    return roles


def _possible_inner_runs(checkpoint: Checkpoint) -> list[str]:
    """Return the ids that sub-workflow runs called in the current superstep may have."""
    header = checkpoint.header
    # The plan is not known here, as it needs the graph. So count the most deliveries there can be:
    # one for each receiver of a message, and one for each fan-in.
    calls = sum(len(message.takers) for message in checkpoint.messages)
    joins = {key for message in checkpoint.messages for key in message.joins} | set(checkpoint.held)
    ids = [child_run_id(header.run_id, header.epoch, f"{checkpoint.place}.{n}") for n in range(calls + len(joins))]
    return ids + [forked_child_id(header.run_id, header.epoch, child.run_id) for child in checkpoint.children.values()]
