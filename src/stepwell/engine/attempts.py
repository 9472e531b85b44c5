"""How often something was tried: counted in notes, so that a restart goes on counting where it was."""

from __future__ import annotations

import random
from collections.abc import Callable

from stepwell.engine.superstep_log import SuperstepLog, in_future
from stepwell.graph.retry import RetryPolicy
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.superstep import LogEntry, attempt_key

OnRetry = Callable[[int, WorkflowErrorDetails, str], None]
"""Told of each attempt that failed and is followed by another: its number, what went wrong, when the next is due."""


class Attempts:
    """The attempts at one thing, over all restarts."""

    def __init__(self, log: SuperstepLog, key: str) -> None:
        self._log, self._key = log, key
        before = log.find_failures(key)
        self.number = len(before) + 1
        self._spent = _count_since_final(before) if before else 0
        self._due = before[-1].due if before else None

    async def wait_until_due(self) -> None:
        """Wait until the attempt is due, as it may be after a restart."""
        if self._due is not None:
            await self._log.wait(self._due)

    async def record_failure(
        self, policy: RetryPolicy | None, error: Exception, details: WorkflowErrorDetails, on_retry: OnRetry
    ) -> bool:
        """Note that an attempt failed. True if another is to be made: then the time for it has come."""
        if policy is None:
            return False
        self._spent += 1
        again = self._spent < policy.max_attempts and _allows_retry(policy, error)
        due = in_future(policy.delay(self._spent, random.random()) if again else 0)
        await self._log.add(attempt_key(self._key, self.number), LogEntry(due, details, final=not again))
        if again:
            on_retry(self.number, details, due)
            await self._log.wait(due)
            self.number += 1
        return again


def _count_since_final(failed: list[LogEntry]) -> int:
    """How many attempts count: whoever resumes on purpose what was given up has all of them again."""
    return next((n for n, entry in enumerate(reversed(failed)) if entry.final), len(failed))


def _allows_retry(policy: RetryPolicy, error: Exception) -> bool:
    """Whether another attempt is worth it. If the function that decides is broken, what it was asked about is told."""
    try:
        return policy.wants(error)
    except Exception as broken:  # noqa: BLE001 - whatever a user's function raises
        error.add_note(f"retry_on could not decide about it ({type(broken).__name__}: {broken}): not tried again")
        return False
