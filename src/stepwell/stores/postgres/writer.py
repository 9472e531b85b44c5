"""Writing from an event loop: what waits at one moment becomes one transaction.

The event loop sends and reads by itself: a thread in between would have to be woken, and would have
to wake the loop. While a transaction is under way, further writes wait for the next one. Everything
else is left to a thread: the first connection, large transactions, late answers, and all errors.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.stores.jobs import Awaited, wake_up
from stepwell.stores.postgres.connection import Call, Connection
from stepwell.stores.postgres.errors import CALL_ERRORS
from stepwell.stores.postgres.pool import ConnectionPool
from stepwell.stores.postgres.values import Row

# The most that one transaction carries, so that the first caller does not wait for too much of
# others' work.
BATCH = 500  # calls
LARGE = 2**18  # bytes; sending more would keep the event loop from its other work
LATE = 1.0  # seconds after which a thread waits for an answer; a third of the limit if that is less
UNUSED = 0.1  # seconds after which a loop returns a connection that it does not use

Answer = PQGen[list[list[Row]]]


class Write:
    """A call of a function that writes, and the caller that waits for it."""

    __slots__ = ("again", "asked", "call", "load", "waiting")

    def __init__(self, call: Call, *, holds_back: bool, asked: float | None) -> None:
        """Create a write. The first value of the call is `again`.

        With `holds_back`, a cancellation of the caller is held back until the write is done.
        """
        self.call, self.asked = call, time.monotonic() if asked is None else asked
        self.waiting: Awaited[list[Row]] = Awaited(unbroken=holds_back)
        self.load = sum(map(len, filter(None, call.values)))
        self.again = False  # it may have been done already: it was sent, and the answer was lost

    def to_send(self) -> Call:
        return self.call._replace(values=[b"t", *self.call.values[1:]]) if self.again else self.call

    def fail(self, error: DurabilityError) -> None:
        """Set the error, as a copy: one exception raised in several tasks would mix their tracebacks."""
        copy = type(error)(str(error))
        copy.__cause__ = error
        self.waiting.set_exception(copy)


class LoopWriter:
    """Does the writes of one event loop, in the order in which they were submitted.

    It has no reference to the loop, so that it is dropped with it.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._waiting: deque[Write] = deque()
        self._batch: list[Write] = []  # of the transaction that is under way
        self._answer: Answer | None = None  # to it, if the loop has sent it
        self._db: Connection | None = None
        self._sent = 0.0
        self._when_idle: list[Callable[[], object]] = []
        self.thread = threading.Thread()  # the last one that was started

    def submit(self, write: Write) -> None:
        self._waiting.append(write)
        if not self._batch:
            self._send_next()

    def when_idle(self, notify: Callable[[], object]) -> None:
        """Call `notify` once everything that was submitted is done, and no connection is held."""
        self._when_idle.append(notify)
        if not self._batch:
            self._send_next()

    def _send_next(self) -> None:
        self._batch, load = [], 0
        while self._waiting and len(self._batch) < BATCH and (not load or load + self._waiting[0].load <= LARGE):
            self._batch.append(self._waiting.popleft())
            load += self._batch[-1].load
        if self._batch and (load > LARGE or not self._send()):
            self._start_thread(lambda: False)
        while self._when_idle and not self._batch:
            if self._db is not None:
                self._pool.give_back(self._let_go())
            self._when_idle.pop()()

    # ---------------------------------------------------------------- in the event loop

    def _send(self) -> bool:
        """Send the batch; False if no connection is ready.

        The connection is held while writes follow each other: to watch a socket anew for each costs
        as much as everything else here.
        """
        loop = asyncio.get_running_loop()
        self._sent = loop.time()
        if self._db is None:
            self._db = self._pool.take_idle(loop)
            if self._db is None:
                return False
            self._socket = self._db.pgconn.socket
            loop.add_reader(self._socket, self._advance, Ready.R)
            loop.call_later(UNUSED, self._check, self._db)
        self._answer = self._db.exchange([write.to_send() for write in self._batch])
        self._advance(None)
        return True

    def _advance(self, ready: Any) -> None:
        """Send or read what is possible without waiting. Called by the loop."""
        if self._answer is None:  # nothing is under way: the server has closed the connection
            self._pool.discard(self._let_go(), psycopg.OperationalError("closed by the server"))
            return
        try:
            if self._answer.send(ready) & Wait.W:  # the buffer of the socket is full: to send the rest would block
                self._leave_to_thread()
        except StopIteration as end:
            self._finish(end.value)
        except Exception as error:  # noqa: BLE001 - the thread finds out what it is, and says so
            self._give_up(self._let_go(), error)
            self._start_thread(lambda: False)

    def _finish(self, answers: list[list[Row]]) -> None:
        batch, self._answer = self._batch, None
        _hand_over(batch, answers)
        self._pool.note_answer()
        # First the next transaction: the server works while the callers do.
        self._send_next()
        for write in batch:
            write.waiting.wake_up_here()

    def _check(self, db: Connection) -> None:
        """Look from time to time whether the answer is late, or the connection is not used any more."""
        loop = asyncio.get_running_loop()
        if db is not self._db:
            return
        seconds = loop.time() - self._sent
        if self._answer is None and seconds >= UNUSED:
            self._pool.give_back(self._let_go())
        elif self._answer is not None and seconds >= min(LATE, self._pool.limit / 3):
            self._leave_to_thread()
        else:
            loop.call_later(UNUSED, self._check, db)

    def _let_go(self) -> Connection:
        """Take the connection away from the event loop, which has one."""
        assert self._db is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        db, self._db, self._answer = self._db, None, None
        return db

    # ---------------------------------------------------------------- in a thread

    def _leave_to_thread(self) -> None:
        """Let a thread wait for the answer."""
        answer = self._answer
        assert answer is not None
        self._start_thread(partial(self._wait_for, self._let_go(), answer))

    def _start_thread(self, wait: Callable[[], bool]) -> None:
        self.thread = threading.Thread(target=self._work, args=(wait,), name="stepwell-postgres-write", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no threads
            self._work(wait)

    def _work(self, wait: Callable[[], bool]) -> None:
        batch = self._batch
        if not wait():
            write_batch(batch, self._pool)
        with suppress(RuntimeError):  # the loop was closed, so nobody waits there any more
            batch[0].waiting.loop.call_soon_threadsafe(self._send_next)
        wake_up(write.waiting for write in batch)

    def _wait_for(self, db: Connection, answer: Answer) -> bool:
        """Wait for the answer to what the loop has sent; return whether it came."""
        try:
            _hand_over(self._batch, db.wait(answer))
        except Exception as error:  # noqa: BLE001 - what it is shows when the calls are sent again
            self._give_up(db, error)
            return False
        self._pool.note_answer()
        self._pool.give_back(db)
        return True

    def _give_up(self, db: Connection, error: Exception) -> None:
        trouble = self._pool.discard(db, error)
        for write in self._batch:
            write.again = write.again or trouble is None or trouble.sent


def _hand_over(batch: list[Write], answers: list[list[Row]]) -> None:
    """Hand the rows of each call to its caller. Does not wake it."""
    for write, rows in zip(batch, answers, strict=True):
        write.waiting.set_result(rows)


def write_batch(batch: list[Write], pool: ConnectionPool) -> None:
    """Send calls as one transaction, waiting. If one of them makes it fail, send each by itself."""

    def send(db: Connection, again: bool) -> None:
        for write in batch:
            write.again = write.again or again
        _hand_over(batch, db.call(*(write.to_send() for write in batch)))

    try:
        pool.use(send, asked=max(write.asked for write in batch), in_doubt=any(write.again for write in batch))
    except DurabilityError as error:
        # Errors of the server hit all calls alike. Only an error in the data of one call is worth a
        # second try.
        together = len(batch) == 1 or not isinstance(error.__cause__, CALL_ERRORS)
        for write in batch:
            write.fail(error) if together else write_batch([write], pool)
    except Exception as error:  # noqa: BLE001 - the callers must get an error, not wait forever
        for write in batch:
            write.fail(StoreUnavailable(repr(error)))
