"""The methods of a built-in storage that read or write bodies of records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing, CommitConflict
from stepwell.kernel.commit import events
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.event import WorkflowEvent
from stepwell.model.message import RoutedMessage
from stepwell.storage.checkpoint import WorkflowCheckpoint, WorkflowMessage, record_of, unview, view, view_message
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.record import build_record, fold, fold_each, metadata_of, pending_of, wake_of
from stepwell.storage.store_archive import StoreArchive, is_head, superseded_error
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Entry, Record
from stepwell.storage.wire.format import header_of, read_commit


async def save(store: Store, checkpoint: WorkflowCheckpoint) -> str:
    """Store a checkpoint that came from elsewhere; return its id."""
    at, _ = unview(checkpoint, DEFAULT_CODEC)
    pending = pending_of(at.header, at.requests.values())
    effects = CommitEffects(asked=pending, wake=wake_of(at), metadata=metadata_of(at.header))
    await store.rewrite(at.run_id, insert=record_of(checkpoint), effects=effects)
    return checkpoint.checkpoint_id


async def load(store: Store, checkpoint_id: str) -> WorkflowCheckpoint:
    """Return a checkpoint. Raises CheckpointMissing if it is not stored, or was superseded in a LatestOnly run."""
    entry = await _entry(store, checkpoint_id)
    if entry.latest_only and not await is_head(store, entry):
        raise superseded_error(entry)
    return view(*await StoreArchive(store, DEFAULT_CODEC).at(entry))


async def load_all(store: Store, entries: Sequence[Entry]) -> list[WorkflowCheckpoint]:
    """Return the checkpoints of these entries, in their order, without those that are deleted meanwhile."""
    views: dict[tuple[str, int], WorkflowCheckpoint] = {}
    for run, numbers in _by_run(entries).items():
        for checkpoint, commit in await _fold_range(store, run, min(numbers), max(numbers)):
            views[run, checkpoint.number] = view(checkpoint, commit)
    # A record that was dropped while we read is in `entries` and not in `views`.
    return [views[entry.run_id, entry.number] for entry in entries if (entry.run_id, entry.number) in views]


async def latest(store: Store, workflow_name: str | None, run_id: str | None) -> WorkflowCheckpoint | None:
    """Return the head of a run; without `run_id`, the newest checkpoint of all matching runs."""
    if run_id is not None:
        records = await store.read(run_id)
        is_wanted = bool(records) and workflow_name in (None, records[-1].entry.workflow)
        return view(*fold(records, DEFAULT_CODEC)) if is_wanted else None
    while (entry := await _find_latest(store, workflow_name)) is not None:
        records = await store.read(entry.run_id, entry.number)
        if records:  # otherwise it was dropped meanwhile, because the run has a newer head
            return view(*fold(records, DEFAULT_CODEC))
    return None


async def delete(store: Store, checkpoint_id: str) -> bool:
    """Delete a checkpoint; return False if it is not stored. Deleting the head moves its run back."""
    while (entry := await store.locate(checkpoint_id)) is not None:
        if entry.latest_only:  # the only visible checkpoint of its run
            return await is_head(store, entry) and await store.drop(entry.run_id)
        # The next record may be a delta to this one: it is rewritten as a snapshot.
        follower = await _as_snapshot(store, entry.run_id, entry.number + 1)
        before = await _before(store, entry)
        effects = NO_EFFECTS
        if before is not None:
            asked = pending_of(before.header, before.requests.values())
            effects = CommitEffects(asked=asked, wake=wake_of(before))
        with suppress(CommitConflict):  # the run has moved meanwhile: look again
            removed = await store.rewrite(entry.run_id, replace=follower, remove=[entry.number], effects=effects)
            return removed > 0
    return False


async def messages(store: Store, checkpoint_id: str) -> list[WorkflowMessage]:
    """Return the messages that led to a checkpoint, oldest first. Raises CheckpointMissing if they are not stored."""
    return [view_message(m) for _, commit in await _commits(store, checkpoint_id) for m in _new_messages(commit)]


async def events_of(store: Store, run_id: str) -> list[WorkflowEvent]:
    """Return all durable events of a run, oldest first. Raises CheckpointMissing if the run is not stored."""
    records = await store.history(run_id)
    if not records:
        raise CheckpointMissing(f"there is no run {run_id!r} in this storage")
    commits = [read_commit(record, DEFAULT_CODEC)[0] for record in records]
    return [event for commit in commits for event in events(run_id, commit, stored=True, replayed=True)]


async def _entry(store: Store, checkpoint_id: str) -> Entry:
    entry = await store.locate(checkpoint_id)
    if entry is None:
        raise CheckpointMissing(
            f"there is no checkpoint {checkpoint_id!r} in this storage; list_checkpoint_ids() lists the existing ids "
            f"(a run with retention=LatestOnly keeps only its latest)"
        )
    return entry


def _by_run(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Return the numbers of entries, by run."""
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        numbers.setdefault(entry.run_id, []).append(entry.number)
    return numbers


