"""What is different between two checkpoints, of one run or of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.events import CheckpointInfo
from ..durable.archive import StoreArchive
from ..durable.codec import DEFAULT_CODEC
from ..durable.storage import BuiltInStorage
from .comparing import Change, backwards, compare, lines_of, patch_of
from .documents import document_of
from .naming import entry_of, find_checkpoint


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
        return Difference(self.other, self.one, tuple(backwards(self.changes)))

    def lines(self) -> list[str]:
        """In words: which two, and a line for each change."""
        between = f"{_words(self.one)} → {_words(self.other)}"
        return [between, *(lines_of(self.changes) or ["no difference"])]


async def diff(storage: BuiltInStorage, one: str, other: str) -> Difference:
    """The difference of two checkpoints, each named as `find_checkpoint` takes it; also of two runs.

    Reads these two, however long their runs are. Needs no class and no code of the workflow.
    """
    first, second = await find_checkpoint(storage, one), await find_checkpoint(storage, other)
    changes = compare(await load_document(storage, first), await load_document(storage, second))
    return Difference(first, second, tuple(changes))


async def load_document(storage: BuiltInStorage, at: CheckpointInfo) -> dict[str, Any]:
    """The document of a checkpoint that was found."""
    entry = await entry_of(storage.store, at)
    return document_of((await StoreArchive(storage.store, DEFAULT_CODEC).at(entry))[0])


def _words(at: CheckpointInfo) -> str:
    return f"{at.run_id}@{at.number}"
