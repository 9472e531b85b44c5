"""The one place where a commit is stored."""

from __future__ import annotations

from stepwell.errors import StepwellError, StoreUnavailable
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.storage.archive import Archive
from stepwell.storage.cancellation_shield import finish


async def store_commit(
    archive: Archive,
    commit: Commit,
    after: Checkpoint,
    *,
    before: Checkpoint | None = None,
    drop_log_through: int | None = None,
    consumed: tuple[str, ...] = (),
    release: bool = False,
) -> None:
    """Store a commit; raise what the storage raises as a DurabilityError. With `release`, it ends the lease.

    A commit that has started is finished even if the caller is cancelled meanwhile: a run is left
    either before a commit or after it.
    """
    try:
        work = archive.commit(
            commit, after, before=before, drop_log_through=drop_log_through, consumed=consumed, release=release
        )
        # A store that completes its writes by itself saves a task. A commit with children is more than one write:
        # superseded records of theirs are dropped after it.
        await (work if archive.completes_writes and not commit.children else finish(work))
    except StepwellError:
        raise
    except Exception as error:
        # A user's own storage may raise anything.
        raise StoreUnavailable(
            f"commit {commit.number} of run {after.run_id!r} could not be stored: {type(error).__name__}: {error}; "
            f"the run is still at its previous commit, resume it when the storage works again"
        ) from error
