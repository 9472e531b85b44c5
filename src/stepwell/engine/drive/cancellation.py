"""Cancels a stored run from outside its drive: in a commit, or by a signal to its driver."""

from __future__ import annotations

from stepwell import kernel
from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.errors import RunBusy
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.signal import ReceivedCancel
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.ids import new_stamp
from stepwell.storage.signals import cancel_key

OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)  # nothing is left to cancel


async def cancel_or_signal(
    archive: Archive, head: Checkpoint, *, by: str | None = None, reason: str | None = None
) -> Checkpoint:
    """Cancel a run, and return where it is then. Waits for nobody.

    If no process drives it, the cancellation is committed. Otherwise a signal is stored, which its
    driver applies.
    """
    try:
        return await _cancel_unless_over(archive, head, by, reason)
    except RunBusy:
        await send_cancel(archive, head, head.number, by=by, reason=reason)
    try:
        # Its driver may have left before it could see the signal.
        return await _cancel_unless_over(archive, head, by, reason)
    except RunBusy:
        return head


async def _cancel_unless_over(archive: Archive, head: Checkpoint, by: str | None, reason: str | None) -> Checkpoint:
    if head.status in OVER:
        return head
    async with hold_run(archive, head.run_id) as stored:
        # Read under the lease: the run may have ended since we looked.
        head = stored.head or head
        return head if head.status in OVER else await commit_cancel(archive, head, by=by, reason=reason)


async def send_cancel(archive: Archive, head: Checkpoint, number: int, *, by: str | None, reason: str | None) -> None:
    """Send a cancel signal for the process that drives the run, which was not over at commit `number`.

    The first signal with a key wins, so repeating it is free; a run that was restored meanwhile has
    a new epoch, and needs a new one.
    """
    signal = ReceivedCancel(number, by, reason, at=clock.stamp())
    await archive.send(head.run_id, cancel_key(head.header.epoch, number), signal)


async def commit_cancel(archive: Archive, head: Checkpoint, *, by: str | None, reason: str | None) -> Checkpoint:
    """Commit the cancellation of a run that is held; return where it is then."""
    commit = kernel.cancel(head, new_stamp(head.run_id, head.header.epoch, head.number + 1), by=by, reason=reason)
    after = kernel.apply(head.header, head, commit)
    # Other signals stay: they are applied when the run is resumed.
    signals = tuple(key for key in await archive.pending_signals(head.run_id) if key.startswith("cancel/"))
    await archive.commit(commit, after, before=head, consumed=signals)
    return after
