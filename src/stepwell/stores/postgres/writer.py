"""Writing from an event loop: what waits at one moment becomes one transaction.

The event loop sends and reads by itself: a thread in between would have to be woken, and would have
to wake the loop. While a transaction is under way, further writes wait for the next one. Everything
else is left to a thread: the first connection, large transactions, answers that do not come, and
all errors.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from psycopg.abc import PQGen
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.stores.postgres.connection import Connection
from stepwell.stores.postgres.errors import CALL_ERRORS
from stepwell.stores.postgres.pipeline import Call, exchange
from stepwell.stores.postgres.pool import ConnectionPool
from stepwell.stores.postgres.values import Row
from stepwell.stores.thread_work import Awaited, wake_up

# The most that one transaction carries, so that the first caller does not wait for too much of
# others' work.
BATCH = 500  # calls
LARGE = 2**18  # bytes; sending more would keep the event loop from its other work


class Write:
    """A call of a function that writes, and the caller that waits for it."""

    __slots__ = ("_error", "again", "asked", "best_effort", "call", "load", "rows", "waiting")

    def __init__(self, call: Call, *, holds_back: bool = False, best_effort: bool = False) -> None:
        """Create a write. The first value of the call is `again`.

        With `holds_back`, a cancellation of the caller is held back until the write is done.
        """
        self.call, self.best_effort = call, best_effort
        self.waiting: Awaited[list[Row]] = Awaited(unbroken=holds_back)
        self.load = sum(len(value) for value in call.values if value is not None)
        self.asked = time.monotonic()
        self.again = False  # it may have been done already: it was sent, and the answer was lost
        self.rows: list[Row] = []
        self._error: Exception | None = None

    def to_send(self) -> Call:
        return Call(self.call.statement, (b"t", *self.call.values[1:])) if self.again else self.call

    def fail(self, error: DurabilityError) -> None:
        """Set the error, as a copy: one exception raised in several tasks would mix their tracebacks."""
        self._error = type(error)(str(error))
        self._error.__cause__ = error

    def settle(self) -> None:
        """Hand the rows or the error to the caller. Does not wake it."""
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self.rows)


class Transaction(NamedTuple):
    """Writes that were sent together, and their answer, for which somebody waits."""

    db: Connection
    batch: list[Write]
    answer: PQGen[list[PGresult]]

    def finish(self, pool: ConnectionPool, results: list[PGresult]) -> None:
        for write, result in zip(self.batch, results, strict=True):
            write.rows = self.db.rows(result)
        pool.note_answer()
        pool.give_back(self.db)

    def give_up(self, pool: ConnectionPool, error: Exception) -> None:
        pool.discard(self.db, error)
        for write in self.batch:
            write.again = True


class LoopWriter:
    """Does the writes of one event loop, in the order in which they were submitted.

    It has no reference to the loop, so that it is dropped with it.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._waiting: deque[Write] = deque()
        self._is_busy = False
        self._when_idle: list[Callable[[], object]] = []
        self.thread: threading.Thread | None = None  # the last one that was started

    def submit(self, write: Write) -> None:
        self._waiting.append(write)
        if not self._is_busy:
            self._send_next()

    def when_idle(self, notify: Callable[[], object]) -> None:
        """Call `notify` once everything that was submitted is done."""
        self._when_idle.append(notify)
        if not self._is_busy:
            self._send_next()

    def _send_next(self) -> None:
        batch, load = list[Write](), 0
        while self._waiting and len(batch) < BATCH and (not batch or load + self._waiting[0].load <= LARGE):
            batch.append(self._waiting.popleft())
            load += batch[-1].load
        self._is_busy = bool(batch)
        if not batch:
            notifications, self._when_idle = self._when_idle, []
            for notify in notifications:
                notify()
            return
        db = None if load > LARGE else self._pool.take_idle()
        if db is None:
            self._start_thread(batch)
        else:
            self._send(Transaction(db, batch, exchange(db, [write.to_send() for write in batch])))

    # ---------------------------------------------------------------- in the event loop

    def _send(self, under_way: Transaction) -> None:
        db, loop, self._is_sending = under_way.db, asyncio.get_running_loop(), False
        db.start_wait(unchecked=db.watchdog.suspect_after)
        try:
            loop.add_reader(db.pgconn.socket, self._advance, under_way, Ready.R)
        except NotImplementedError:  # a loop that watches no sockets
            self._start_thread(under_way.batch, under_way)
            return
        self._timer = loop.call_later(db.watchdog.suspect_after, self._hand_over, under_way)
        self._advance(under_way, None)

    def _advance(self, under_way: Transaction, ready: Ready | None) -> None:
        """Send or read what is possible without waiting. Called by the loop."""
        try:
            wanted = under_way.answer.send(ready)  # type: ignore[arg-type] # the first time, it must be None
        except StopIteration as end:
            self._stop_watching(under_way)
            self._finish(under_way, end.value)
        except Exception as error:  # noqa: BLE001 - the thread finds out what it is, and says so
            self._stop_watching(under_way)
            under_way.give_up(self._pool, error)
            self._start_thread(under_way.batch)
        else:
            if bool(wanted & Wait.W) != self._is_sending:
                self._watch_for_sending(under_way)

    def _watch_for_sending(self, under_way: Transaction) -> None:
        loop, self._is_sending = asyncio.get_running_loop(), not self._is_sending
        if self._is_sending:
            loop.add_writer(under_way.db.pgconn.socket, self._advance, under_way, Ready.W)
        else:
            loop.remove_writer(under_way.db.pgconn.socket)

    def _stop_watching(self, under_way: Transaction) -> None:
        self._timer.cancel()
        asyncio.get_running_loop().remove_reader(under_way.db.pgconn.socket)
        if self._is_sending:
            self._watch_for_sending(under_way)

    def _finish(self, under_way: Transaction, results: list[PGresult]) -> None:
        under_way.finish(self._pool, results)
        # First the next transaction: the server works while the callers do.
        self._send_next()
        for write in under_way.batch:
            write.settle()
            write.waiting.wake_up_here()

    def _hand_over(self, under_way: Transaction) -> None:
        """Let a thread wait for an answer that is late. The server is asked what it does."""
        self._stop_watching(under_way)
        self._start_thread(under_way.batch, under_way)

    # ---------------------------------------------------------------- in a thread

    def _start_thread(self, batch: list[Write], under_way: Transaction | None = None) -> None:
        self.thread = threading.Thread(
            target=self._work, args=(batch, under_way), name="stepwell-postgres-write", daemon=True
        )
        try:
            self.thread.start()
        except RuntimeError as error:  # the interpreter is shutting down and starts no threads
            for write in batch:
                write.fail(StoreUnavailable(f"cannot use the store while the program is exiting: {error}"))
            self._settle(batch)

    def _work(self, batch: list[Write], under_way: Transaction | None) -> None:
        if under_way is None or not _wait_for(under_way, self._pool):
            write_batch(batch, self._pool)
        self._settle(batch)

    def _settle(self, batch: list[Write]) -> None:
        with suppress(RuntimeError):  # the loop was closed, so nobody waits there any more
            batch[0].waiting.loop.call_soon_threadsafe(self._send_next)
        for write in batch:
            write.settle()
        wake_up(write.waiting for write in batch)


