"""A store in a directory of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal
from stepwell.cli.stores.locations import FORMS, Format, check_name, missing_store, open_once
from stepwell.errors import DurabilityError
from stepwell.stores.files import layout
from stepwell.stores.files.layout import MARK, StoreFolder, read_mark
from stepwell.stores.files.store import FileCheckpointStorage

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage


class Directory(msgspec.Struct, frozen=True):
    """A directory that was named."""

    path: Path

    reads_older = True
    needs_loop = True

    def check(self, *, make: bool) -> None:
        path = self.path
        check_name(path)
        if path.is_file():
            hint = f"for a SQLite file, write sqlite:///{path}"
            raise CommandFailed(f"{path} is a file, not a directory of runs", hint, USAGE)
        if make:
            self._check_room()
            return
        if not path.is_dir():
            raise missing_store(f"{path} does not exist", FORMS)
        if not (path / MARK).is_file():
            raise missing_store(f"{path} is a directory without runs", FORMS)

    def _check_room(self) -> None:
        """Raise CommandFailed if the directory holds somebody else's files."""
        if self.path.is_dir() and not (self.path / MARK).is_file() and any(self.path.iterdir()):
            problem = f"{self.path} is a directory with other files in it"
            raise CommandFailed(problem, "name an empty directory, or one that does not exist yet", USAGE)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        return FileCheckpointStorage(self.path, seal=load_seal())

    def read_format(self) -> Format | None:
        try:
            return Format(read_mark(self.path) or 0, layout.FORMAT)
        except (DurabilityError, OSError):
            return None

    def count_records(self) -> int:
        commits = 0
        folder = StoreFolder(self.path)
        for name in folder.names():
            with open(folder.path_of(name), "rb") as lines:
                commits += sum(line.startswith(b'{"line":"commit"') for line in lines)
        return commits

    async def upgrade(self) -> None:
        await open_once(self.open_storage())
        # Reading does not upgrade a directory.
        StoreFolder(self.path.absolute()).make()
