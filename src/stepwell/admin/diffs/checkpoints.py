"""What is different between two checkpoints, of one run or of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.diffs.json_diff import Change, compare, lines_of, patch_of, reverse_changes
from stepwell.admin.lookup import NotFound, entry_of, find_checkpoint
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import RunError
from stepwell.model.event import CheckpointInfo
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage


class NotForked(RunError):
    """The run has no parent that it could be compared with."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What leads from one checkpoint to another: `changes`, in the order in which they are to be made."""

    one: CheckpointInfo
    other: CheckpointInfo
    changes: tuple[Change, ...]

    def patch(self) -> list[dict[str, Any]]:
        """A JSON Patch (RFC 6902) that makes the document of the one into that of the other."""
        return patch_of(self.changes)

    def reversed(self) -> Difference:
        """The difference seen from the other."""
        return Difference(self.other, self.one, tuple(reverse_changes(self.changes)))

    def lines(self, *, full: bool = False) -> list[str]:
        """In words: which two, and a line for each change. Long values are cut, unless in full."""
        between = f"{_label(self.one)} → {_label(self.other)}"
        return [between, *(lines_of(self.changes, full=full) or ["no difference"])]


async def diff(storage: BuiltInStorage, one: str, other: str) -> Difference:
    """The difference of two checkpoints, each named as `find_checkpoint` takes it; also of two runs.

    Reads these two, however long their runs are. Needs no class and no code of the workflow.
    """
    first, second = await find_checkpoint(storage, one), await find_checkpoint(storage, other)
    changes = compare(await load_document(storage, first), await load_document(storage, second))
    return Difference(first, second, tuple(changes))


async def diff_from_parent(storage: BuiltInStorage, run: str) -> Difference:
    """What became of a fork: the difference of a checkpoint of it and the one of its parent where it began.

    `run` is named as `find_checkpoint` takes it; a run alone is its newest checkpoint. Raises NotForked for a run that
    was begun with an input, and NotFound if that checkpoint of the parent is gone.
    """
    checkpoint = await find_checkpoint(storage, run)
    content, _ = await StoreArchive(storage._store, DEFAULT_CODEC).at(await entry_of(storage._store, checkpoint))
    header = content.header
    if header.parent_id is None:
        raise NotForked(f"run {checkpoint.run_id!r} is no fork: it began with an input", run_id=checkpoint.run_id)
    entry = await storage._store.locate(header.parent_id)
    if entry is None:
        raise NotFound(
            f"{header.parent_run}@{header.parent_number}, where run {checkpoint.run_id!r} was forked, "
            f"is not kept any more"
        )
    parent = await find_checkpoint(storage, header.parent_id)
    changes = compare(await load_document(storage, parent), document_of(content))
    return Difference(parent, checkpoint, tuple(changes))


async def load_document(storage: BuiltInStorage, at: CheckpointInfo) -> dict[str, Any]:
    """The document of a checkpoint that was found."""
    entry = await entry_of(storage._store, at)
    return document_of((await StoreArchive(storage._store, DEFAULT_CODEC).at(entry))[0])


def _label(at: CheckpointInfo) -> str:
    return f"{at.run_id}@{at.number}"
