"""What the command line needs to know of a store before it is opened, for every kind of store.

`sqlite_file`, `directory` and `postgres_schema` are the kinds; `option` chooses one of them by the
address.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

FORMS = "a store is sqlite:///runs.db, postgresql://host/database, or a directory"


class Format(msgspec.Struct, frozen=True):
    """The format of a store, and the one that this Stepwell writes."""

    stored: int
    supported: int


class StoreLocation(Protocol):
    """A store that was named and is not open yet. Only `upgrade` changes it."""

    reads_older: bool  # whether a store of an older format can be read without upgrading it
    needs_loop: bool  # whether the storage only works inside an event loop

    def check(self, *, make: bool) -> None:
        """Raise CommandFailed if there is no store; with `make`, if none can be created."""

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        """Return the storage; it connects at its first use.

        `patient` allows a server to be away for longer.
        """

    def read_format(self) -> Format | None:
        """Return the format, 0 if there is no store yet; None if it cannot be read."""

    def count_records(self) -> int:
        """Return the number of commits, for a store of any format."""

    async def upgrade(self) -> None:
        """Upgrade the store to our format, or create it. Raises what opening it raises."""


async def open_once(storage: BuiltInStorage) -> None:
    """Open and close a storage: opening upgrades it."""
    async with storage:
        await storage._store.runs(limit=1)


def check_name(path: Path) -> None:
    # Without this check, the file system functions raise ValueError in many different places.
    if "\0" in str(path):
        raise CommandFailed(f"{str(path)!r} is not a file name: it contains a NUL", FORMS, USAGE)


def missing_store(what: str, hint: str) -> CommandFailed:
    return CommandFailed(f"there is no store: {what}", hint, NOT_FOUND)
