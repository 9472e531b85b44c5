"""The fast path to the server: an event loop sends a single job and reads the answer itself.

A thread in between would have to be woken, and would have to wake the loop. Everything else is left to
the writer thread: several jobs at once, the very first job, large jobs, jobs from threads without an
event loop, and all errors. The writer thread also takes over the answer that a loop is waiting for as
soon as another caller wants to write: that loop may be busy for a long time, or closed.
"""

from __future__ import annotations

import asyncio
import enum
import os
import queue
import threading
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

import psycopg
from psycopg.pq.abc import PGresult

from stepwell.errors import StoreUnavailable
from stepwell.stores.postgres.connection import Ours
from stepwell.stores.postgres.job import Job, settle_here, settle_jobs
from stepwell.stores.postgres.link import Link
from stepwell.stores.postgres.sender import Statement
from stepwell.stores.thread_work import Awaited

# Characters. A larger job might fill the socket's buffer, and sending the rest would block the
# event loop.
SMALL = 32 * 2**10


class Sign(enum.Enum):
    """Messages to the writer thread besides jobs."""

    TAKE_OVER = enum.auto()  # finish sending what a loop has started to send, and read its answer
    END = enum.auto()


class DirectWriter:
    """Decides who sends a job, an event loop or the writer thread.

    At most one statement is under way at any time. That keeps jobs in the order in which they were
    submitted.
    """

    def __init__(self, link: Link, work: Statement) -> None:
        self.jobs: queue.SimpleQueue[Job | Sign] = queue.SimpleQueue()  # for the thread
        self._link, self._work = link, work
        self._lock = threading.Lock()  # never held while waiting for the server
        self._behind = 0  # how many jobs and signs the thread has yet to handle
        # The job that a loop has sent. Loop and thread compete for it under the lock: the one that
        # takes it out reads the answer.
        self._sent: _Sent | None = None

    def submit(self, job: Job) -> None:
        """Send the job from the running event loop if possible; otherwise queue it for the thread."""
        with self._lock:
            if self._behind or self._sent is not None or not self._send(job):
                self._leave_to_thread(job)

    def take_over(self) -> Job | None:
        """Wait for the answer to what a loop has sent; return the job if it must be sent again.

        The writer thread calls this before it sends anything.
        """
        with self._lock:
            sent, self._sent = self._sent, None
        if sent is None:
            return None
        sent.unwatch_threadsafe()
        if not self._read(sent, sent.wait):
            return sent.job
        settle_jobs([sent.job])
        return None

    def note_done(self, count: int) -> None:
        """Note that the thread has handled so many jobs and signs."""
        with self._lock:
            self._behind -= count

    def _leave_to_thread(self, what: Job | Sign) -> None:
        self._behind += 1
        self.jobs.put(what)

    def _send(self, job: Job) -> bool:
        """Send a job without waiting; False if the thread must do it.

        Called in the loop of the caller.
        """
        if not isinstance(job.waiting, Awaited) or job.load > SMALL:
            return False
        db = self._link.idle(self._is_ready_on)
        if db is None:
            return False
        sent = _Sent(job, db, job.waiting.loop)
        try:
            sent.watch(self._on_readable)
        except (NotImplementedError, OSError):  # a loop without `add_reader`, as on Windows; too many open files
            self._link.take_back(db)
            return False
        db.line.begin()
        try:
            is_complete = self._work.send(db, job)
        except psycopg.Error as error:
            sent.unwatch()
            job.again = self._link.is_in_doubt(db, error)
            return False
        self._sent = sent
        # The socket's buffer is full: sending the rest would block the loop.
        if not is_complete:
            self._leave_to_thread(Sign.TAKE_OVER)
        return True

    def _is_ready_on(self, db: Ours) -> bool:
        """Return whether a job can be sent at once: preparing the statement takes a round trip."""
        return db.is_pooled or self._work.is_prepared_on(db)

    def _on_readable(self, sent: _Sent) -> None:
        """Read what the server has sent, or notice that the connection broke.

        Called by the loop.
        """
        with self._lock:
            # The thread is reading the answer, or will as soon as it gets to its next job.
            if self._sent is not sent or self._behind:
                sent.unwatch()
                return
            done = self._read(sent, sent.read_arrived)
            if done is None:
                return
            self._sent = None
            sent.unwatch()
            if not done:
                self._leave_to_thread(sent.job)
                return
        settle_here(sent.job)

    def _read(self, sent: _Sent, how: Callable[[], bool]) -> bool | None:
        """Return whether the job was done, None if the answer is not complete yet.

        If it was done, the connection is returned to the pool; if not, it is closed.
        """
        try:
            if not how():
                return None
            (answer,) = self._work.read_answer(sent.db, sent.result)
        except psycopg.Error as error:
            sent.job.again = self._link.is_in_doubt(sent.db, error)
            return False
        except Exception as error:  # noqa: BLE001 - the caller must get an error, not wait forever
            sent.db.close()
            sent.job.fail(StoreUnavailable(repr(error)))
            return True
        sent.db.line.end()
        self._link.take_back(sent.db)
        sent.job.succeed(answer)
        return True


class _Sent:
    """A job that was sent, and the event loop that waits for its answer.

    The loop watches a duplicate of the socket's descriptor. Another thread may close the connection
    while the loop still has the descriptor registered, and the next file opened would get the same
    number.
    """

    def __init__(self, job: Job, db: Ours, loop: asyncio.AbstractEventLoop) -> None:
        self.job, self.db = job, db
        self.result: PGresult | None = None  # the last one so far
        self._loop = loop
        self._line = -1

    def watch(self, on_readable: Callable[[_Sent], None]) -> None:
        """Register with the loop, from the loop.

        Raises NotImplementedError or OSError if not possible.
        """
        self._line = os.dup(self.db.pgconn.socket)
        try:
            self._loop.add_reader(self._line, on_readable, self)
        except BaseException:
            os.close(self._line)
            raise

    def unwatch(self) -> None:
        """Unregister from the loop, from the loop. May be called any number of times."""
        line, self._line = self._line, -1
        if line >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(line)
            os.close(line)

    def unwatch_threadsafe(self) -> None:
        """Unregister from the loop, from another thread."""
        try:
            self._loop.call_soon_threadsafe(self.unwatch)
        except RuntimeError:  # the loop is closed, so nothing is registered any more
            self.unwatch()

    def read_arrived(self) -> bool:
        """Read what has arrived, without waiting; return whether the answer is complete.

        Only the end of the answer says whether the statement was committed.
        """
        server = self.db.pgconn
        server.consume_input()
        while not server.is_busy():
            result = server.get_result()
            if result is None:
                return True
            self.result = result
        return False

    def wait(self) -> bool:
        """Wait until the answer is complete, in a thread.

        Waits in a selector, because `get_result` would hold the GIL while it blocks.
        """
        server = self.db.pgconn
        while not self.read_arrived():
            wanted = EVENT_READ | EVENT_WRITE if server.flush() else EVENT_READ
            with DefaultSelector() as line:
                line.register(server.socket, wanted)
                line.select()
        return True
