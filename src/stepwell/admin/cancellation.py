"""Cancels a stored run from outside, whether or not a process is driving it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.admin.lookup import find_run, require_head
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.drive.cancellation import OVER, commit_cancel, send_cancel
from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.engine.intake.responses import check_no_caller
from stepwell.errors import RunBusy
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.valid_text import check_words
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.store_archive import StoreArchive

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
    if before.status in OVER:
        return Cancelled(run_id, before.status, before.number, changed=False, driver=None)
    driver: str | None = None
    while True:
        try:
            # Committed here, if nobody drives the run.
            async with hold_run(archive, run_id) as stored:
                # Read under the lease: the run may have ended since we looked.
                head = require_head(stored.head, run_id)
                if head.status not in OVER:
                    head = await commit_cancel(archive, head, by=by, reason=reason)
        except RunBusy as busy:
            head = require_head(await archive.head(run_id), run_id)
            # Sent on every turn: the run may have been restored meanwhile.
            await send_cancel(archive, head, before.number, by=by, reason=reason)
            if driver is None and on_wait is not None:
                on_wait(busy.owner)
            driver = busy.owner
            await asyncio.sleep(_POLL_SECONDS)
        if end := await _find_end(archive, before, head):
            return Cancelled(run_id, *end, changed=True, driver=driver)


async def _find_end(archive: StoreArchive, before: Checkpoint, head: Checkpoint) -> tuple[WorkflowRunState, int] | None:
    """Return the first end of the run after `before`, even if it was resumed since.

    None if it has not ended.
    """
    if head.number == before.number:
        return None
    # Another process may have resumed the run before we looked again, so the head alone is not
    # enough.
    commits = await archive.commits(before.run_id, after=before.number)
    ends = [(commit.status, commit.number) for commit in commits if commit.status in OVER]
    return ends[0] if ends else (head.status, head.number) if head.status in OVER else None
