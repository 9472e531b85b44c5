"""What led to a fork before it was one: the commits of the runs that it descends from."""

from __future__ import annotations

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointCorrupt
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.storage.port import Store
from stepwell.storage.wire.format import read_commit


async def read_ancestors(store: Store, parent: CheckpointInfo | None, *, limit: int) -> list[tuple[str, list[Commit]]]:
    """Return the last commits that led to the checkpoint a run was forked from: at most `limit`.

    They come by the run they are of, its parent first, and of each run oldest first.

    A fork holds the state of that checkpoint and none of the commits before it. Those that were
    deleted, and those before a damaged one, are left out.
    """
    ancestors: list[tuple[str, list[Commit]]] = []
    while parent is not None and limit > 0:
        after = max(parent.number - limit, -1)
        try:
            records = await store.history(parent.run_id, after=after, upto=parent.number)
            # A run that was deleted may have left its id to another.
            if not records or records[-1].entry.checkpoint_id != parent.checkpoint_id:
                break
            commits = drop_undone([read_commit(record, DEFAULT_CODEC)[0] for record in records])
        except CheckpointCorrupt:
            break  # the fork itself is whole; what is damaged is reported on the page of its parent
        ancestors.append((parent.run_id, commits))
        limit -= len(commits)
        entry = await store.run(parent.run_id)
        parent = entry.metadata.parent if entry is not None and after < 0 else None
    return ancestors