def _wait_for(under_way: Transaction, pool: ConnectionPool) -> bool:
    """Wait for the answer to what an event loop has sent; return whether it came."""
    try:
        under_way.finish(pool, under_way.db.resume_wait(under_way.answer))
    except Exception as error:  # noqa: BLE001 - what it is shows when the calls are sent again
        under_way.give_up(pool, error)
        return False
    return True


def write_batch(batch: list[Write], pool: ConnectionPool) -> None:
    """Send calls as one transaction, waiting. If one of them makes it fail, send each by itself."""

    def send(db: Connection, again: bool) -> list[list[Row]]:
        for write in batch:
            write.again = write.again or again
        return db.call(*[write.to_send() for write in batch])

    asked, best_effort = min(write.asked for write in batch), all(write.best_effort for write in batch)
    in_doubt = any(write.again for write in batch)
    try:
        answers = pool.use(send, asked=asked, best_effort=best_effort, in_doubt=in_doubt)
    except DurabilityError as error:
        # Errors of the server hit all calls alike. Only an error in the data of one call is worth a
        # second try.
        together = len(batch) == 1 or not isinstance(error.__cause__, CALL_ERRORS)
        for write in batch:
            write.fail(error) if together else write_batch([write], pool)
    except Exception as error:  # noqa: BLE001 - the callers must get an error, not wait forever
        for write in batch:
            write.fail(StoreUnavailable(repr(error)))
    else:
        for write, rows in zip(batch, answers, strict=True):
            write.rows = rows
