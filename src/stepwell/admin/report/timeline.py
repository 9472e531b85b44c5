"""What is told of a run on a page: read from its records, one after the other, with an end to how much is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.diffs.json_diff import compare, lines_of
from stepwell.admin.report.drawing import Progress, progress_of
from stepwell.admin.transfer.snapshots import Snapshot, records, snapshot
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing
from stepwell.kernel.lifecycle import apply, drop_undone
from stepwell.model.superstep import Checkpoint, Commit
from stepwell.storage.port import Store
from stepwell.storage.wire.format import header_of, read_commit


@dataclass(frozen=True, slots=True)
class Row:
    """One commit, and what it changed in words; None if that is not known, because what was before it is gone."""

    commit: Commit
    changes: tuple[str, ...] | None
    more_changes: int = 0


@dataclass(slots=True)
class Chronicle:
    """What is told of a run."""

    seen: Snapshot  # its head
    at: Checkpoint  # the one that was chosen
    progress: Progress
    first: list[Row] = field(default_factory=list)
    left_out: int = 0
    last: list[Row] = field(default_factory=list)
    began: str = ""


async def chronicle(store: Store, run_id: str, number: int | None, *, rows: int, changes: int) -> Chronicle:
    """A run up to its head; of its commits at most so many, the middle ones left out.

    Raises CheckpointMissing if there is no such run, or no such checkpoint of it.
    """
    seen = await snapshot(store, run_id, "run")
    if seen is None:
        raise CheckpointMissing(f"no run {run_id!r} is stored here; list_runs() says which are")
    wanted = seen.at.number if number is None else number
    found = Chronicle(seen, seen.at, Progress())
    light: list[Commit] = []
    chosen: Checkpoint | None = None
    total = len([e for e in await store.entries(run_id=run_id) if e.number <= seen.at.number])
    head, tail = rows // 4, rows - rows // 4
    place = 0
    async for before, commit, after in _steps(store, seen):
        if commit.number <= wanted:
            light.append(_light(commit))
        if commit.number == wanted:
            chosen = after
        found.began = found.began or commit.stamp.at
        if total <= rows or place < head:
            found.first.append(_row(before, commit, after, changes))
        elif place >= total - tail:
            found.last.append(_row(before, commit, after, changes))
        else:
            found.left_out += 1
        place += 1
    if chosen is None:
        raise CheckpointMissing(f"commit {wanted} of run {run_id!r} is not stored, or not any more")
    found.at, found.progress = chosen, progress_of(chosen, drop_undone(light))
    return found


async def _steps(store: Store, seen: Snapshot) -> AsyncIterator[tuple[Checkpoint | None, Commit, Checkpoint | None]]:
    """Each commit, with where the run was before it and after it, as far as that can be known."""
    before: Checkpoint | None = None
    async for page in records(store, seen):
        for one in page:
            commit, shape = read_commit(one, DEFAULT_CODEC)
            follows = before is not None and before.number == commit.number - 1
            after: Checkpoint | None = None
            if shape.run is not None:
                after = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
            elif before is not None and follows:
                after = apply(before.header, before, commit)
            yield before if follows else None, commit, after
            before = after


def _row(before: Checkpoint | None, commit: Commit, after: Checkpoint | None, most: int) -> Row:
    if before is None or after is None:
        return Row(commit, None)
    lines = lines_of(compare(document_of(before), document_of(after)))
    return Row(commit, tuple(lines[:most]), max(0, len(lines) - most))


def _light(commit: Commit) -> Commit:
    """A commit without what takes room: enough to count what was done."""
    done = tuple(replace(one, outputs=()) for one in commit.done)
    return replace(commit, messages=None, held=None, state={}, executors={}, asked=(), metadata={}, done=done)
