"""Access to one SQLite file from any event loop, thread and process: one thread writes, a few read.

The writer takes all jobs that are waiting and commits them as one transaction, so that many runs
share one wait for the disk (group commit). A caller gets its result only after COMMIT.

The async methods also work without an event loop: they block and return.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from stepwell.storage.permissions import OWNER_ONLY
from stepwell.stores.fork_hooks import Reopenable
from stepwell.stores.jobs import Job, fail, make_awaited, settle, submit
from stepwell.stores.sqlite.connections import FOREIGN, Connections, Prepare, open_database, patiently, translate

READERS = 4  # threads
EXIT_GRACE = 2.0  # seconds for the writer to finish when the program ends
BATCH = 1000  # most jobs in one transaction, so that the first of them does not wait for too many others

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class SQLiteDatabase(Reopenable["_SQLiteWorkers"]):
    """Runs reads and writes on the file.

    Folders, connections and threads are created at the first use, and again at the first use after
    `close`.
    """

    def __init__(self, path: str, prepare: Prepare, mode: int = OWNER_ONLY) -> None:
        """Set the path; nothing is opened yet.

        `prepare` sets up a new connection. It is called again if the file is locked, so it must be
        repeatable. `mode` is the permissions of a newly created file.
        """
        self._settings = (path, prepare, mode)
        super().__init__()

    async def write(self, work: Work[T]) -> T:
        """Return what `work` returns, once it is committed.

        If `work` raises, its own changes are undone, and nobody else's. A cancelled caller is
        cancelled when the work is done, so that it knows the write was made.
        """
        waiting = make_awaited(unbroken=True)
        if waiting is None:
            return self.write_blocking(work)
        self._submit(Job(work, waiting))
        result: T = await waiting
        return result

    def write_blocking(self, work: Work[T]) -> T:
        """Do the same as `write` from a thread without an event loop."""
        waiting: Future[T] = Future()
        self._submit(Job(work, waiting))
        return waiting.result()

    async def read(self, work: Work[T]) -> T:
        """Return what `work` returns.

        It sees the file as it is at one moment, with everything that was committed before the call.
        """
        waiting = make_awaited()
        if waiting is None:
            return self.read_blocking(work)
        self._submit(Job(work, waiting), only_reads=True)
        result: T = await waiting
        return result

    def read_blocking(self, work: Work[T]) -> T:
        """Do the same as `read` from a thread without an event loop."""
        waiting: Future[T] = Future()
        self._submit(Job(work, waiting), only_reads=True)
        return waiting.result()

    async def close(self) -> None:
        """Finish what is under way and close all connections. The next call opens them again."""
        with self._lock:
            workers = self._detach()
        if workers is not None and make_awaited() is not None:
            from asyncio import to_thread  # lazy: it loads asyncio, 15 ms

            await to_thread(workers.close)
        elif workers is not None:
            workers.close()

    def close_at_exit(self) -> None:
        """Let the writer finish for a moment. The readers have ended before exit hooks are called."""
        with self._lock:
            super().close_at_exit()
            workers = self._detach()
        if workers is not None:
            workers.close(EXIT_GRACE)

    # SQLite tracks its file locks per process. A child that inherited open connections would rely
    # on locks it does not hold, even on connections it opens itself, and commits could be lost. So
    # everything is closed while the process forks.

    def before_fork(self) -> None:
        super().before_fork()
        if (workers := self._detach()) is not None:
            workers.close()

    def _start(self) -> _SQLiteWorkers:
        return _SQLiteWorkers(self._settings, self)

    def _submit(self, job: Job, *, only_reads: bool = False) -> None:
        # Under the lock: otherwise `close` could send the end marker first, and the job would wait
        # forever.
        with self._lock:
            workers = self._opened or self._get()
            if only_reads:
                submit(workers.readers, lambda: workers.read(job))
            else:
                workers.jobs.put(job)


class _SQLiteWorkers:
    """The threads and connections of a database, from its first use until it is closed."""

    def __init__(self, settings: tuple[str, Prepare, int], owner: SQLiteDatabase) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="stepwell-sqlite-read")
        self._settings = settings
        self._for_reading = Connections(*settings)
        # Used by the writer alone: so the pages that it has cached stay valid.
        self._for_writing: sqlite3.Connection | None = None
        self._writer = threading.Thread(target=self._write_until_closed, name="stepwell-sqlite-write", daemon=True)
        self._writer.start()
        # A database that is garbage collected without `close` still ends its threads.
        self._close_if_abandoned = weakref.finalize(owner, self.jobs.put, None)
        self._close_if_abandoned.atexit = False  # at exit, `close_at_exit` does it and waits

    def read(self, job: Job) -> None:
        """Do a job that only reads, in a thread of the pool."""
        try:
            with self._for_reading.lend() as db:
                db.execute("BEGIN")
                job.result = job.work(db)
                if db.in_transaction:
                    db.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            job.error = error
        settle([job])

    def close(self, patience: float | None = None) -> None:
        """Wait until all jobs are done and all connections are closed, or for so many seconds."""
        self._close_if_abandoned.detach()
        self.jobs.put(None)
        self._writer.join(patience)

    def _write_until_closed(self) -> None:
        """Commit jobs until a None arrives, then close all connections.

        This thread closes them, not the finalizer of the database: a finalizer may run in any
        thread, in the middle of anything.
        """
        is_open = True
        while is_open:
            waiting = [self.jobs.get()]
            # Nobody else takes jobs, so as many as are counted are there.
            waiting += [self.jobs.get() for _ in range(min(self.jobs.qsize(), BATCH - 1))]
            batch = [job for job in waiting if job is not None]
            is_open = len(batch) == len(waiting)
            if batch:
                self._commit(batch)
                settle(batch)
        self.readers.shutdown()
        self._for_reading.close()
        if self._for_writing is not None:
            self._for_writing.close()

    def _commit(self, batch: list[Job]) -> None:
        path = self._settings[0]
        try:
            db = self._for_writing = self._for_writing or open_database(*self._settings)
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # another process writes
                _begin(db)
            if not _do_all(batch, db):
                for job in batch:
                    _do_alone(job, db, path)
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - nothing was committed, and the writer thread must survive
            if self._for_writing is not None:
                self._for_writing.close()  # rolls back an open transaction
                self._for_writing = None
            known = translate(error, path) if isinstance(error, FOREIGN) else error
            known.__cause__ = None if known is error else error
            fail(batch, known)


def _begin(db: sqlite3.Connection) -> None:
    patiently(lambda: db.execute("BEGIN IMMEDIATE"))


def _do_all(batch: list[Job], db: sqlite3.Connection) -> bool:
    """Do all jobs without savepoints. False if one failed: none is done, in a new transaction.

    Jobs rarely fail, so the cost of a savepoint for each is paid only after one has.
    """
    try:
        for job in batch:
            job.result = job.work(db)
    except Exception:  # noqa: BLE001 - the caller does each job by itself, and that shows which one fails and why
        if db.in_transaction:
            db.execute("ROLLBACK")
        _begin(db)
        return False
    return True


def _do_alone(job: Job, db: sqlite3.Connection, path: str) -> None:
    """Do a job all or nothing, and keep its error if it fails."""
    db.execute("SAVEPOINT job")
    try:
        job.result = job.work(db)
    except Exception as error:
        # On some errors, such as a full disk, SQLite itself rolls back the whole transaction. Then
        # the other jobs of the batch are undone too, and the batch must fail as a whole.
        if not db.in_transaction:
            raise
        db.execute("ROLLBACK TO job")
        job.error = translate(error, path) if isinstance(error, FOREIGN) else error
    db.execute("RELEASE job")
