"""The storages users name: the six methods on each of the stores."""

from __future__ import annotations

import os

from ..durable.storage import BuiltInStorage
from .file import FileStore
from .memory import MemoryStore
from .sqlite import SQLiteStore


class InMemoryCheckpointStorage(BuiltInStorage):
    """Runs kept in this process, for tests and short-lived programs; gone with it."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())


class FileCheckpointStorage(BuiltInStorage):
    """Runs kept in a directory a person can read: one JSON file per checkpoint."""

    def __init__(self, storage_path: str | os.PathLike[str]) -> None:
        super().__init__(FileStore(storage_path))


class SQLiteCheckpointStorage(BuiltInStorage):
    """Runs kept in one SQLite file, fully durable, shared by any number of processes of one machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(SQLiteStore(path))
