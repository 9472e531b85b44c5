"""The tree of forks that a run belongs to: what it was forked from, and what was forked from it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from stepwell.admin.lookup import find_run
from stepwell.model.event import CheckpointInfo
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RunFilter
from stepwell.storage.run_list import RunInfo, run_info

_MOST = 100  # runs in a tree, unless the caller wants another number


@dataclass(frozen=True, slots=True)
class LineageRun:
    """A run in a tree of forks."""

    run_id: str
    depth: int  # 0 for the oldest run that is known
    parent: CheckpointInfo | None  # the checkpoint it was forked from
    run: RunInfo | None  # None if it is not stored any more: only a fork of it says that it existed

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data: that of the run, if it is stored, with its place in the tree."""
        return {
            "run_id": self.run_id,
            "depth": self.depth,
            "parent_run": None if self.parent is None else self.parent.run_id,
            "parent_number": None if self.parent is None else self.parent.number,
            "run": None if self.run is None else self.run.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Lineage:
    """The tree of forks around a run: each run comes before its forks, and these in the order of their start."""

    run_id: str
    runs: tuple[LineageRun, ...]
    is_whole: bool  # False if there are more forks than were asked for

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"run_id": self.run_id, "runs": [run.to_dict() for run in self.runs], "is_whole": self.is_whole}


async def find_lineage(storage: BuiltInStorage, run: str, *, limit: int = _MOST) -> Lineage:
    """Return the tree of forks that a run belongs to, with at most `limit` runs, the nearest relatives.

    Above the run are those it descends from, up to the first one that is not stored any more; below
    each of these and below the run itself, their forks. No body is read: the cost is one indexed
    query per run in the tree; a store of files or in memory looks at each run for each of them.

    Raises NotFound or Ambiguous for the run.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    start = await find_run(storage, run)
    known: dict[str, RunInfo | None] = {start.run_id: start}
    oldest = start
    # A tree has no cycles, but imported runs may claim anything.
    while (parent := oldest.parent) is not None and parent.run_id not in known and len(known) < limit:
        entry = await storage._store.run(parent.run_id)
        known[parent.run_id] = None if entry is None else run_info(entry)
        if entry is None:
            break
        oldest = run_info(entry)
    is_whole = oldest.parent is None or oldest.parent.run_id in known
    waiting = deque(known)
    while waiting and len(known) <= limit:
        of_parent = RunFilter(parent=waiting.popleft(), children=True)
        # One more than fits, to know whether there are more.
        for entry in await storage._store.runs(of_parent, limit=limit + 1):
            if entry.run_id not in known and len(known) <= limit:
                known[entry.run_id] = run_info(entry)
                waiting.append(entry.run_id)
    if len(known) > limit:
        known.popitem()
        is_whole = False
    return Lineage(start.run_id, _order(known), is_whole)


def _order(known: dict[str, RunInfo | None]) -> tuple[LineageRun, ...]:
    """Return runs as a tree, written from its root on: a run comes before its forks."""
    forks: dict[str | None, list[RunInfo]] = {}
    for run in known.values():
        if run is not None:
            parent = None if run.parent is None or run.parent.run_id not in known else run.parent.run_id
            forks.setdefault(parent, []).append(run)
    ordered: list[LineageRun] = []
    # The root is the run whose parent is not known or not stored; in a cycle, the first one that was found.
    gone = [run_id for run_id, run in known.items() if run is None]
    roots = gone or [run.run_id for run in forks.get(None, ())] or list(known)[:1]
    stack = [(run_id, 0) for run_id in roots]
    placed: set[str] = set()
    while stack:
        run_id, depth = stack.pop()
        if run_id in placed:
            continue
        placed.add(run_id)
        info = known[run_id]
        ordered.append(LineageRun(run_id, depth, None if info is None else info.parent, info))
        latest_first = sorted(forks.get(run_id, ()), key=lambda fork: (fork.began_at, fork.run_id), reverse=True)
        stack += [(fork.run_id, depth + 1) for fork in latest_first]
    return tuple(ordered)
