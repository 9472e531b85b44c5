"""A run stopped on purpose, by somebody who does not have its program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from stepwell import kernel
from stepwell.admin.lookup import NotFound, find_run
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine import lease_renewal
from stepwell.engine.commit import store_commit
from stepwell.engine.responses import check_no_caller
from stepwell.errors import RunBusy
from stepwell.model.event import WorkflowRunState
from stepwell.model.superstep import Checkpoint, Stamp, is_text
from stepwell.storage import clock
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import checkpoint_id, new_run_id
from stepwell.storage.lease import this_process
from stepwell.storage.signals import cancel_key, write_cancel

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)
_LOOK_EVERY = 0.25  # seconds between two looks at a run that somebody else drives


@dataclass(frozen=True)
class Cancelled:
    """Where a run ended that was to be cancelled."""

    run_id: str
    status: WorkflowRunState  # CANCELLED, or IDLE if it was done first
    number: int
    changed: bool  # False if it had ended so before
    driver: str | None  # who drove it and was told to stop, in words; None if nobody did


async def cancel(
    storage: BuiltInStorage, run: str, *, reason: str | None = None, told: Callable[[str], None] | None = None
) -> Cancelled:
    """Stop a run on purpose: it ends CANCELLED at its last commit, and can be resumed on purpose.

    If nobody drives it, that is committed at once. Whoever drives it is told by mail, as `RunHandle.cancel` does, and
    this waits until it has stopped; handlers may clean up. `told` is called once, with who that is. Whoever stops
    waiting leaves the wish behind. A run that is done or cancelled stays as it is.

    `reason` becomes part of the history, as a `warning`: of the commit that cancels the run, or of one right after it
    if that was made by whoever drove it.

    Raises NotFound or Ambiguous for the run, RunError for one that works for another, and ValueError for a reason that
    cannot be stored.
    """
    if reason is not None and not is_text(reason):
        raise ValueError(f"the reason {reason!r} holds half a character and cannot be stored")
    run_id = (await find_run(storage, run)).run_id
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    before = await _load_head(archive, run_id)
    check_no_caller(before)
    if before.status in _OVER:
        return Cancelled(run_id, before.status, before.number, changed=False, driver=None)
    driver: str | None = None
    while True:
        try:
            head = await _stop_here(archive, run_id, reason)
        except RunBusy as busy:
            head = await _load_head(archive, run_id)
            await archive.send(run_id, cancel_key(head.header.epoch, before.number), write_cancel(before.number))
            if driver is None and told is not None:
                told(busy.owner)
            driver = busy.owner
            await asyncio.sleep(_LOOK_EVERY)
        if end := await _find_end(archive, before, head):
            if driver is not None and reason and end[0] is WorkflowRunState.CANCELLED:
                await _commit_reason(archive, run_id, end[1], reason)
            return Cancelled(run_id, *end, changed=True, driver=driver)


async def _stop_here(archive: StoreArchive, run_id: str, reason: str | None) -> Checkpoint:
    """Commit that a run was stopped which nobody drives. Raises RunBusy if somebody does."""
    async with _hold_lease(archive, run_id):
        head = await _load_head(archive, run_id)
        return head if head.status in _OVER else await _commit(archive, head, reason)


async def _commit_reason(archive: StoreArchive, run_id: str, number: int, reason: str) -> None:
    """Commit why a run was stopped which its driver has stopped; unless it goes on already, and it matters no more."""
    while (await _load_head(archive, run_id)).number == number:
        try:
            async with _hold_lease(archive, run_id):
                head = await _load_head(archive, run_id)
                if head.number == number:
                    await _commit(archive, head, reason)
        except RunBusy:  # who drove it is just letting it go
            await asyncio.sleep(_LOOK_EVERY)


@asynccontextmanager
async def _hold_lease(archive: StoreArchive, run_id: str) -> AsyncIterator[None]:
    lease = await lease_renewal.acquire(archive, run_id, this_process(new_run_id()), _ignore_signals)
    try:
        yield
    finally:
        await lease_renewal.release(lease)


async def _commit(archive: StoreArchive, head: Checkpoint, reason: str | None) -> Checkpoint:
    stamp = Stamp(checkpoint_id(head.run_id, head.header.epoch, head.number + 1), clock.stamp())
    commit = replace(kernel.cancel(head, stamp), warnings=(f"cancelled: {reason}",) if reason else ())
    after = kernel.apply(head.header, head, commit)
    signals = tuple(key for key, _ in await archive.pending_signals(head.run_id) if key.startswith("cancel/"))
    await store_commit(archive, commit, after, before=head, consumed=signals)
    return after


async def _find_end(archive: StoreArchive, before: Checkpoint, head: Checkpoint) -> tuple[WorkflowRunState, int] | None:
    """Where it ended since, also if it went on after that."""
    if head.number == before.number:
        return None
    commits = await archive.commits(before.run_id, after=before.number)
    ends = [(commit.status, commit.number) for commit in commits if commit.status in _OVER]
    return ends[0] if ends else (head.status, head.number) if head.status in _OVER else None


async def _load_head(archive: StoreArchive, run_id: str) -> Checkpoint:
    head = await archive.head(run_id)
    if head is None:
        raise NotFound(f"run {run_id!r} has gone meanwhile")
    return head


def _ignore_signals() -> None:
    """Mail that comes while it is being stopped is for whoever goes on with it."""
