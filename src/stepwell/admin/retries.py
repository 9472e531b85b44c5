"""Makes runs that failed or were cancelled ready again, many at once. Nothing is driven here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from stepwell import kernel
from stepwell.admin.lookup import find_run, pages_of_runs
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.engine.opening.open_run import STOPPED
from stepwell.errors import RunBusy
from stepwell.model.commit import CommitKind
from stepwell.model.status_words import STATUSES_BY_WORD, status_word
from stepwell.model.valid_text import check_words, is_text
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RunFilter
from stepwell.storage.ids import new_stamp
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.stored_values import RunEntry

_PAGE = 200  # runs per page of the list
_KEY = "idempotency_key"  # in the metadata of the commit


@dataclass(frozen=True)
class RetryReport:
    """What became of the runs to be retried; with `dry_run`, what would become of them."""

    runs: tuple[str, ...]  # ready again
    skipped: Mapping[str, str]  # why not
    dry_run: bool


async def retry(
    storage: BuiltInStorage,
    runs: Sequence[str] = (),
    *,
    status: str = "failed",
    workflow_name: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    by: str | None = None,
    key: str | None = None,
    dry_run: bool = False,
) -> RetryReport:
    """Make runs ready again that failed (or with `status="cancelled"`, that were cancelled).

    Those named, or all that stopped at `since` or later and before `until`, of one workflow or of all. Each gets a
    commit that says so, and `by` whom; a worker then drives it from where it stopped, and what was
    committed is not executed again. The `key` is stored with it: a run that was retried with the same
    one is not retried again, even if it has failed since, and counts as retried. Raises NotFound or
    Ambiguous for a named run.
    """
    check_words("by", by)
    check_words("key", key)
    if isinstance(runs, str):  # a sequence of strings, too: each of its letters would be a run, and of '' all runs
        raise TypeError(f"runs must be a list of run ids, not {runs!r}; for one run, write [{runs!r}]")
    if status not in ("failed", "cancelled"):
        raise ValueError(f"runs that are failed or cancelled can be retried, not those that are {status!r}")
    done, skipped = list[str](), dict[str, str]()
    async for entry in _select(storage, runs, status, workflow_name, since=since, until=until):
        why = await _retry(storage, entry, by, key, dry_run=dry_run)
        if why is None:
            done.append(entry.run_id)
        else:
            skipped[entry.run_id] = why
    return RetryReport(tuple(done), skipped, dry_run)


async def _select(
    storage: BuiltInStorage,
    runs: Sequence[str],
    status: str,
    workflow: str | None,
    *,
    since: datetime | None,
    until: datetime | None,
) -> AsyncIterator[RunEntry]:
    for run in runs:
        yield (await find_run(storage, run))._entry
    if runs or (workflow is not None and not is_text(workflow)):
        return
    (state,) = STATUSES_BY_WORD[status]
    moments = [None if moment is None else clock.stored_moment(moment) for moment in (since, until)]
    # All of them first: each retry changes what the list holds.
    wanted = RunFilter(workflow=workflow, status=state.value, changed_since=moments[0], changed_until=moments[1])
    for entry in [entry async for page in pages_of_runs(storage._store, wanted, _PAGE) for entry in page]:
        yield entry


async def _retry(
    storage: BuiltInStorage, entry: RunEntry, by: str | None, key: str | None, *, dry_run: bool
) -> str | None:
    """Make one run ready again; return why not."""
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    if key is not None and await _was_retried(archive, entry.run_id, key):
        return None
    if entry.metadata.caller is not None:
        return f"it is the run of a sub-workflow: retry its caller {entry.metadata.caller!r}"
    if entry.status not in STOPPED:
        return f"it is {status_word(entry.status)}"
    if dry_run:
        return None
    try:
        async with hold_run(archive, entry.run_id) as stored:
            head = stored.head
            if head is None or head.status not in STOPPED:  # since we looked
                return "it was deleted" if head is None else f"it is {status_word(head.status)}"
            if key is not None and await _was_retried(archive, entry.run_id, key):  # since we looked
                return None
            commit = kernel.retry(head, new_stamp(head.run_id, head.header.epoch, head.number + 1), by=by)
            if key is not None:
                commit = replace(commit, metadata={_KEY: key})
            await archive.commit(commit, kernel.apply(head.header, head, commit), before=head)
    except RunBusy as busy:
        return f"it is being driven by {busy.owner}"
    return None


async def _was_retried(archive: StoreArchive, run_id: str, key: str) -> bool:
    return any(
        commit.kind is CommitKind.RETRIED and commit.metadata.get(_KEY) == key
        for commit in await archive.commits(run_id)
    )
