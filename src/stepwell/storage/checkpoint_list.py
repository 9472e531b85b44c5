"""The checkpoints that readers may see: all of a run, or only its latest."""

from __future__ import annotations

from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import Entry


async def list_entries(
    store: Store, workflow: str | None, run_id: str | None, before: str | None, limit: int | None
) -> list[Entry]:
    """Return the last `limit` visible entries before the checkpoint `before`, oldest first."""
    _check_limit(limit)
    entries: list[Entry] = []
    criteria = CheckpointFilter(workflow, run_id)
    last = None if before is None else await store.locate(before)
    if before is not None and last is None:
        return []
    # A page may contain hidden entries, so more pages may be needed to fill one for the caller.
    while limit is None or len(entries) < limit:
        page = await store.checkpoints(criteria, before=last, limit=limit)
        entries = await visible_entries(store, page) + entries
        if limit is None or len(page) < limit:
            return entries
        last = page[0]
    return entries[len(entries) - limit :]


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit must be a number of checkpoints, at least 1, not {limit!r}")


async def visible_entries(store: Store, page: list[Entry]) -> list[Entry]:
    """Return those that readers see: of a run that keeps only its latest checkpoint, that one."""
    runs = [await store.run(run_id) for run_id in {entry.run_id for entry in page if entry.latest_only}]
    heads = {run.run_id: run.number for run in runs if run is not None}
    return [entry for entry in page if not entry.latest_only or entry.number == heads.get(entry.run_id)]
