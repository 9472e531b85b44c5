"""One SQLite file, used from any event loop, thread and process: one thread writes, a few read.

The writer takes every piece of work that is waiting and commits it as one transaction, so that many
runs share one wait for the disk. Whoever waits is told only after COMMIT.

Where no event loop runs, what is awaited is there when `await` returns, without one: a program that only looks
something up need not load asyncio, which takes longer than the looking up.
"""

from __future__ import annotations

import atexit
import os
import queue
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.storage.permissions import OWNER_ONLY
from stepwell.stores.sqlite.connections import FOREIGN, Connections, Prepare, patiently, translate

if TYPE_CHECKING:
    from stepwell.stores.thread_work import Awaited

READERS = 4
GOODBYE = 2.0  # seconds for the writer to finish when the program ends
BATCH = 1000  # a bound on one transaction, not a goal

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class SQLiteDatabase:
    """Runs work on the file. Opens, starts threads and creates folders at the first use, and again after `close`."""

    def __init__(self, path: str, prepare: Prepare, mode: int = OWNER_ONLY) -> None:
        """`prepare` readies a new connection. It is called again when it meets a lock, so it must be repeatable.
        `mode` is that of a file that is new."""
        self._path, self._prepare, self._mode = path, prepare, mode
        self._lock = threading.Lock()
        self._lanes: _SQLiteLanes | None = None
        self._exiting = False
        _DATABASES.add(self)

    async def write(self, work: Work[T]) -> T:
        """What `work` returns, once it is committed. What it raises undoes it, and nobody else's work.

        Whoever is cancelled meanwhile is so when it is done.
        """
        if not _in_a_loop():
            return self.write_blocking(work)
        from stepwell.stores.thread_work import Awaited

        waiting: Awaited[T] = Awaited(unbroken=True)
        self._submit(_Job(work, waiting))
        return await waiting

    def write_blocking(self, work: Work[T]) -> T:
        """The same from a thread without an event loop."""
        waiting: Future[T] = Future()
        self._submit(_Job(work, waiting))
        return waiting.result()

    async def read(self, work: Work[T]) -> T:
        """What `work` finds. Everything that was committed before is seen."""
        if not _in_a_loop():
            return self.read_blocking(work)
        from asyncio import wrap_future

        return await wrap_future(self._start_reading(work))

    def read_blocking(self, work: Work[T]) -> T:
        """The same from a thread without an event loop."""
        return self._start_reading(work).result()

    async def close(self) -> None:
        lanes = self._give_up_lanes()
        if lanes is None:
            return
        if not _in_a_loop():
            lanes.close()
            return
        from asyncio import to_thread

        await to_thread(lanes.close)

    def close_at_exit(self) -> None:
        """Close what the program left open: its readers have ended, and the writer has a moment to finish."""
        self._exiting = True
        if (lanes := self._give_up_lanes()) is not None:
            lanes.end_writing(GOODBYE)

    def _give_up_lanes(self) -> _SQLiteLanes | None:
        with self._lock:
            lanes, self._lanes = self._lanes, None
            if lanes is not None:
                lanes.if_abandoned.detach()
        return lanes

    def _start_reading(self, work: Work[T]) -> Future[T]:
        with self._lock:
            lanes = self._open_lanes()
            try:
                return lanes.readers.submit(lanes.read, work)
            except RuntimeError as error:  # Python starts no work any more when it is about to end
                raise StoreUnavailable(f"the program is ending, so nothing is read any more: {error}") from error

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._open_lanes().jobs.put(job)

    def _open_lanes(self) -> _SQLiteLanes:
        if self._exiting:
            raise StoreUnavailable("the program is ending, so the store is not used any more")
        if self._lanes is None:
            self._lanes = _SQLiteLanes(self._path, self._prepare, self._mode, self)
        return self._lanes

    def before_fork(self) -> None:
        self._lock.acquire()
        if self._lanes is not None:
            self._lanes.pause()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:  # the threads have stayed in the parent
            self._lock, self._lanes = threading.Lock(), None
            return
        if self._lanes is not None:
            self._lanes.resume()
        self._lock.release()


