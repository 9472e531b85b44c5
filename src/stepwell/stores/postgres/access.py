"""Access to one schema from any event loop and thread: one thread writes, a few read.

A job that is alone goes straight from the event loop to the server (`direct`). Otherwise the writer
thread sends all waiting jobs as one statement, so that many runs share one round trip and one wait
for the server's disk. A caller gets its result only after the commit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.stores import fork_hooks
from stepwell.stores.postgres.connection import Guest, Ours
from stepwell.stores.postgres.direct import DirectWriter, Sign
from stepwell.stores.postgres.errors import JOB_ERRORS
from stepwell.stores.postgres.job import Columns, Job, Line, settle_jobs
from stepwell.stores.postgres.link import Link
from stepwell.stores.postgres.schema import quote_schema
from stepwell.stores.postgres.sender import Statement
from stepwell.stores.postgres.tables import COLUMNS, FORMAT
from stepwell.stores.thread_work import Awaited

Row = tuple[Any, ...]

# The most that one statement carries, so that the first caller does not wait for too much of
# others' work.
BATCH = 500  # jobs
BATCH_CHARACTERS = 16 * 2**20
EXIT_GRACE = 2.0  # seconds for the writer to finish when the program ends

# Connections that a forked child inherited. Referenced for the rest of the process, so that they
# are never closed: closing sends a goodbye over the socket, and the server would end the session of
# the parent.
_INHERITED: list[object] = []


class PostgresDatabase:
    """Sends jobs and queries to one schema.

    Connects and starts threads at the first use, and again at the first use after `close`.
    """

    def __init__(self, dsn: str, schema: str, patience: float, connections: int) -> None:
        """Check the settings; nothing is connected yet.

        Raises ValueError for a bad dsn or schema.
        """
        if connections < 2:
            raise ValueError(
                f"a store needs at least 2 connections, one to write and one to read; got connections={connections}"
            )
        Link(dsn, schema, patience)  # raises for bad settings now, not at the first use
        self._settings = (dsn, schema, patience, connections)
        self._lock = threading.Lock()
        self._workers: _PostgresWorkers | None = None
        self._exiting = False
        fork_hooks.register(self)

    async def write(self, line: bytes, body: str | None = None) -> Any:
        """Return the result of a job, once it is committed.

        `line` is the job as a JSON object, `body` the text that goes with it. A cancelled caller is
        cancelled at once: the server may be away, or the run locked, for a long time.
        """
        waiting: Awaited[Any] = Awaited()
        self._submit(Job(line, body, waiting))
        return await waiting

    async def append(self, line: Line, body: str, columns: Columns | None = None) -> Any:
        """Append a record: as `write`, but with `columns` by the faster function `add`."""
        waiting: Awaited[Any] = Awaited()
        self._submit(Job(line, body, waiting, columns))
        return await waiting

    async def write_best_effort(self, line: bytes) -> Any:
        """Do the same as `write`, without waiting for a server that was already given up."""
        waiting: Awaited[Any] = Awaited()
        self._submit(Job(line, None, waiting, best_effort=True))
        return await waiting

    def write_blocking(self, line: bytes) -> Any:
        """Do the same as `write_best_effort` from a thread without an event loop."""
        waiting: Future[Any] = Future()
        self._submit(Job(line, None, waiting, best_effort=True))
        return waiting.result()

    async def read(self, query: bytes, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a query. It sees everything that was committed before the call."""
        return await asyncio.wrap_future(self._start_reading(query, values))

    def read_blocking(self, query: bytes, values: Sequence[object] = ()) -> list[Row]:
        """Do the same as `read` from a thread without an event loop."""
        return self._start_reading(query, values).result()

    def read_best_effort(self, query: bytes, values: Sequence[object] = ()) -> list[Row]:
        """Do the same as `read_blocking`, without waiting for a server that was already given up."""
        return self._start_reading(query, values, best_effort=True).result()

    async def tidy(self, statement: bytes) -> None:
        """Execute a statement without a result outside any transaction, such as VACUUM.

        It may be executed twice if the connection breaks.
        """
        with self._lock:
            workers = self._open_workers()
            done = workers.readers.submit(workers.tidy, statement)
        await asyncio.wrap_future(done)

    @contextmanager
    def guest(self) -> Iterator[Guest]:
        """Lend a new connection for the user's own statements.

        At most `connections` of these are open at a time, besides those of the store.
        """
        with self._lock:
            workers = self._open_workers()
        with workers.room_for_guests:
            guest = workers.link.guest()
            try:
                yield guest
            finally:
                guest.leave()

    async def close(self) -> None:
        """Finish what is under way and close all connections. The next call opens them again."""
        if (workers := self._detach_workers()) is not None:
            await asyncio.to_thread(workers.close)

    def close_at_exit(self) -> None:
        """Let the writer finish for a moment.

        The readers have ended before exit hooks are called.
        """
        self._exiting = True
        if (workers := self._detach_workers()) is not None:
            workers.end_writing(EXIT_GRACE)

    def _detach_workers(self) -> _PostgresWorkers | None:
        with self._lock:
            workers, self._workers = self._workers, None
            if workers is not None:
                workers.end_if_abandoned.detach()
        return workers

    def _start_reading(self, query: bytes, values: Sequence[object], *, best_effort: bool = False) -> Future[list[Row]]:
        with self._lock:
            workers = self._open_workers()
            try:
                return workers.readers.submit(workers.read, query, values, time.monotonic(), best_effort)
            except RuntimeError as error:  # the interpreter is shutting down and its pools accept no work
                raise StoreUnavailable(f"cannot read from the store while the program is exiting: {error}") from error

    def _submit(self, job: Job) -> None:
        # Under the lock: otherwise `close` could send the end marker first, and the job would wait
        # forever.
        with self._lock:
            self._open_workers().direct.submit(job)

    def _open_workers(self) -> _PostgresWorkers:
        if self._exiting:
            raise StoreUnavailable("cannot use the store while the program is exiting")
        if self._workers is None:
            self._workers = _PostgresWorkers(*self._settings, self)
        return self._workers

    # Unlike SQLite, connections may stay open while the process forks: the child does not use them.

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:  # threads are not inherited, and the connections belong to the parent
            _INHERITED.append(self._workers)
            self._lock, self._workers = threading.Lock(), None
        else:
            self._lock.release()


