"""Which checkpoints there are for readers: all of a run, or only its latest."""

from __future__ import annotations

from stepwell.storage.port import Entry, Store


async def list_entries(
    store: Store, workflow: str | None, run_id: str | None, before: str | None, limit: int | None
) -> list[Entry]:
    """The entries for readers, oldest first: at most `limit` of them, from the one before `before` backwards."""
    _check(limit)
    entries: list[Entry] = []
    while limit is None or len(entries) < limit:
        page = await store.entries(workflow=workflow, run_id=run_id, before=before, limit=limit)
        entries = await _for_readers(store, page) + entries
        if limit is None or len(page) < limit:
            return entries
        before = page[0].checkpoint_id
    return entries[len(entries) - limit :]


def _check(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit is a number of checkpoints, at least 1, not {limit!r}")


async def _for_readers(store: Store, page: list[Entry]) -> list[Entry]:
    heads = {run: await _head(store, run) for run in {entry.run_id for entry in page if entry.fleeting}}
    return [entry for entry in page if not entry.fleeting or entry.number == heads[entry.run_id]]


async def _head(store: Store, run_id: str) -> int:
    return max((entry.number for entry in await store.entries(run_id=run_id, limit=1)), default=-1)
