"""A live ring in a small SQLite file beside a store: never synced, lost without harm."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar
from weakref import finalize

from stepwell.errors import StoreUnavailable
from stepwell.storage import clock
from stepwell.storage.live_ring import KEPT, WATCHED_FOR, LiveRow, Occasion
from stepwell.storage.permissions import OWNER_ONLY, create

T = TypeVar("T")
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS watched (run_id TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS live (position INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS live_by_run ON live (run_id, position);
"""


class SideRing:
    """A live ring in the file at `path`, which is created when somebody watches."""

    notifies = False

    def __init__(self, path: str) -> None:
        self._path, self._lock = path, threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._process = 0  # that opened it

    async def watch(self, run_ids: Collection[str]) -> int:
        def watch(db: sqlite3.Connection) -> int:
            until = clock.seconds() + WATCHED_FOR
            db.executemany("INSERT OR REPLACE INTO watched VALUES (?, ?)", [(run_id, until) for run_id in run_ids])
            db.execute("DELETE FROM watched WHERE until < ?", (clock.seconds(),))
            ((position,),) = db.execute("SELECT coalesce(max(position), 0) FROM live").fetchall()
            return int(position)

        return await self._do(watch, make=True) or 0

    async def watched(self) -> frozenset[str]:
        query = "SELECT run_id FROM watched WHERE until > ?"
        rows = await self._do(lambda db: db.execute(query, (clock.seconds(),)).fetchall())
        return frozenset(run_id for (run_id,) in rows or ())

    async def write(self, events: Sequence[tuple[str, bytes]]) -> None:
        def write(db: sqlite3.Connection) -> None:
            db.executemany("INSERT INTO live (run_id, body) VALUES (?, ?)", events)
            db.execute("DELETE FROM live WHERE position <= (SELECT max(position) FROM live) - ?", (KEPT,))

        await self._do(write)

    async def read(self, after: Mapping[str, int]) -> list[LiveRow]:
        query = "SELECT run_id, position, body FROM live WHERE run_id = ? AND position > ? ORDER BY position"

        def read(db: sqlite3.Connection) -> list[LiveRow]:
            return [LiveRow(*row) for seen in after.items() for row in db.execute(query, seen)]

        return await self._do(read) or []

    async def listen(self, occasion: Occasion, wake: Callable[[], None]) -> None:
        await asyncio.Event().wait()  # no process hears of another one

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, make: bool = False) -> T | None:
        return await asyncio.to_thread(self._work, work, make)

    def _work(self, work: Callable[[sqlite3.Connection], T], make: bool) -> T | None:
        with self._lock:
            try:
                db = self._open(make)
                if db is None:
                    return None
                with db:  # one transaction
                    return work(db)
            except (sqlite3.Error, OSError) as error:
                raise StoreUnavailable(f"the live ring {self._path} cannot be used: {error}") from error

    def _open(self, make: bool) -> sqlite3.Connection | None:
        if self._db is None or self._process != os.getpid():
            if self._path != ":memory:":
                if make:
                    with suppress(FileExistsError):
                        os.close(create(self._path, os.O_RDWR, OWNER_ONLY))
                elif not os.path.exists(self._path):
                    return None
            self._db, self._process = sqlite3.connect(self._path, timeout=1.0, check_same_thread=False), os.getpid()
            # A storage in memory is rarely closed by its program.
            finalize(self, self._db.close).atexit = False
            self._db.executescript(_TABLES)
        return self._db

    def close(self) -> None:
        with self._lock:
            if self._db is not None and self._process == os.getpid():
                self._db.close()
            self._db = None