class _SQLiteLanes:
    """The threads and connections of a database from its first use to its closing."""

    def __init__(self, path: str, prepare: Prepare, mode: int, owner: SQLiteDatabase) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="stepwell-sqlite-read")
        self._for_reading = Connections(path, prepare, mode)
        self._for_writing = Connections(path, prepare, mode)
        self._writer = threading.Thread(
            target=_write_for_ever,
            args=(self.jobs, self._for_writing, self._for_reading),
            name="stepwell-sqlite-write",
            daemon=True,
        )
        self._writer.start()
        self.if_abandoned = weakref.finalize(
            owner, self.jobs.put, None
        )  # a database that nobody closed ends its writer
        self.if_abandoned.atexit = False  # that is done by `_close_at_exit`, which waits for it

    def read(self, work: Work[T]) -> T:
        with self._for_reading.lend() as db:
            return work(db)

    def close(self) -> None:
        self.readers.shutdown()
        self.end_writing()

    def end_writing(self, patience: float | None = None) -> None:
        """Let the writer finish what is waiting, and close every connection."""
        self.jobs.put(None)
        self._writer.join(patience)

    def pause(self) -> None:
        self._for_reading.pause()
        self._for_writing.pause()

    def resume(self) -> None:
        self._for_reading.resume()
        self._for_writing.resume()


class _Job:
    """A piece of work for the writer, who waits for it, and how it went."""

    __slots__ = ("_error", "_result", "_work", "waiting")

    def __init__(self, work: Work[Any], waiting: Awaited[Any] | Future[Any]) -> None:
        self._work, self.waiting = work, waiting
        self._result: object = None
        self._error: Exception | None = None

    def do(self, db: sqlite3.Connection) -> None:
        """Do the work inside the open transaction. May be called again if the transaction is given up."""
        self._result = self._work(db)

    def attempt(self, db: sqlite3.Connection, path: str, *, alone: bool) -> None:
        """Do the work inside the open transaction, wholly or not at all. Alone, it may give up the transaction."""
        if not alone:
            db.execute("SAVEPOINT job")
        try:
            self.do(db)
        except Exception as error:
            if not db.in_transaction:  # a full disk makes SQLite give up the whole transaction, not only this work
                raise
            db.execute("ROLLBACK" if alone else "ROLLBACK TO job")
            self._error = translate(error, path) if isinstance(error, FOREIGN) else error
        if not alone:
            db.execute("RELEASE job")

    def fail(self, error: Exception) -> None:
        self._error = error

    def settle(self) -> None:
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self._result)


def _write_for_ever(jobs: queue.SimpleQueue[_Job | None], connections: Connections, for_reading: Connections) -> None:
    """The writer thread. Ends at a None, when everything before it is done, and closes all connections.

    It does that, and not the finalizer of the database: a finalizer may run in any thread, in the midst of anything.
    """
    going_on = True
    while going_on:
        waiting: list[_Job | None] = [jobs.get()]
        with suppress(queue.Empty):
            while len(waiting) < BATCH:
                waiting.append(jobs.get_nowait())
        going_on = None not in waiting
        batch = [job for job in waiting if job is not None]
        if batch:
            _commit(batch, connections)
            _settle_all(batch)
    connections.retire()
    for_reading.retire()


def _commit(batch: list[_Job], connections: Connections) -> None:
    try:
        with connections.lend() as db:
            _begin(db)
            if len(batch) == 1 or not _do_all(batch, db):
                for job in batch:
                    job.attempt(db, connections.path, alone=len(batch) == 1)
            if db.in_transaction:  # else the only job gave it up
                db.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 - whatever it was: nothing is applied, and the writer must live on
        for job in batch:  # each its own: an exception raised in several tasks would mix their tracebacks
            own_error = type(error)(str(error)) if isinstance(error, DurabilityError) else StoreUnavailable(repr(error))
            own_error.__cause__ = error
            job.fail(own_error)


def _begin(db: sqlite3.Connection) -> None:
    patiently(lambda: db.execute("BEGIN IMMEDIATE"))


def _do_all(batch: list[_Job], db: sqlite3.Connection) -> bool:
    """Whether all jobs were done; if not, none was, and the transaction is a new one.

    Mostly none is refused. So what it takes to undo one of them alone is not done before that is needed.
    """
    try:
        for job in batch:
            job.do(db)
    except Exception:  # noqa: BLE001 - which one it was and what it means is found out when each is done apart
        if db.in_transaction:
            db.execute("ROLLBACK")
        _begin(db)
        return False
    return True


def _settle_all(batch: list[_Job]) -> None:
    for job in batch:
        job.settle()
    awaited = [job.waiting for job in batch if not isinstance(job.waiting, Future)]
    if awaited:
        from stepwell.stores.thread_work import wake_up

        wake_up(awaited)


def _in_a_loop() -> bool:
    """Whether an event loop runs in this thread. It cannot, where asyncio was never loaded."""
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running is not None and running() is not None


# SQLite books its locks per process. A child that inherited open connections would believe in locks it does
# not have, even on connections of its own, and commits could be lost. So nothing is open while we fork.
_DATABASES: weakref.WeakSet[SQLiteDatabase] = weakref.WeakSet()
_forking = threading.Lock()
_stopped: list[SQLiteDatabase] = []


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
