"""Moves a stored run back to one of its checkpoints, from outside. Nothing is executed here."""

from __future__ import annotations

from msgspec.structs import replace

from stepwell import kernel
from stepwell.admin.lookup import find_checkpoint, load_checkpoint, require_head
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.engine.intake.responses import check_no_caller
from stepwell.errors import CommitConflict
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import CommitKind
from stepwell.model.event import CheckpointInfo
from stepwell.model.valid_text import check_words
from stepwell.storage.archive import StoredRun
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_stamp
from stepwell.storage.store_archive import StoreArchive


async def restore(
    storage: BuiltInStorage, checkpoint: str, *, by: str | None = None, number: int | None = None
) -> CheckpointInfo:
    """Move the run of a checkpoint back to it, and return where the run is now.

    `find_checkpoint` says how to name the `checkpoint`. A worker, or a program with the workflow,
    continues the run from there, executing afresh; what was done since remains as history. Signals
    that are not applied yet are discarded: they were meant for the run as it was. `by` is stored
    with the commit that moves it.

    `number` is the newest commit that the caller knows. If the run has moved since, CommitConflict
    is raised; but if all that happened is this restore by the same caller, nothing is done again.

    Raises NotFound or Ambiguous for the checkpoint, RunError for the run of a sub-workflow, and
    RunBusy if a process drives the run.
    """
    check_words("by", by)
    origin = await find_checkpoint(storage, checkpoint)
    source, _ = await load_checkpoint(storage._store, origin)
    archive = StoreArchive(storage._store, DEFAULT_CODEC, storage.retention)
    if number is not None and (earlier := await _find_earlier(archive, origin, number, by)) is not None:
        return earlier
    async with hold_run(archive, origin.run_id) as stored:
        head = require_head(stored.head, origin.run_id)
        check_no_caller(head)
        if number is not None and head.number != number:
            raise CommitConflict(f"run {head.run_id!r} is at commit {head.number} now, not at {number}")
        return await _commit(archive, stored, head, source, by)


async def _commit(
    archive: StoreArchive, stored: StoredRun, head: Checkpoint, source: Checkpoint, by: str | None
) -> CheckpointInfo:
    then = source.header
    header = replace(
        head.header, epoch=head.header.epoch + 1, signature=then.signature, version=then.version, tags=then.tags
    )
    # With the requests of its superstep log, which the restore closes.
    head = replace(head, requests=kernel.open_requests(head, stored.log))
    stamp = new_stamp(header.run_id, header.epoch, head.number + 1)
    commit = replace(kernel.restore(head, source, stamp), by=by)
    after = kernel.apply(header, None, commit, previous_id=source.stamp.checkpoint_id)
    await archive.commit(commit, after, drop_log_through=head.place, consumed=tuple(stored.signals))
    return CheckpointInfo(header.run_id, stamp.checkpoint_id, commit.number)


async def _find_earlier(
    archive: StoreArchive, origin: CheckpointInfo, number: int, by: str | None
) -> CheckpointInfo | None:
    """Return the same restore, if it was done already."""
    for commit in await archive.commits(origin.run_id, after=number):
        if commit.kind is CommitKind.RESTORED and (commit.restored, commit.by) == (origin.number, by):
            return CheckpointInfo(origin.run_id, commit.stamp.checkpoint_id, commit.number)
    return None
