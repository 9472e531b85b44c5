"""What people want pruned: which runs, by how they stand, and what to keep of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from stepwell.admin.lookup import find_run
from stepwell.admin.retention.policy import Keep
from stepwell.admin.retention.pruner import PruneReport, delete_runs, prune
from stepwell.model.event import WorkflowRunState
from stepwell.model.status_words import STATUSES_BY_STANDING, Standing
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.run_list import find_standing


def make_policy(last: int | None, age: timedelta | None, standings: Sequence[Standing]) -> Keep:
    """Return the policy for the runs that stand so; everything of the others is kept."""
    keep = Keep(last, age)
    chosen = {status for word in standings for status in STATUSES_BY_STANDING[word]}
    # A status that maps to None keeps everything.
    by_status: dict[WorkflowRunState | str, Keep | None] = (
        {status: keep if status in chosen else None for status in WorkflowRunState} if chosen else {}
    )
    return Keep(last, age, by_status)


async def prune_selected(
    storage: BuiltInStorage,
    policy: Keep | None,
    *,
    runs: Sequence[str],
    standings: Sequence[Standing],
    dry_run: bool,
) -> PruneReport:
    """Prune the runs named, or all, that stand so; without a policy, delete those named.

    Raises NotFound or Ambiguous for a run.
    """
    run_ids = [(await find_run(storage, run)).run_id for run in runs]
    if policy is None:
        return await delete_runs(storage, run_ids, dry_run=dry_run)
    only = await _find_standing(storage, standings, run_ids) if standings else run_ids or None
    return await prune(storage, policy, named=run_ids, only=only, dry_run=dry_run)


async def _find_standing(
    storage: BuiltInStorage, standings: Sequence[Standing], run_ids: Sequence[str]
) -> frozenset[str]:
    """Return the runs that stand so, those of sub-workflows too; of those named, if any are."""
    found = {
        run.run_id
        for standing in standings
        for run in await find_standing(storage._store, ALL_RUNS, standing, past=None, limit=None)
    }
    return frozenset(found.intersection(run_ids) if run_ids else found)