class _PostgresWorkers:
    """The threads and connections of a database, from its first use until it is closed."""

    def __init__(self, dsn: str, schema: str, patience: float, connections: int, owner: PostgresDatabase) -> None:
        self.readers = ThreadPoolExecutor(connections - 1, thread_name_prefix="stepwell-postgres-read")
        self.room_for_guests = threading.BoundedSemaphore(connections)
        self.link = Link(dsn, schema, patience)
        name = quote_schema(schema)
        work = Statement(
            f"SELECT to_jsonb({name}.work({FORMAT}, $1, $2))".encode(),
            f"SELECT {name}.add({FORMAT}, {', '.join(f'${n}' for n in range(1, COLUMNS + 1))})".encode(),
        )
        self.direct = DirectWriter(self.link, work)
        self._writer = threading.Thread(
            target=_write_until_closed, args=(self.direct, self.link, work), name="stepwell-postgres-write", daemon=True
        )
        self._writer.start()
        # A database that is garbage collected without `close` still ends its writer thread.
        self.end_if_abandoned = weakref.finalize(owner, self.direct.jobs.put, Sign.END)
        self.end_if_abandoned.atexit = False  # at exit, `close_at_exit` ends the writer and waits for it

    def read(self, query: bytes, values: Sequence[object], asked: float, best_effort: bool) -> list[Row]:
        return self.link.use(
            lambda db, again: db.execute(query, values, binary=True).fetchall(), asked=asked, best_effort=best_effort
        )

    def tidy(self, statement: bytes) -> None:
        self.link.use(lambda db, again: db.execute(statement))

    def close(self) -> None:
        self.readers.shutdown()
        self.end_writing()

    def end_writing(self, patience: float | None = None) -> None:
        """Let the writer finish all queued jobs and close every connection."""
        self.direct.jobs.put(Sign.END)
        self._writer.join(patience)


def _write_until_closed(direct: DirectWriter, link: Link, work: Statement) -> None:
    """Run the writer thread: send jobs in batches until the end marker, then close all connections.

    The thread closes them, not the finalizer of the database: a finalizer may run in any thread, in
    the middle of anything.
    """
    is_open = True
    while is_open:
        waiting: list[Job | Sign] = [direct.jobs.get()]
        # Before anything is sent: a statement that an event loop has sent may still be under way,
        # and jobs must be applied in the order in which they were submitted.
        first = direct.take_over()
        load = _load(waiting[0])
        with suppress(queue.Empty):
            while len(waiting) < BATCH and load < BATCH_CHARACTERS:
                waiting.append(direct.jobs.get_nowait())
                load += _load(waiting[-1])
        is_open = Sign.END not in waiting
        # A job whose caller was cancelled before it was sent is skipped.
        batch = [job for job in (first, *waiting) if isinstance(job, Job) and job.is_wanted()]
        if batch:
            _write(batch, link, work)
        # Before the callers are woken: the next job of one that is alone may then go directly
        # again.
        direct.note_done(len(waiting))
        settle_jobs(batch)
    link.close()


def _load(job: Job | Sign) -> int:
    return job.load if isinstance(job, Job) else 0


def _write(batch: list[Job], link: Link, work: Statement) -> None:
    """Send the jobs as one statement. If one of them makes it fail, send each job by itself."""

    def send(db: Ours, again: bool) -> list[object]:
        for job in batch:
            job.again = job.again or again
        jobs = b"[" + b",".join(job.line for job in batch) + b"]"
        with db.line:
            return work.call(db, jobs, [job.body for job in batch], unprepared=db.is_pooled)

    asked, best_effort = min(job.asked for job in batch), all(job.best_effort for job in batch)
    in_doubt = any(job.again for job in batch)
    try:
        answers = link.use(send, asked=asked, best_effort=best_effort, in_doubt=in_doubt)
    except DurabilityError as error:
        # Errors of the server hit all jobs alike. Only an error in the data of one job is worth a
        # second try.
        together = len(batch) == 1 or not isinstance(error.__cause__, JOB_ERRORS)
        for job in batch:
            job.fail(error) if together else _write([job], link, work)
    except Exception as error:  # noqa: BLE001 - the writer thread must survive
        for job in batch:
            job.fail(StoreUnavailable(repr(error)))
    else:
        for job, answer in zip(batch, answers, strict=True):
            job.succeed(answer)
