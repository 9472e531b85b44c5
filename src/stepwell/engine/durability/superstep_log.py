"""The superstep log of a drive: timers, steps and failed attempts of the superstep that is not committed yet.

An entry is stored before it takes effect: after a restart a timer continues, a step returns its result, and
attempts are counted on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import Any

import msgspec

from stepwell import kernel
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.log_keys import LogEntry, attempt_key
from stepwell.model.request import Request
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.transactions import Transaction

# Seconds; a longer wait parks the run, which then holds neither memory nor a task.
WAITS_HERE = 60.0
# Seconds; a shorter timer costs less when repeated than when stored.
NOT_WORTH_LOGGING = 1.0
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
# Such a run is resumed on purpose only.
_STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Parked(BaseException):
    """Nothing can be done before a certain time, or an answer: the handler is left, and called again then.

    Not an Exception, so that a handler's `except Exception` does not catch it.
    """

    def __init__(self, due: str | None) -> None:
        self.due = due  # None: only an answer helps
        super().__init__(due)


def earliest(first: str | None, second: str | None) -> str | None:
    """Return the earlier of two times; None is never."""
    times = [due for due in (first, second) if due is not None]
    return min(times, key=datetime.fromisoformat, default=None)


def find_wake(at: Checkpoint, parked: Iterable[str | None], early: Iterable[Request]) -> str | None:
    """Return when there is something to do for a superstep whose handlers sleep or wait.

    `parked` says for each of them when it can continue; `early` are the requests in the superstep log.
    """
    wake = reduce(earliest, parked)
    # The caller of a sub-workflow run keeps its timers and deadlines.
    if at.header.caller is not None:
        return wake
    deadlines = [request.deadline for request in early if not request.is_awaited]
    return reduce(earliest, [kernel.next_timer(at.timers, at.children), *deadlines], wake)


class SuperstepLog(msgspec.Struct, eq=False):
    """The log entries of one superstep: those recalled, and those added by this drive."""

    _archive: Archive
    _at: Checkpoint
    entries: dict[str, LogEntry]
    _timers: Mapping[str, list[str]] | None = None  # by delivery; computed when it is needed
    # A simulated crash that a write came to: the process is dead, although its tasks still run in this one.
    crash: BaseException | None = None
    # What waits for a write, if anything does; or the task that makes it.
    _writing: dict[str, asyncio.Future[None] | None] = {}

    def __getitem__(self, key: str) -> LogEntry | None:
        return self.entries.get(key)

    @property
    def requests(self) -> dict[str, Request]:
        """The questions of handlers, and what sub-workflow runs at work ask, by key."""
        return {key: entry.request for key, entry in self.entries.items() if entry.request is not None}

    def keys_under(self, prefix: str) -> list[str]:
        """Return what follows a prefix in the keys that start with it, in the order in which they were added."""
        return [key.removeprefix(prefix) for key in self.entries if key.startswith(prefix)]

    def find_failures(self, delivery: str) -> list[LogEntry]:
        """Return the failed attempts at a delivery, oldest first."""
        failures: list[LogEntry] = []
        while self.entries and (entry := self.entries.get(attempt_key(delivery, len(failures) + 1))) is not None:
            failures.append(entry)
        return failures

    def find_final_failure(self, delivery: str) -> WorkflowErrorDetails | None:
        """Return the final failure of a delivery, if the process died before the run could commit it."""
        failed = [] if self._at.status in _STOPPED else self.find_failures(delivery)
        if not failed or not failed[-1].final or self._was_reported(failed[-1]):
            return None
        return failed[-1].failure

    def _was_reported(self, last: LogEntry) -> bool:
        """Return whether the failure was committed before: the run was resumed on purpose since."""
        return datetime.fromisoformat(last.due) <= datetime.fromisoformat(self._at.stamp.at)

    async def add(self, key: str, entry: LogEntry, *, closed: Sequence[str] = (), consumed: Sequence[str] = ()) -> None:
        """Add an entry; durable when this returns, if there is a log. The first entry of a key wins."""
        # There already: added by a later attempt, after the one that calls now was given up.
        if key in self.entries:
            await self.wait_until_durable(key)
            return
        self.entries[key] = entry
        if not self._archive.has_superstep_log:
            return
        write = partial(self._archive.log_entry, self._at, key, entry, closed=closed, consumed=consumed)
        # Shielded: a handler that is left in one of two concurrent sleeps has logged both. A store that completes its
        # writes by itself saves a task.
        if self._archive.completes_log_writes:
            await self._write_here(key, write)
        else:
            await asyncio.shield(self._write_in_task(key, write))

    async def _write_here(self, key: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._writing[key] = None
        error: BaseException | None = None
        try:
            await write()
        except asyncio.CancelledError:
            # It was made, or failed, and nobody knows. The first entry of a key wins, so it can be made again.
            if (waiting := self._writing[key]) is not None:
                waiting.set_result(None)
            self._write_in_task(key, write)
            raise
        except BaseException as failure:
            error = failure
            raise
        finally:
            if key in self._writing and not isinstance(self._writing[key], asyncio.Task):
                self._end_write(key, error)

    def _write_in_task(self, key: str, write: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Future[None]:
        writing = self._writing[key] = asyncio.ensure_future(write())
        writing.add_done_callback(partial(self._finish_write, key))
        return writing

    async def wait_until_durable(self, key: str) -> None:
        """Wait until the entry of a key is stored, if it is being written."""
        while key in self._writing:
            waiting = self._writing[key]
            if waiting is None:
                waiting = self._writing[key] = asyncio.get_running_loop().create_future()
            await asyncio.shield(waiting)
            if self._writing.get(key) is waiting:
                return  # a task that is done; its callback follows

    def transaction(self, key: str) -> Transaction[LogEntry] | None:
        """Return a transaction whose result is logged under that key; None if the store has none."""
        return self._archive.transaction(self._at.run_id, self._at.place, key)

    def add_from_store(self, key: str, entry: LogEntry) -> None:
        """Add an entry that a transaction has stored already."""
        self.entries[key] = entry

    def _finish_write(self, key: str, writing: asyncio.Future[None]) -> None:
        self._end_write(key, asyncio.CancelledError() if writing.cancelled() else writing.exception())

    def _end_write(self, key: str, error: BaseException | None) -> None:
        waiting = self._writing.pop(key)
        # The error is raised where `add` is awaited.
        if error is not None:
            # Another attempt must not build on what is not stored.
            del self.entries[key]
            if not isinstance(error, Exception | asyncio.CancelledError):
                self.crash = error
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)
            waiting.exception()

    async def flush(self) -> None:
        """Wait until all entries are durable."""
        if self._writing:
            await asyncio.gather(*map(self.wait_until_durable, tuple(self._writing)), return_exceptions=True)

    def check_awake(self, delivery: str) -> None:
        """Raise Parked if a timer of the delivery ends far in the future."""
        # A handler that asks is called if there may be an answer: see `Questions.check_answered`.
        if any(key.startswith(f"{delivery}/ask/") for key in self.entries):
            return
        ahead = [due for due in self.timers_of(delivery) if clock.until(due) > timedelta(0)]
        if ahead and is_far(min(ahead)):
            raise Parked(min(ahead))

    def timers_of(self, delivery: str) -> Sequence[str]:
        """Return the times at which the timers of a delivery end, those that have ended included."""
        if self._timers is None:
            self._timers = _by_delivery(self.entries)
        return self._timers.get(delivery, ())

    async def wait(self, due: str) -> None:
        """Wait until a time. Raises Parked if it is far away and the run can be parked."""
        # Let other tasks run, even if the time has passed.
        await asyncio.sleep(0)
        while (seconds := clock.until(due).total_seconds()) > 0:
            if self._archive.has_superstep_log and is_far(due):
                raise Parked(due)
            await asyncio.sleep(min(seconds, WAITS_HERE))


def _by_delivery(recalled: Mapping[str, LogEntry]) -> dict[str, list[str]]:
    """Return the times at which the timers of each delivery end."""
    timers: dict[str, list[str]] = {}
    for key, entry in recalled.items():
        delivery, _, rest = key.partition("/")
        if rest.startswith("timer/"):
            timers.setdefault(delivery, []).append(entry.due)
    return timers


def is_far(due: str) -> bool:
    """Return whether a time is too far away to wait for it in memory."""
    return clock.until(due).total_seconds() > WAITS_HERE


def time_after(seconds: float) -> str:
    """Return the time that many seconds from now, at most the last one that can be written."""
    try:
        return (clock.now() + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return _END_OF_TIME.isoformat()
