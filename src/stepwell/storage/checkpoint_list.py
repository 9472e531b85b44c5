"""The checkpoints that readers may see: all of a run, or only its latest."""

from __future__ import annotations

from stepwell.storage.port import Entry, Store


async def list_entries(
    store: Store, workflow: str | None, run_id: str | None, before: str | None, limit: int | None
) -> list[Entry]:
    """Return the last `limit` visible entries committed before `before`, oldest first."""
    _check_limit(limit)
    entries: list[Entry] = []
    # A page may contain hidden entries, so more pages may be needed to fill one for the caller.
    while limit is None or len(entries) < limit:
        page = await store.entries(workflow=workflow, run_id=run_id, before=before, limit=limit)
        entries = await _visible(store, page) + entries
        if limit is None or len(page) < limit:
            return entries
        before = page[0].checkpoint_id
    return entries[len(entries) - limit :]


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit must be a number of checkpoints, at least 1, not {limit!r}")


async def _visible(store: Store, page: list[Entry]) -> list[Entry]:
    heads = {run: await _head_number(store, run) for run in {entry.run_id for entry in page if entry.fleeting}}
    return [entry for entry in page if not entry.fleeting or entry.number == heads[entry.run_id]]


async def _head_number(store: Store, run_id: str) -> int:
    return max((entry.number for entry in await store.entries(run_id=run_id, limit=1)), default=-1)
