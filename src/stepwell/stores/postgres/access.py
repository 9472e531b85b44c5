"""One schema of a database, used from any event loop and thread: one thread writes, a few read.

A job that is alone goes straight from the event loop to the server. Otherwise the writer takes every job that is
waiting and sends them as one statement, so that many runs share one journey to the server and one wait for its disk.
Whoever waits is told only after the commit.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.stores.postgres.connection import Guest, Ours
from stepwell.stores.postgres.direct import Direct, Sign
from stepwell.stores.postgres.errors import ONES_OWN
from stepwell.stores.postgres.job import Columns, Job, Line, settle_jobs
from stepwell.stores.postgres.link import Link
from stepwell.stores.postgres.schema import quote_schema
from stepwell.stores.postgres.sender import Statement
from stepwell.stores.postgres.tables import COLUMNS, FORMAT
from stepwell.stores.thread_work import Awaited

Row = tuple[Any, ...]

BATCH = 500  # bounds on one statement, not goals
LOAD = 16 * 2**20  # characters
GOODBYE = 2.0  # seconds for the writer to finish when the program ends


class PostgresDatabase:
    """Sends jobs and questions. Connects and starts threads at the first use, and again after `close`."""

    def __init__(self, dsn: str, schema: str, patience: float, connections: int) -> None:
        """Raises ValueError if that cannot be a dsn or a schema."""
        if connections < 2:
            raise ValueError(
                f"a store needs 2 connections, one to write and one to read; it may not have {connections}"
            )
        Link(dsn, schema, patience)  # complains now, not at the first use
        self._settings = (dsn, schema, patience, connections)
        self._lock = threading.Lock()
        self._lanes: _PostgresLanes | None = None
        self._exiting = False
        _DATABASES.add(self)

    async def write(self, line: bytes, body: str | None = None) -> Any:
        """What the function of that job said, once it is committed. `line` is a JSON object, `body` goes with it.

        Whoever is cancelled meanwhile is so at once: a server may be away, or a run locked, for a long time.
        """
        waiting: Awaited[Any] = Awaited()
        self._submit(Job(line, body, waiting))
        return await waiting

    async def append(self, line: Line, body: str, columns: Columns | None = None) -> Any:
        """The same for a record, which may have columns to be added by."""
        waiting: Awaited[Any] = Awaited()
        self._submit(Job(line, body, waiting, columns))
        return await waiting

    async def write_best_effort(self, line: bytes) -> Any:
        """The same, without waiting for a server that was given up already."""
        waiting: Awaited[Any] = Awaited()
        self._submit(Job(line, None, waiting, best_effort=True))
        return await waiting

    def write_blocking(self, line: bytes) -> Any:
        """The same from a thread without an event loop."""
        waiting: Future[Any] = Future()
        self._submit(Job(line, None, waiting, best_effort=True))
        return waiting.result()

    async def read(self, query: bytes, values: Sequence[object] = ()) -> list[Row]:
        """What the query finds. Everything that was committed before is seen."""
        return await asyncio.wrap_future(self._start_reading(query, values))

    def read_blocking(self, query: bytes, values: Sequence[object] = ()) -> list[Row]:
        """The same from a thread without an event loop."""
        return self._start_reading(query, values).result()

    def read_best_effort(self, query: bytes, values: Sequence[object] = ()) -> list[Row]:
        """The same, without waiting for a server that was given up already."""
        return self._start_reading(query, values, best_effort=True).result()

    async def tidy(self, statement: bytes) -> None:
        """A statement that gives nothing and cannot be part of a transaction. May be done twice."""
        with self._lock:
            lanes = self._open_lanes()
            done = lanes.readers.submit(lanes.tidy, statement)
        await asyncio.wrap_future(done)

    @contextmanager
    def guest(self) -> Iterator[Guest]:
        """A connection for somebody else's statements, for one use. As many at a time as we have ourselves."""
        with self._lock:
            lanes = self._open_lanes()
        with lanes.room_for_guests:
            guest = lanes.link.guest()
            try:
                yield guest
            finally:
                guest.leave()

    async def close(self) -> None:
        if (lanes := self._give_up_lanes()) is not None:
            await asyncio.to_thread(lanes.close)

    def close_at_exit(self) -> None:
        """Close what the program left open: its readers have ended, and the writer has a moment to finish."""
        self._exiting = True
        if (lanes := self._give_up_lanes()) is not None:
            lanes.end_writing(GOODBYE)

    def _give_up_lanes(self) -> _PostgresLanes | None:
        with self._lock:
            lanes, self._lanes = self._lanes, None
            if lanes is not None:
                lanes.if_abandoned.detach()
        return lanes

    def _start_reading(self, query: bytes, values: Sequence[object], *, best_effort: bool = False) -> Future[list[Row]]:
        with self._lock:
            lanes = self._open_lanes()
            try:
                return lanes.readers.submit(lanes.read, query, values, time.monotonic(), best_effort)
            except RuntimeError as error:  # Python starts no work any more when it is about to end
                raise StoreUnavailable(f"the program is ending, so nothing is read any more: {error}") from error

    def _submit(self, job: Job) -> None:
        with self._lock:
            self._open_lanes().direct.submit(job)

    def _open_lanes(self) -> _PostgresLanes:
        if self._exiting:
            raise StoreUnavailable("the program is ending, so the store is not used any more")
        if self._lanes is None:
            self._lanes = _PostgresLanes(*self._settings, self)
        return self._lanes

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:  # the threads have stayed in the parent, and the connections are the parent's
            _LEFT_TO_THE_PARENT.append(self._lanes)
            self._lock, self._lanes = threading.Lock(), None
        else:
            self._lock.release()


