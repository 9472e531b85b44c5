"""A SQLite store on a full or read-only disk, simulated with limits of SQLite itself.

`FailingDisk` cannot do this: SQLite writes its file without Python.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TypeVar

from stepwell.stores.sqlite.access import SQLiteDatabase, Work
from stepwell.stores.sqlite.store import SQLiteStore

T = TypeVar("T")
_NO_LIMIT = 2**32 - 2  # pages: the most that SQLite supports


class ConfinedSQLiteStore(SQLiteStore):
    """A SQLite store on a small disk: when its file has `pages` pages, the disk is full.

    `read_only_at=3` makes its third write and all later ones fail as on a read-only disk. Both are
    attributes, so that a test can free the disk again: `store.pages = None`. `writes` counts the
    attempts to write.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, pages: int | None = None, read_only_at: int | None = None
    ) -> None:
        super().__init__(path)
        self.pages, self.read_only_at = pages, read_only_at
        self.writes = 0
        self._db = _ConfinedDatabase(self._db, self)


class _ConfinedDatabase(SQLiteDatabase):
    """Makes every write under the limits of its store."""

    def __init__(self, like: SQLiteDatabase, store: ConfinedSQLiteStore) -> None:
        super().__init__(*like._settings)
        self._store = store

    async def write(self, work: Work[T]) -> T:
        return await super().write(self._limit(work))

    def write_blocking(self, work: Work[T]) -> T:
        return super().write_blocking(self._limit(work))

    def _limit(self, work: Work[T]) -> Work[T]:
        def work_within_limits(db: sqlite3.Connection) -> T:
            store = self._store
            store.writes += 1
            read_only = store.read_only_at is not None and store.writes >= store.read_only_at
            # Set before each write: the limits may have changed, and each connection has its own.
            db.execute(f"PRAGMA max_page_count = {store.pages or _NO_LIMIT}")
            db.execute(f"PRAGMA query_only = {int(read_only)}")
            try:
                return work(db)
            finally:
                db.execute("PRAGMA query_only = 0")  # the connection is reused

        return work_within_limits
