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

from stepwell.errors import StoreUnavailable
from stepwell.stores import fork_hooks
from stepwell.stores.postgres.connection import Call, Connection, StepConnection
from stepwell.stores.postgres.pool import ConnectionPool
from stepwell.stores.postgres.values import Row, encode
from stepwell.stores.postgres.writer import LoopWriter, Write

T = TypeVar("T")

EXIT_GRACE = 2.0  # seconds for writes to finish when the program ends

# What a forked child inherited. Referenced for the rest of the process, so that connections are
# never closed: closing sends a goodbye over the socket, and the server would end the session of the
# parent.
_INHERITED: list[object] = []


class PostgresDatabase:
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
        self._start = partial(_Resources, dsn, schema, timeout, connections)
        self._lock, self._resources = threading.Lock(), self._start()
        self._is_exiting = False
        fork_hooks.register(self)

    async def write(self, call: Call, *, holds_back: bool = False, asked: float | None = None) -> list[Row]:
        """Return the rows of a call that writes, once it is committed.

        It is completed even if the caller is cancelled. With `holds_back`, the cancellation is held
        back until then. For `asked`, see the pool.
        """
        write = Write(call, holds_back=holds_back, asked=asked)
        # Under the lock, so that nobody closes what is used.
        with self._lock:
            self._check_open().writer(write.waiting.loop).submit(write)
        return await write.waiting

    async def read(self, query: str, *values: object) -> list[Row]:
        """Return the rows of a query. It sees everything that was committed before the call."""
        call = Call(query.encode(), encode(*values))
        return await self.use(lambda db, again: db.call(call)[0])

    async def use(self, work: Callable[[Connection, bool], T]) -> T:
        """Return the result of work on a connection, in a thread. A broken connection repeats it."""
        with self._lock:
            resources = self._check_open()
            try:
                done = resources.readers.submit(resources.pool.use, work, asked=time.monotonic())
            except RuntimeError as error:  # the interpreter is shutting down and its pools accept no work
                raise StoreUnavailable(f"cannot use the store while the program is exiting: {error}") from error
        return await asyncio.wrap_future(done)

    def call(self, call: Call, *, asked: float | None = None) -> list[Row]:
        """Return the rows of a call, waiting for it in this thread."""
        return self._check_open().pool.use(lambda db, again: db.call(call)[0], asked=asked)

    @contextmanager
    def step_connection(self) -> Iterator[StepConnection]:
        """Lend a new connection for the user's own statements.

        At most `connections` of these are open at a time, besides those of the store.
        """
        resources = self._check_open()
        with resources.room_for_steps, closing(resources.pool.connect_for_step()) as db:
            yield db

    async def close(self) -> None:
        """Finish what is under way and close all connections. The next call opens them again."""
        with self._lock:
            resources, self._resources = self._resources, self._start()
        # Other event loops finish by themselves, and a connection is closed when it is returned.
        idle = asyncio.Event()
        resources.writer(asyncio.get_running_loop()).when_idle(idle.set)
        await idle.wait()
        await asyncio.to_thread(resources.readers.shutdown)
        resources.pool.close()

    def close_at_exit(self) -> None:
        """Let writes finish for a moment. The readers have ended before exit hooks are called."""
        self._is_exiting = True
        until = time.monotonic() + EXIT_GRACE
        for writer in list(self._resources.writers.values()):
            if writer.thread.is_alive():
                writer.thread.join(max(until - time.monotonic(), 0))
        self._resources.pool.close()

    def _check_open(self) -> _Resources:
        if self._is_exiting:
            raise StoreUnavailable("cannot use the store while the program is exiting")
        return self._resources

    # Connections may stay open while the process forks: the child does not use them.

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:  # threads are not inherited, and the connections belong to the parent
            _INHERITED.append(self._resources)
            self._lock, self._resources = threading.Lock(), self._start()
        else:
            self._lock.release()


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
