"""The one place where a run is moved on for good."""

from __future__ import annotations

from stepwell.engine.completion import finish
from stepwell.errors import StepwellError, StoreUnavailable
from stepwell.model.superstep import Checkpoint, Commit
from stepwell.storage.archive import Archive


async def store_commit(
    archive: Archive,
    commit: Commit,
    after: Checkpoint,
    *,
    before: Checkpoint | None = None,
    settled: int | None = None,
    consumed: tuple[str, ...] = (),
) -> None:
    """Commit; what a storage raises comes out as a DurabilityError.

    A commit that was begun is finished, also if the caller is cancelled meanwhile: whoever leaves a run
    must leave it before a commit or after it.
    """
    try:
        work = archive.commit(commit, after, before=before, settled=settled, consumed=consumed)
        # what goes of the runs inside goes after the commit, in writes of its own
        await (work if archive.unbroken and not commit.children else finish(work))
    except StepwellError:
        raise
    except Exception as error:  # a storage of the user's own may raise anything
        raise StoreUnavailable(
            f"commit {commit.number} of run {after.run_id!r} could not be stored: {type(error).__name__}: {error}; "
            f"the run stands where it was, resume it when the storage works again"
        ) from error
