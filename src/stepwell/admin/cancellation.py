"""Cancels a stored run from outside, whether or not a process is driving it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from stepwell import kernel
from stepwell.admin.lookup import find_run, require_head
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine import lease_renewal
from stepwell.engine.responses import check_no_caller
from stepwell.errors import RunBusy
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.signal import ReceivedCancel
from stepwell.model.valid_text import check_words
from stepwell.storage import clock
from stepwell.storage.archive import StoredRun
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id, new_stamp
from stepwell.storage.lease import this_process
from stepwell.storage.signals import cancel_key
from stepwell.storage.store_archive import StoreArchive

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Cancelled:
    """The end of a run that somebody asked to cancel."""

    run_id: str
    status: WorkflowRunState  # CANCELLED, or IDLE if it completed first
    number: int
    changed: bool  # False if it had already ended
    driver: str | None  # describes the process that drove it and stopped; None if nobody drove it


async def cancel(
    storage: BuiltInStorage,
    run: str,
    *,
    reason: str | None = None,
    by: str | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Cancelled:
    """Cancel a run: it ends CANCELLED at its last commit, and can still be resumed.

    If no process drives the run, the cancellation is committed at once. Otherwise a cancel signal
    is sent to the driver, as `RunHandle.cancel` does, and this call waits until the driver has
    stopped and its handlers have cleaned up. `on_wait` is called once with a description of the
    driver. If this call is interrupted, the signal stays in force. A run that is completed or
    cancelled is left as it is.

    `reason` and `by`, who cancels it, are stored with the commit that cancels the run; the reason
    is emitted as a `warning`.

    Raises NotFound or Ambiguous for the run, RunError for the run of a sub-workflow, and ValueError
    for a reason or a `by` that cannot be stored.
    """
    check_words("the reason", reason)
    check_words("by", by)
    run_id = (await find_run(storage, run)).run_id
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    before = require_head(await archive.head(run_id), run_id)
    check_no_caller(before)
    if before.status in _OVER:
        return Cancelled(run_id, before.status, before.number, changed=False, driver=None)
    driver: str | None = None
    while True:
        try:
            # Committed here, if nobody drives the run.
            async with hold_run(archive, run_id) as stored:
                # Read under the lease: the run may have ended since we looked.
                head = require_head(stored.head, run_id)
                if head.status not in _OVER:
                    head = await _commit(archive, head, by, reason)
        except RunBusy as busy:
            head = require_head(await archive.head(run_id), run_id)
            # Sent on every turn: the first signal with a key wins, so repeating it is free, and a
            # run that was restored meanwhile has a new epoch and needs a new one.
            signal = ReceivedCancel(before.number, by, reason, at=clock.stamp())
            await archive.send(run_id, cancel_key(head.header.epoch, before.number), signal)
            if driver is None and on_wait is not None:
                on_wait(busy.owner)
            driver = busy.owner
            await asyncio.sleep(_POLL_SECONDS)
        if end := await _find_end(archive, before, head):
            return Cancelled(run_id, *end, changed=True, driver=driver)


@asynccontextmanager
async def hold_run(archive: StoreArchive, run_id: str) -> AsyncIterator[StoredRun]:
    """Acquire a run for the length of a block, and yield what is stored of it.

    Signals that arrive meanwhile are applied when the run is driven.
    """
    lease, stored = await lease_renewal.acquire_and_read(archive, run_id, this_process(new_run_id()), lambda: None)
    try:
        yield stored
    finally:
        await lease_renewal.release(lease)


async def _commit(archive: StoreArchive, head: Checkpoint, by: str | None, reason: str | None) -> Checkpoint:
    commit = kernel.cancel(head, new_stamp(head.run_id, head.header.epoch, head.number + 1), by=by, reason=reason)
    after = kernel.apply(head.header, head, commit)
    # Other signals stay: they are applied when the run is resumed.
    signals = tuple(key for key in await archive.pending_signals(head.run_id) if key.startswith("cancel/"))
    await archive.commit(commit, after, before=head, consumed=signals)
    return after


async def _find_end(archive: StoreArchive, before: Checkpoint, head: Checkpoint) -> tuple[WorkflowRunState, int] | None:
    """Return the first end of the run after `before`, even if it was resumed since.

    None if it has not ended.
    """
    if head.number == before.number:
        return None
    # Another process may have resumed the run before we looked again, so the head alone is not
    # enough.
    commits = await archive.commits(before.run_id, after=before.number)
    ends = [(commit.status, commit.number) for commit in commits if commit.status in _OVER]
    return ends[0] if ends else (head.status, head.number) if head.status in _OVER else None