async def _fold_range(store: Store, run_id: str, first: int, last: int) -> list[tuple[Checkpoint, Commit]]:
    """Return the stored checkpoints of a run between two numbers, with their commits."""
    base = await store.read(run_id, first)
    more = await store.history(run_id, after=first, upto=last) if first < last else []
    return fold_each([*base, *more], DEFAULT_CODEC) if base else []


async def _find_latest(store: Store, workflow_name: str | None) -> Entry | None:
    newest = await store.checkpoints(CheckpointFilter(workflow=workflow_name), limit=1)
    return newest[0] if newest else None


async def _as_snapshot(store: Store, run_id: str, number: int) -> list[Record]:
    """Return a record as a snapshot; empty if it is one, or is not stored."""
    records = await store.read(run_id, number)
    if not records or records[-1].entry.is_snapshot:
        return []
    checkpoint, commit = fold(records, DEFAULT_CODEC)
    return [build_record(commit, checkpoint, snapshot=True)]


async def _before(store: Store, entry: Entry) -> Checkpoint | None:
    """Return the head of the run once the entry is deleted; None if the entry is not the head now."""
    if not await is_head(store, entry):
        return None
    # Others may have been deleted, so the one before need not have the number before.
    before = await store.checkpoints(CheckpointFilter(run_id=entry.run_id), before=entry, limit=1)
    records = await store.read(entry.run_id, before[0].number) if before else []
    return fold(records, DEFAULT_CODEC)[0] if records else None


async def _commits(store: Store, checkpoint_id: str) -> list[tuple[str, Commit]]:
    """Return the commits up to a checkpoint that added messages, with their runs, oldest first."""
    commits = [commit async for commit in _backwards(store, await _entry(store, checkpoint_id))]
    # A fork starts with messages of its parent. They count only if the parent is not stored, that
    # is, if the fork's first commit is the oldest of all.
    return [
        (run_id, commit)
        for n, (run_id, commit) in enumerate(reversed(commits))
        if commit.kind in (CommitKind.INPUT, CommitKind.SUPERSTEP, CommitKind.INTAKE) or n == 0
    ]


async def _backwards(store: Store, entry: Entry | None) -> AsyncIterator[tuple[str, Commit]]:
    while entry is not None:
        if entry.latest_only:
            raise CheckpointMissing(f"run {entry.run_id!r} keeps only its latest checkpoint: its history is not stored")
        records = await store.history(entry.run_id, upto=entry.number)
        read = [read_commit(record, DEFAULT_CODEC) for record in records]
        for commit in reversed(drop_undone([commit for commit, _ in read])):
            yield entry.run_id, commit
        parent_id = next((header_of(shape).parent_id for _, shape in read if shape.run is not None), None)
        entry = None if parent_id is None else await store.locate(parent_id)


def _new_messages(commit: Commit) -> Sequence[RoutedMessage]:
    """Return the messages that a commit added."""
    messages = commit.messages or ()
    # An intake repeats the messages that were in flight before it.
    if commit.kind is CommitKind.INTAKE:
        return [m for m in messages if m.id.startswith(f"{commit.number}.")]
    return messages
