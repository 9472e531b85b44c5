"""The shortest way to the server and back: a job that is alone is sent and answered in the event loop that waits.

A thread in between would have to be woken, and would have to wake the loop. Whatever is not plain sailing is left to
the thread that writes: several jobs at once, the first one of all, a large one, one from a thread without a loop, and
everything that goes wrong. It also takes over the answer for which a loop is waiting as soon as anybody else wants to
write: that loop may be busy for a long time, or closed.
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

SMALL = 32 * 2**10  # characters; more might have to wait for room on the line


class Sign(enum.Enum):
    """What the thread is told beside jobs."""

    TAKE_OVER = enum.auto()
    END = enum.auto()


class Direct:
    """Decides who sends a job. At any time one statement is under way at most, a loop's or the thread's."""

    def __init__(self, link: Link, work: Statement) -> None:
        self.jobs: queue.SimpleQueue[Job | Sign] = queue.SimpleQueue()  # for the thread
        self._link, self._work = link, work
        self._lock = threading.Lock()  # never held while somebody waits for the server
        self._behind = 0  # what the thread has to do
        self._sent: _Sent | None = None  # by a loop; whoever takes it out reads the answer

    def submit(self, job: Job) -> None:
        with self._lock:
            if self._behind or self._sent is not None or not self._send(job):
                self._leave_to_thread(job)

    def take_over(self) -> Job | None:
        """Wait for what a loop has sent, and give the job if it was not done. For the thread, before it sends."""
        with self._lock:
            sent, self._sent = self._sent, None
        if sent is None:
            return None
        sent.have_it_look_away()
        if not self._read(sent, sent.wait):
            return sent.job
        settle_jobs([sent.job])
        return None

    def did(self, count: int) -> None:
        """The thread has done so much of what it had to do."""
        with self._lock:
            self._behind -= count

    def _leave_to_thread(self, what: Job | Sign) -> None:
        self._behind += 1
        self.jobs.put(what)

    def _send(self, job: Job) -> bool:
        """Whether it is on its way. Called in the loop of whoever waits for it."""
        if not isinstance(job.waiting, Awaited) or job.load > SMALL:
            return False
        db = self._link.idle(self._is_ready_on)
        if db is None:
            return False
        sent = _Sent(job, db, job.waiting.loop)
        try:
            sent.look(self._hear)
        except (NotImplementedError, OSError):  # a loop that looks at no sockets, as on Windows; too many open files
            self._link.take_back(db)
            return False
        db.line.begin()
        try:
            all_of_it = self._work.send(db, job)
        except psycopg.Error as error:
            sent.look_away()
            job.again = self._link.is_in_doubt(db, error)
            return False
        self._sent = sent
        if not all_of_it:
            self._leave_to_thread(Sign.TAKE_OVER)
        return True

    def _is_ready_on(self, db: Ours) -> bool:
        """Whether a job can be sent there without waiting: it is prepared, or goes whole."""
        return db.is_pooled or self._work.is_prepared_on(db)

    def _hear(self, sent: _Sent) -> None:
        """Called by the loop: the server said something, or the line broke."""
        with self._lock:
            if self._sent is not sent or self._behind:  # the thread reads the answer, now or soon
                sent.look_away()
                return
            done = self._read(sent, sent.listen)
            if done is None:
                return
            self._sent = None
            sent.look_away()
            if not done:
                self._leave_to_thread(sent.job)
                return
        settle_here(sent.job)

    def _read(self, sent: _Sent, how: Callable[[], bool]) -> bool | None:
        """Whether the job was done; None if that is not known yet. The connection is given back if it is."""
        try:
            if not how():
                return None
            (answer,) = self._work.understood(sent.db, sent.result)
        except psycopg.Error as error:
            sent.job.again = self._link.is_in_doubt(sent.db, error)
            return False
        except Exception as error:  # noqa: BLE001 - whatever it was, whoever waits must hear of it
            sent.db.close()
            sent.job.fail(StoreUnavailable(repr(error)))
            return True
        sent.db.line.end()
        self._link.take_back(sent.db)
        sent.job.succeed(answer)
        return True


class _Sent:
    """A job on its way, and the loop that listens for the answer.

    The loop looks at a descriptor of its own for the same line: the connection may be closed in another thread while
    the loop still has it in its books, and the next one opened would then have the same number.
    """

    def __init__(self, job: Job, db: Ours, loop: asyncio.AbstractEventLoop) -> None:
        self.job, self.db = job, db
        self.result: PGresult | None = None  # the last one so far
        self._loop = loop
        self._line = -1

    def look(self, hear: Callable[[_Sent], None]) -> None:
        """To be called in the loop. Raises NotImplementedError or OSError if that cannot be."""
        self._line = os.dup(self.db.pgconn.socket)
        try:
            self._loop.add_reader(self._line, hear, self)
        except BaseException:
            os.close(self._line)
            raise

    def look_away(self) -> None:
        """To be called in the loop, any number of times."""
        line, self._line = self._line, -1
        if line >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(line)
            os.close(line)

    def have_it_look_away(self) -> None:
        """The same from another thread."""
        try:
            self._loop.call_soon_threadsafe(self.look_away)
        except RuntimeError:  # the loop is closed, and its books with it
            self.look_away()

    def listen(self) -> bool:
        """Whether the answer is complete: only then is it committed, or not. Waits for nothing."""
        server = self.db.pgconn
        server.consume_input()
        while not server.is_busy():
            result = server.get_result()
            if result is None:
                return True
            self.result = result
        return False

    def wait(self) -> bool:
        """The same when it is complete. For a thread that may wait; libpq itself would let no other thread work."""
        server = self.db.pgconn
        while not self.listen():
            wanted = EVENT_READ | EVENT_WRITE if server.flush() else EVENT_READ
            with DefaultSelector() as line:
                line.register(server.socket, wanted)
                line.select()
        return True