class _PostgresLanes:
    """The threads and connections of a database from its first use to its closing."""

    def __init__(self, dsn: str, schema: str, patience: float, connections: int, owner: PostgresDatabase) -> None:
        self.readers = ThreadPoolExecutor(connections - 1, thread_name_prefix="stepwell-postgres-read")
        self.room_for_guests = threading.BoundedSemaphore(connections)
        self.link = Link(dsn, schema, patience)
        name = quote_schema(schema)
        work = Statement(
            f"SELECT to_jsonb({name}.work({FORMAT}, $1, $2))".encode(),
            f"SELECT {name}.add({FORMAT}, {', '.join(f'${n}' for n in range(1, COLUMNS + 1))})".encode(),
        )
        self.direct = Direct(self.link, work)
        self._writer = threading.Thread(
            target=_write_for_ever, args=(self.direct, self.link, work), name="stepwell-postgres-write", daemon=True
        )
        self._writer.start()
        self.if_abandoned = weakref.finalize(owner, self.direct.jobs.put, Sign.END)  # nobody closed it: end its writer
        self.if_abandoned.atexit = False  # that is done by `_close_at_exit`, which waits for it

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
        """Let the writer finish what is waiting, and close every connection."""
        self.direct.jobs.put(Sign.END)
        self._writer.join(patience)


def _write_for_ever(direct: Direct, link: Link, work: Statement) -> None:
    """The writer thread. Ends at the sign, when everything before it is done, and closes all connections.

    It does that, and not the finalizer of the database: a finalizer may run in any thread, in the midst of anything.
    """
    going_on = True
    while going_on:
        waiting: list[Job | Sign] = [direct.jobs.get()]
        first = direct.take_over()
        load = _load(waiting[0])
        with suppress(queue.Empty):
            while len(waiting) < BATCH and load < LOAD:
                waiting.append(direct.jobs.get_nowait())
                load += _load(waiting[-1])
        going_on = Sign.END not in waiting
        batch = [job for job in (first, *waiting) if isinstance(job, Job) and job.is_wanted()]
        if batch:
            _write(batch, link, work)
        direct.did(len(waiting))
        settle_jobs(batch)
    link.close()


def _load(job: Job | Sign) -> int:
    return job.load if isinstance(job, Job) else 0


def _write(batch: list[Job], link: Link, work: Statement) -> None:
    """Send the jobs together; if one of them spoils that, each alone, so that each fails only for its own fault."""

    def send(db: Ours, again: bool) -> list[object]:
        for job in batch:
            job.again = job.again or again
        jobs = b"[" + b",".join(job.line for job in batch) + b"]"
        with db.line:
            return work.answers(db, jobs, [job.body for job in batch], whole=db.is_pooled)

    asked, best_effort = min(job.asked for job in batch), all(job.best_effort for job in batch)
    in_doubt = any(job.again for job in batch)
    try:
        answers = link.use(send, asked=asked, best_effort=best_effort, in_doubt=in_doubt)
    except DurabilityError as error:
        together = len(batch) == 1 or not isinstance(error.__cause__, ONES_OWN)
        for job in batch:
            job.fail(error) if together else _write([job], link, work)
    except Exception as error:  # noqa: BLE001 - whatever it was, the writer must live on
        for job in batch:
            job.fail(StoreUnavailable(repr(error)))
    else:
        for job, answer in zip(batch, answers, strict=True):
            job.succeed(answer)


# A connection works in one process only. A forked child connects anew, and must not close what it inherited: the
# server would take that for the parent's goodbye.
_DATABASES: weakref.WeakSet[PostgresDatabase] = weakref.WeakSet()
_LEFT_TO_THE_PARENT: list[object] = []
_forking = threading.Lock()
_stopped: list[PostgresDatabase] = []


def _before_fork() -> None:
    _forking.acquire()
    _stopped[:] = list(_DATABASES)
    for database in _stopped:
        database.before_fork()


def _after_fork_in_parent() -> None:
    for database in _stopped:
        database.after_fork(in_child=False)
    _stopped.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.Lock()
    for database in _stopped:
        database.after_fork(in_child=True)
    _stopped.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


@atexit.register
def _close_at_exit() -> None:
    for database in list(_DATABASES):
        database.close_at_exit()
