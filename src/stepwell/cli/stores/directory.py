"""A store in a directory of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal
from stepwell.cli.stores.locations import FORMS, Format, check_name, missing_store
from stepwell.errors import DurabilityError
from stepwell.storage.lease import this_process
from stepwell.stores.files import layout
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
        if not (path / layout.MARK).is_file():
            raise missing_store(f"{path} is a directory without runs", FORMS)

    def _check_room(self) -> None:
        """Raise CommandFailed if the directory holds somebody else's files."""
        if self.path.is_dir() and not (self.path / layout.MARK).is_file() and any(self.path.iterdir()):
            problem = f"{self.path} is a directory with other files in it"
            raise CommandFailed(problem, "name an empty directory, or one that does not exist yet", USAGE)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        return FileCheckpointStorage(self.path, seal=load_seal())

    def read_format(self) -> Format | None:
        if not (self.path / layout.MARK).exists():
            return Format(0, layout.FORMAT)
        try:
            return Format(layout.read(self.path / layout.MARK, layout.MARKS).format, layout.FORMAT)
        except (DurabilityError, OSError):
            return None

    def count_records(self) -> int:
        return sum(1 for path in self.path.glob("*/*/*.json") if layout.RECORD_NAME.fullmatch(path.name))

    async def upgrade(self) -> None:
        async with self.open_storage() as storage:
            await storage._store.runs(limit=1)
            # Reading does not upgrade a directory; the first write does, by marking it.
            # A lease that is released again is a write that leaves nothing else behind.
            migrating = this_process("migrate")
            await storage._store.acquire("migrate", migrating, seconds=60)
            await storage._store.release("migrate", migrating)
