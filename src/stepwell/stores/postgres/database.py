"""Access to one schema from any event loop and thread.

Event loops write by themselves (`writer`). A few threads read, so that a long list keeps no loop
from its work. Threads without a loop call the server and wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial

from stepwell.errors import StoreUnavailable
from stepwell.stores import fork_hooks
from stepwell.stores.postgres.connection import StepConnection
from stepwell.stores.postgres.pipeline import Call, Statement
from stepwell.stores.postgres.pool import ConnectionPool
from stepwell.stores.postgres.schema import quote_schema
from stepwell.stores.postgres.server import Server
from stepwell.stores.postgres.values import Encoded, Row, encode
from stepwell.stores.postgres.writer import LoopWriter, Write

EXIT_GRACE = 2.0  # seconds for writes to finish when the program ends

# Connections that a forked child inherited. Referenced for the rest of the process, so that they
# are never closed: closing sends a goodbye over the socket, and the server would end the session of
# the parent.
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
        quote_schema(schema)
        self._server = Server(dsn, schema, timeout)
        self._settings = (schema, timeout, connections)
        self._lock = threading.Lock()
        self._workers: _Workers | None = None
        self._is_exiting = False
        fork_hooks.register(self)

    async def write(
        self, statement: Statement, values: Encoded, *, holds_back: bool = False, best_effort: bool = False
    ) -> list[Row]:
        """Return the rows of a call that writes, once it is committed.

        It is completed even if the caller is cancelled. With `holds_back`, the cancellation is held
        back until then. A best effort does not wait for a server that others have given up.
        """
        write = Write(Call(statement, values), holds_back=holds_back, best_effort=best_effort)
        # Under the lock: otherwise `close` could come in between, and nobody would close the
        # connection.
        with self._lock:
            self._open().writer(write.waiting.loop).submit(write)
        return await write.waiting

    async def read(self, query: str, *values: object) -> list[Row]:
        """Return the rows of a query. It sees everything that was committed before the call."""
        call, asked = Call(Statement(query.encode()), encode(*values)), time.monotonic()
        with self._lock:
            workers = self._open()
            try:
                rows = workers.readers.submit(workers.call, call, asked=asked)
            except RuntimeError as error:  # the interpreter is shutting down and its pools accept no work
                raise StoreUnavailable(f"cannot use the store while the program is exiting: {error}") from error
        return await asyncio.wrap_future(rows)

    async def execute(self, statement: str) -> None:
        """Execute a statement without a result outside any transaction, such as VACUUM.

        It may be executed twice if the connection breaks.
        """
        with self._lock:
            workers = self._open()
            done = workers.readers.submit(workers.pool.use, lambda db, again: db.execute(statement.encode()))
        await asyncio.wrap_future(done)

    def call(self, statement: Statement, values: Encoded, *, best_effort: bool = False) -> list[Row]:
        """Return the rows of a call, waiting for it in this thread."""
        with self._lock:
            workers = self._open()
        return workers.call(Call(statement, values), best_effort=best_effort)

    @contextmanager
    def step_connection(self) -> Iterator[StepConnection]:
        """Lend a new connection for the user's own statements.

        At most `connections` of these are open at a time, besides those of the store.
        """
        with self._lock:
            workers = self._open()
        with workers.room_for_steps:
            db = workers.pool.connect_for_step()
            try:
                yield db
            finally:
                db.close()

    async def close(self) -> None:
        """Finish what is under way and close all connections. The next call opens them again."""
        if (workers := self._detach_workers()) is not None:
            await asyncio.to_thread(workers.close)

    def close_at_exit(self) -> None:
        """Let writes finish for a moment. The readers have ended before exit hooks are called."""
        self._is_exiting = True
        if (workers := self._detach_workers()) is not None:
            workers.close_at_exit()

    def _detach_workers(self) -> _Workers | None:
        with self._lock:
            workers, self._workers = self._workers, None
            if workers is not None:
                self._close_if_abandoned.detach()
        return workers

    def _open(self) -> _Workers:
        if self._is_exiting:
            raise StoreUnavailable("cannot use the store while the program is exiting")
        if self._workers is None:
            self._workers = _Workers(self._server, *self._settings)
            # A database that is garbage collected without `close` still closes its connections.
            self._close_if_abandoned = weakref.finalize(self, self._workers.pool.close)
            self._close_if_abandoned.atexit = False  # at exit, `close_at_exit` does it
        return self._workers

    # Connections may stay open while the process forks: the child does not use them.

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:  # threads are not inherited, and the connections belong to the parent
            _INHERITED.append(self._workers)
            self._lock, self._workers = threading.Lock(), None
        else:
            self._lock.release()


class _Workers:
    """The connections and threads of a database, from its first use until it is closed."""

    def __init__(self, server: Server, schema: str, timeout: float, connections: int) -> None:
        self.pool = ConnectionPool(server, schema, timeout, connections)
        # One connection is left to the writes, however long lists take.
        self.readers = ThreadPoolExecutor(connections - 1, thread_name_prefix="stepwell-postgres-read")
        self.room_for_steps = threading.BoundedSemaphore(connections)
        self._writers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWriter] = weakref.WeakKeyDictionary()

    def writer(self, loop: asyncio.AbstractEventLoop) -> LoopWriter:
        """Return the writer of the running loop."""
        writer = self._writers.get(loop)
        if writer is None:
            writer = self._writers[loop] = LoopWriter(self.pool)
        return writer

    def call(self, call: Call, *, asked: float | None = None, best_effort: bool = False) -> list[Row]:
        return self.pool.use(lambda db, again: db.call(call), asked=asked, best_effort=best_effort)[0]

    def close(self) -> None:
        """Wait until the writes of all event loops and all reads are done, and close the connections."""
        idle: list[Future[None]] = []
        for loop, writer in list(self._writers.items()):
            # A loop that does not run does nothing that could be waited for.
            with suppress(RuntimeError):  # it was closed just now
                if loop.is_running():
                    done: Future[None] = Future()
                    loop.call_soon_threadsafe(writer.when_idle, partial(done.set_result, None))
                    idle.append(done)
        wait(idle)
        self.readers.shutdown()
        self.pool.close()

    def close_at_exit(self) -> None:
        until = time.monotonic() + EXIT_GRACE
        for writer in list(self._writers.values()):
            if writer.thread is not None and writer.thread.is_alive():
                writer.thread.join(max(until - time.monotonic(), 0))
        self.pool.close()
