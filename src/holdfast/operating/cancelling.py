"""A run stopped on purpose, by somebody who does not have its program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from .. import kernel
from ..core.errors import RunBusy
from ..core.events import WorkflowRunState
from ..core.model import Checkpoint, Stamp
from ..durable import clock
from ..durable.archive import StoreArchive
from ..durable.codec import DEFAULT_CODEC
from ..durable.ids import checkpoint_id, new_run_id
from ..durable.letters import cancel_key, cancel_letter
from ..durable.ownership import this_process
from ..durable.storage import BuiltInStorage
from ..runtime import claims
from ..runtime.answering import check_free
from ..runtime.storing import store
from .naming import NotFound, find_run

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


async def cancel(storage: BuiltInStorage, run: str, *, told: Callable[[str], None] | None = None) -> Cancelled:
    """Stop a run on purpose: it ends CANCELLED at its last commit, and can be resumed on purpose.

    If nobody drives it, that is committed at once. Whoever drives it is told by mail, as `RunHandle.cancel` does, and
    this waits until it has stopped; handlers may clean up. `told` is called once, with who that is. Whoever stops
    waiting leaves the wish behind. A run that is done or cancelled stays as it is.

    Raises NotFound or Ambiguous for the run, and RunError for one that works for another.
    """
    run_id = (await find_run(storage, run)).run_id
    archive = StoreArchive(storage.store, DEFAULT_CODEC)
    before = await _head(archive, run_id)
    check_free(before)
    if before.status in _OVER:
        return Cancelled(run_id, before.status, before.number, changed=False, driver=None)
    driver: str | None = None
    while True:
        try:
            at = await _stopped_here(archive, run_id)
        except RunBusy as busy:
            at = await _head(archive, run_id)
            await archive.post(run_id, cancel_key(at.header.epoch, before.number), cancel_letter(before.number))
            if driver is None and told is not None:
                told(busy.owner)
            driver = busy.owner
            await asyncio.sleep(_LOOK_EVERY)
        if over := await _over_since(archive, before, at):
            return Cancelled(run_id, *over, changed=True, driver=driver)


async def _stopped_here(archive: StoreArchive, run_id: str) -> Checkpoint:
    """Commit that a run was stopped which nobody drives. Raises RunBusy if somebody does."""
    held = await claims.claim(archive, run_id, this_process(new_run_id()), _no_news)
    try:
        at = await _head(archive, run_id)
        if at.status in _OVER:
            return at
        stamp = Stamp(checkpoint_id(run_id, at.header.epoch, at.number + 1), clock.stamp())
        commit = kernel.cancel(at, stamp)
        after = kernel.apply(at.header, at, commit)
        wishes = tuple(key for key, _ in await archive.mail(run_id) if key.startswith("cancel/"))
        await store(archive, commit, after, before=at, consumed=wishes)
        return after
    finally:
        await claims.let_go(held)


async def _over_since(archive: StoreArchive, before: Checkpoint, at: Checkpoint) -> tuple[WorkflowRunState, int] | None:
    """Where it ended since, also if it went on after that."""
    if at.number == before.number:
        return None
    made = await archive.commits(before.run_id, after=before.number)
    ends = [(commit.status, commit.number) for commit in made if commit.status in _OVER]
    return ends[0] if ends else (at.status, at.number) if at.status in _OVER else None


async def _head(archive: StoreArchive, run_id: str) -> Checkpoint:
    head = await archive.head(run_id)
    if head is None:
        raise NotFound(f"run {run_id!r} has gone meanwhile")
    return head


def _no_news() -> None:
    """Mail that comes while it is being stopped is for whoever goes on with it."""
