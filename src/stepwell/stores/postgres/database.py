"""Access to one schema from any event loop and thread.

Event loops write by themselves (`writer`). A few threads read, so that a long list keeps no loop
from its work. Threads without a loop call the server and wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeVar

from stepwell.stores.fork_hooks import Reopenable
from stepwell.stores.jobs import submit
from stepwell.stores.postgres.connection import Call, Connection, StepConnection
from stepwell.stores.postgres.pool import ConnectionPool
from stepwell.stores.postgres.values import Row, encode
from stepwell.stores.postgres.writer import LoopWriter, Write

T = TypeVar("T")

EXIT_GRACE = 2.0  # seconds for writes to finish when the program ends


class PostgresDatabase(Reopenable["_Resources"]):
    """Sends calls and queries to one schema.

    Connects at the first use, and again at the first use after `close`.
    """

    def __init__(self, dsn: str, schema: str, timeout: float, connections: int) -> None:
        """Check the settings; nothing is connected yet.

        Raises ValueError for a bad dsn or schema.
        """
        if connections < 2:
            raise ValueError(
                f"a store needs at least 2 connections, one to write and one to read; got connections={connections}"
            )
        self._settings = (dsn, schema, timeout, connections)
        super().__init__()
        self._get()

    async def write(self, call: Call, *, holds_back: bool = False, asked: float | None = None) -> list[Row]:
        """Return the rows of a call that writes, once it is committed.

        It is completed even if the caller is cancelled. With `holds_back`, the cancellation is held
        back until then. For `asked`, see the pool.
        """
        write = Write(call, holds_back=holds_back, asked=asked)
        with self._lock:
            self._get().writer(write.waiting.loop).submit(write)
        return await write.waiting

    @property
    def dsn(self) -> str:
        """The connection string, with the options that it leaves out."""
        return self._get_locked().pool.dsn

    async def read(self, query: str, *values: object) -> list[Row]:
        """Return the rows of a query. It sees everything that was committed before the call."""
        call = Call(query.encode(), encode(*values))
        return await self.use(lambda db, again: db.call(call)[0])

    async def use(self, work: Callable[[Connection, bool], T]) -> T:
        """Return the result of work on a connection, in a thread. A broken connection repeats it."""
        with self._lock:
            resources = self._get()
            done = submit(resources.readers, partial(resources.pool.use, work, asked=time.monotonic()))
        return await asyncio.wrap_future(done)

    def call(self, call: Call, *, asked: float | None = None) -> list[Row]:
        """Return the rows of a call, waiting for it in this thread."""
        return self._get_locked().pool.use(lambda db, again: db.call(call)[0], asked=asked)

    @contextmanager
    def step_connection(self) -> Iterator[StepConnection]:
        """Lend a new connection for the user's own statements.

        At most `connections` of these are open at a time, besides those of the store.
        """
        resources = self._get_locked()
        with resources.room_for_steps, closing(resources.pool.connect_for_step()) as db:
            yield db

    async def close(self) -> None:
        """Finish what is under way and close all connections. The next call opens them again."""
        with self._lock:
            resources = self._detach()
        if resources is None:
            return
        # Other event loops finish by themselves, and a connection is closed when it is returned.
        idle = asyncio.Event()
        resources.writer(asyncio.get_running_loop()).when_idle(idle.set)
        await idle.wait()
        await asyncio.to_thread(resources.readers.shutdown)
        resources.pool.close()

    def close_at_exit(self) -> None:
        """Let writes finish for a moment. The readers have ended before exit hooks are called."""
        super().close_at_exit()
        if self._opened is not None:
            until = time.monotonic() + EXIT_GRACE
            for writer in list(self._opened.writers.values()):
                if writer.thread.is_alive():
                    writer.thread.join(max(until - time.monotonic(), 0))
            self._opened.pool.close()

    def _start(self) -> _Resources:
        return _Resources(*self._settings)


class _Resources:
    """What a database uses until it is closed. Threads and connections start with the first use."""

    def __init__(self, dsn: str, schema: str, timeout: float, connections: int) -> None:
        self.pool = ConnectionPool(dsn, schema, timeout, connections)
        # One connection is left to the writes, however long lists take.
        self.readers = ThreadPoolExecutor(connections - 1, thread_name_prefix="stepwell-postgres-read")
        self.room_for_steps = threading.BoundedSemaphore(connections)
        self.writers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWriter] = weakref.WeakKeyDictionary()

    def writer(self, loop: asyncio.AbstractEventLoop) -> LoopWriter:
        writer = self.writers.get(loop)
        if writer is None:
            writer = self.writers[loop] = LoopWriter(self.pool)
        return writer
