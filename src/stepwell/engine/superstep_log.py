"""Waiting inside a superstep: noted first, so that after a restart only the rest is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.superstep import Checkpoint, LogEntry, attempt_key
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.transactions import Transaction

WAITS_HERE = 60.0  # seconds; whoever has to wait longer is put aside, and holds neither memory nor task
NOT_WORTH_LOGGING = 1.0  # seconds; after a restart so much may be waited for again
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)  # whoever resumes such a run does so on purpose


class Parked(BaseException):
    """Nothing can be done before a certain time: the handler is left, and called again then.

    Not an Exception: a handler that catches what goes wrong must not catch this.
    """

    def __init__(self, due: str) -> None:
        self.due = due
        super().__init__(due)


class SuperstepLog:
    """The timers and failed attempts of one superstep: those recalled, and those made now."""

    def __init__(self, archive: Archive | None, at: Checkpoint, recalled: Mapping[str, LogEntry]) -> None:
        self._archive, self._at = archive, at
        self._entries = dict(recalled)
        self._timers = _by_delivery(recalled)
        self._writing: dict[str, asyncio.Future[None]] = {}

    def __getitem__(self, key: str) -> LogEntry | None:
        return self._entries.get(key)

    def keys_under(self, prefix: str) -> list[str]:
        """What follows a prefix in those keys that begin with it, in the order in which they were noted."""
        return [key.removeprefix(prefix) for key in self._entries if key.startswith(prefix)]

    def find_failures(self, delivery: str) -> list[LogEntry]:
        """The attempts at a delivery that failed, oldest first."""
        failures: list[LogEntry] = []
        while self._entries and (entry := self._entries.get(attempt_key(delivery, len(failures) + 1))) is not None:
            failures.append(entry)
        return failures

    def find_final_failure(self, delivery: str) -> WorkflowErrorDetails | None:
        """What a delivery failed with for good, if the process died before the run could say so."""
        failed = [] if self._at.status in _STOPPED else self.find_failures(delivery)
        if not failed or not failed[-1].final or self._was_reported(failed[-1]):
            return None
        return failed[-1].failure

    def _was_reported(self, last: LogEntry) -> bool:
        """Whether the run has failed of it, was resumed on purpose, and was put aside since."""
        if self._at.wake is None:
            return False
        return datetime.fromisoformat(last.due) <= datetime.fromisoformat(self._at.stamp.at)

    async def add(self, key: str, entry: LogEntry) -> None:
        """Note something; durable when it returns, if the run is stored. What was noted first under a key stands."""
        if key in self._entries:  # by a later attempt: this one was given up, and nobody heard what came of it
            await self.wait_until_durable(key)
            return
        self._entries[key] = entry
        if self._archive is not None:
            writing = asyncio.ensure_future(self._archive.log_entry(self._at.run_id, self._at.place, key, entry))
            self._writing[key] = writing
            writing.add_done_callback(partial(self._finish_write, key))
            await asyncio.shield(writing)  # a handler that sleeps twice at once, and is left, has said both

    async def wait_until_durable(self, key: str) -> None:
        """Wait until what is known of a key is stored, if it is being written."""
        if (writing := self._writing.get(key)) is not None:
            await asyncio.shield(writing)

    def transaction(self, key: str) -> Transaction[LogEntry] | None:
        """One whose result is noted under that key; None if where the run is stored there are none."""
        return None if self._archive is None else self._archive.transaction(self._at.run_id, self._at.place, key)

    def add_from_store(self, key: str, entry: LogEntry) -> None:
        """It was noted, by a transaction."""
        self._entries[key] = entry

    def _finish_write(self, key: str, writing: asyncio.Future[None]) -> None:
        del self._writing[key]
        if writing.cancelled() or writing.exception() is not None:  # raised where it is waited for
            del self._entries[key]  # what is not stored is not known: another attempt must not build on it

    async def flush(self) -> None:
        """Wait until all that was noted is durable."""
        await asyncio.gather(*self._writing.values(), return_exceptions=True)

    def check_awake(self, delivery: str) -> None:
        """Raises Parked if a delivery was put aside until a time that is still far away."""
        ahead = [due for due in self._timers.get(delivery, ()) if clock.until(due) > timedelta(0)]
        if ahead and is_far(min(ahead)):
            raise Parked(min(ahead))

    async def wait(self, due: str) -> None:
        """Wait until a moment. Raises Parked if that is far away and the run can be put aside until then."""
        may_park = self._archive is not None and self._archive.has_superstep_log
        await asyncio.sleep(0)  # others have their turn, also if it is over
        while (seconds := clock.until(due).total_seconds()) > 0:
            if may_park and is_far(due):
                raise Parked(due)
            await asyncio.sleep(min(seconds, WAITS_HERE))


def _by_delivery(recalled: Mapping[str, LogEntry]) -> dict[str, list[str]]:
    """When the timers of each delivery are over."""
    timers: dict[str, list[str]] = {}
    for key, entry in recalled.items():
        delivery, _, rest = key.partition("/")
        if rest.startswith("timer/"):
            timers.setdefault(delivery, []).append(entry.due)
    return timers


def is_far(due: str) -> bool:
    """True if a moment is too far away to wait for it with everything in hand."""
    return clock.until(due).total_seconds() > WAITS_HERE


def in_future(seconds: float) -> str:
    """So many seconds from now; however many, it is a date that can be written."""
    try:
        return (clock.now() + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return _END_OF_TIME.isoformat()
