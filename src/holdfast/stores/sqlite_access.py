"""One SQLite file, used from any event loop, thread and process: one thread writes, a few read.

The writer takes every piece of work that is waiting and commits it as one transaction, so that many
runs share one wait for the disk. Whoever waits is told only after COMMIT.

Where no event loop runs, what is awaited is there when `await` returns, without one: a program that only looks
something up need not load asyncio, which takes longer than the looking up.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.errors import CheckpointCorrupt, DurabilityError, StoreUnavailable
from ..durable.permissions import OWNER_ONLY, folder_mode
from .sqlite_files import make_file, make_folder

if TYPE_CHECKING:
    from .awaiting import Awaited

PATIENCE = 30.0  # seconds to wait for other processes on the same file
READERS = 4
BATCH = 1000  # a bound on one transaction, not a goal

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Prepare = Callable[[sqlite3.Connection, str], None]

_FOREIGN = (sqlite3.Error, UnicodeDecodeError, OverflowError)  # what is not ours: the last, of a number beyond 64 bits


class Database:
    """Runs work on the file. Opens, starts threads and creates folders at the first use, and again after `close`."""

    def __init__(self, path: str, prepare: Prepare, mode: int = OWNER_ONLY) -> None:
        """`prepare` readies a new connection. It is called again when it meets a lock, so it must be repeatable.
        `mode` is that of a file that is new."""
        self._path, self._prepare, self._mode = path, prepare, mode
        self._lock = threading.Lock()
        self._lanes: _Lanes | None = None
        _DATABASES.add(self)

    async def write(self, work: Work[T]) -> T:
        """What `work` returns, once it is committed. What it raises undoes it, and nobody else's work.

        Whoever is cancelled meanwhile is so when it is done.
        """
        if not _in_a_loop():
            return self.write_blocking(work)
        from .awaiting import Awaited

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
        with self._lock:
            lanes, self._lanes = self._lanes, None
        if lanes is None:
            return
        if not _in_a_loop():
            lanes.close()
            return
        from asyncio import to_thread

        await to_thread(lanes.close)

    def _start_reading(self, work: Work[T]) -> Future[T]:
        with self._lock:
            lanes = self._open_lanes()
            return lanes.readers.submit(lanes.read, work)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._open_lanes().jobs.put(job)

    def _open_lanes(self) -> _Lanes:
        if self._lanes is None:
            self._lanes = _Lanes(self._path, self._prepare, self._mode)
            weakref.finalize(self, self._lanes.jobs.put, None)  # an object nobody closed leaves no thread behind
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


class _Lanes:
    """The threads and connections of a database from its first use to its closing."""

    def __init__(self, path: str, prepare: Prepare, mode: int) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-sqlite-read")
        self._for_reading = _Connections(path, prepare, mode)
        self._for_writing = _Connections(path, prepare, mode)
        self._writer = threading.Thread(
            target=_write_for_ever, args=(self.jobs, self._for_writing), name="holdfast-sqlite-write", daemon=True
        )
        self._writer.start()

    def read(self, work: Work[T]) -> T:
        with self._for_reading.lend() as db:
            return work(db)

    def close(self) -> None:
        self.jobs.put(None)
        self._writer.join()
        self.readers.shutdown()
        self._for_reading.pause()

    def pause(self) -> None:
        self._for_reading.pause()
        self._for_writing.pause()

    def resume(self) -> None:
        self._for_reading.resume()
        self._for_writing.resume()


class _Connections:
    """Open connections, each lent to one user at a time."""

    def __init__(self, path: str, prepare: Prepare, mode: int) -> None:
        self.path, self._prepare, self._mode = path, prepare, mode
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._paused = False
        self._change = threading.Condition()

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection. Errors of SQLite come out translated, and a connection that saw one is not lent again."""
        with self._change:
            self._change.wait_for(lambda: not self._paused)
            db = self._idle.pop() if self._idle else None
            self._lent += 1
        sound = False
        try:
            if db is None:
                db = open_database(self.path, self._prepare, self._mode)
            yield db
            sound = True
        except _FOREIGN as error:
            raise translated(error, self.path) from error
        finally:
            if db is not None and not sound:
                db.close()  # rolls back what is open
            with self._change:
                if db is not None and sound:
                    self._idle.append(db)
                self._lent -= 1
                self._change.notify_all()

    def pause(self) -> None:
        """Wait until no connection is in use, close them all and lend none until `resume`."""
        with self._change:
            self._paused = True
            self._change.wait_for(lambda: self._lent == 0)
            while self._idle:
                self._idle.pop().close()

    def resume(self) -> None:
        with self._change:
            self._paused = False
            self._change.notify_all()


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
            self._error = translated(error, path) if isinstance(error, _FOREIGN) else error
        if not alone:
            db.execute("RELEASE job")

    def fail(self, error: Exception) -> None:
        self._error = error

    def tell(self) -> None:
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self._result)


