"""A store in a directory of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal
from stepwell.cli.stores.locations import FORMS, Format, StoreLocation, check_name, missing_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.error_ids import ErrorId
from stepwell.errors import DurabilityError
from stepwell.stores.files import layout
from stepwell.stores.files.layout import MARK, StoreFolder, read_mark
from stepwell.stores.files.store import FileCheckpointStorage


@dataclass(frozen=True)
class Directory(StoreLocation):
    """A directory that was named."""

    path: Path

    reads_older = True

    def check(self, *, make: bool) -> None:
        path = self.path
        check_name(path)
        if (path / MARK).is_file():
            return
        if make and path.is_dir() and any(path.iterdir()):
            problem = f"{path} is a directory with other files in it"
            raise CommandFailed(
                ErrorId.NOT_A_STORE, problem, "name an empty directory, or one that does not exist yet", USAGE
            )
        if not make:
            what = "is a directory without runs" if path.is_dir() else "does not exist"
            raise missing_store(f"{path} {what}", FORMS)

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
        await super().upgrade()
        # Reading does not upgrade a directory.
        StoreFolder(self.path.absolute()).make()
