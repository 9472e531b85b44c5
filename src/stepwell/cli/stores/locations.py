"""The kinds of stores that an address may name: is one there, of which format is it, and how is it opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

FORMS = "a store is sqlite:///runs.db, postgresql://host/database, or a directory"


class Format(msgspec.Struct, frozen=True):
    """Of which format a store is, and which this Stepwell works with."""

    stored: int
    supported: int


class StoreLocation(Protocol):
    """A store that was named, and is not open yet. Nothing of this changes it, but for `upgrade`."""

    reads_older: bool  # what is of an older format is read as it is
    needs_loop: bool  # whether its storage can only be used inside an event loop

    def check(self, *, make: bool) -> None:
        """Raises CommandFailed if it cannot be one, and if there is none, unless one is to be made."""

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        """It, opened at its first use. For whoever is patient, a server may be away for as long as for any program."""

    def read_format(self) -> Format | None:
        """Of which format it is, 0 if there is no store yet; None if that cannot be seen: opening it says why."""

    def count_records(self) -> int:
        """How many commits are in it, whatever its format."""

    async def upgrade(self) -> None:
        """Make it a store of our format, a new one if there is none. Raises what opening it raises."""


async def open_once(storage: BuiltInStorage) -> None:
    """Open a store, which brings it up to date."""
    async with storage:
        await storage.store.runs(limit=1)


def check_name(path: Path) -> None:
    if "\0" in str(path):
        raise CommandFailed(f"{str(path)!r} cannot be the name of a file: it holds a NUL", FORMS, USAGE)


def missing_store(what: str, hint: str) -> CommandFailed:
    return CommandFailed(f"there is no store: {what}", hint, NOT_FOUND)