def _write_for_ever(jobs: queue.SimpleQueue[_Job | None], connections: _Connections) -> None:
    """The writer thread. Ends at a None, when everything before it is done."""
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
            _tell(batch)
    connections.pause()


def _commit(batch: list[_Job], connections: _Connections) -> None:
    try:
        with connections.lend() as db:
            _begin(db)
            if len(batch) == 1 or not _all_done(batch, db):
                for job in batch:
                    job.attempt(db, connections.path, alone=len(batch) == 1)
            if db.in_transaction:  # else the only job gave it up
                db.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 - whatever it was: nothing is applied, and the writer must live on
        for job in batch:  # each its own: an exception raised in several tasks would mix their tracebacks
            again = type(error)(str(error)) if isinstance(error, DurabilityError) else StoreUnavailable(repr(error))
            again.__cause__ = error
            job.fail(again)


def _begin(db: sqlite3.Connection) -> None:
    patiently(lambda: db.execute("BEGIN IMMEDIATE"))


def _all_done(batch: list[_Job], db: sqlite3.Connection) -> bool:
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


def _tell(batch: list[_Job]) -> None:
    for job in batch:
        job.tell()
    awaited = [job.waiting for job in batch if not isinstance(job.waiting, Future)]
    if awaited:
        from .awaiting import wake_up

        wake_up(awaited)


def _in_a_loop() -> bool:
    """Whether an event loop runs in this thread. It cannot, where asyncio was never loaded."""
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running is not None and running() is not None


def open_database(path: str, prepare: Prepare, mode: int = OWNER_ONLY) -> sqlite3.Connection:
    """A connection in autocommit mode, prepared. The file and the folders above it are created."""
    try:
        make_folder(os.path.dirname(path), folder_mode(mode))
    except OSError as error:
        raise StoreUnavailable(f"the folder of the store {path} cannot be created: {error}") from error
    try:
        make_file(path, mode)
    except OSError as error:
        raise StoreUnavailable(f"the store {path} cannot be created: {error}") from error
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        patiently(lambda: prepare(db, path))
    except BaseException:
        db.close()
        raise
    return db


def patiently(action: Callable[[], T]) -> T:
    """Do it again while other processes lock the file: SQLite's own waiting leaves out a few such moments."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) not in _LOCKED or time.monotonic() > until:
                raise
        time.sleep(0.005)


def flaws(db: sqlite3.Connection) -> list[str]:
    """What SQLite finds when it compares its pages, tables and indexes with each other; not all, if it is much."""
    path = db.execute("PRAGMA database_list").fetchone()[2]
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else [_damaged(path, " ".join(words.split())) for words in found]


def _damaged(path: str, why: object) -> str:
    what = f"the database {path} is damaged ({why}); restore it from a backup, "
    return f"{what}or save what can be read with the sqlite3 command `.recover`"


def translated(error: Exception, path: str) -> DurabilityError:
    """The error in our words, with SQLite's own."""
    is_no_text = isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode to UTF-8")
    if is_no_text or _code(error) == sqlite3.SQLITE_CORRUPT:
        return CheckpointCorrupt(_damaged(path, error))
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} is not a SQLite database; it was left as it is. Name another file")
    return StoreUnavailable(f"the store {path} cannot be used: {error}")


def _code(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)  # absent where Python itself complains
    return None if code is None else code & 0xFF  # without the details of the extended codes


_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)

# SQLite books its locks per process. A child that inherited open connections would believe in locks it does
# not have, even on connections of its own, and commits could be lost. So nothing is open while we fork.
_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_forking = threading.Lock()
_stopped: list[Database] = []


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
