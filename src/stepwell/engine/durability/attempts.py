"""Counts attempts in the superstep log, so that a restart continues the count."""

from __future__ import annotations

import random
from collections.abc import Callable

from stepwell.engine.durability.superstep_log import SuperstepLog, time_after
from stepwell.graph.retry import RetryPolicy
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.log_keys import LogEntry, attempt_key

OnRetry = Callable[[int, WorkflowErrorDetails, str], None]
"""Called for each failed attempt that is followed by another: its number, the error, when the next is due."""


class Attempts:
    """The attempts at one delivery or step, across restarts."""

    def __init__(self, log: SuperstepLog, key: str) -> None:
        self._log, self._key = log, key
        before = log.find_failures(key)
        self.number = len(before) + 1
        self._spent = _count_since_final(before) if before else 0
        self._due = before[-1].due if before else None

    async def wait_until_due(self) -> None:
        """Wait until the next attempt is due, which may be the rest of a delay from before a restart."""
        if self._due is not None:
            await self._log.wait(self._due)

    async def record_failure(
        self, policy: RetryPolicy | None, error: Exception, details: WorkflowErrorDetails, on_retry: OnRetry
    ) -> bool:
        """Log a failed attempt. Return True if another one is due now, after its delay."""
        if policy is None:
            return False
        self._spent += 1
        again = self._spent < policy.max_attempts and _allows_retry(policy, error)
        due = time_after(policy.delay(self._spent, random.random()) if again else 0)
        # Logged before the delay: a crash during it must neither lose the attempt nor restart the delay.
        await self._log.add(attempt_key(self._key, self.number), LogEntry(due, details, final=not again))
        if again:
            on_retry(self.number, details, due)
            await self._log.wait(due)
            self.number += 1
        return again


def _count_since_final(failed: list[LogEntry]) -> int:
    """Count the attempts since the last final failure: a resume on purpose starts with all attempts again."""
    return next((n for n, entry in enumerate(reversed(failed)) if entry.final), len(failed))


def _allows_retry(policy: RetryPolicy, error: Exception) -> bool:
    """Return whether the policy allows another attempt. If `retry_on` itself raises, the error is not retried."""
    try:
        return policy.wants(error)
    except Exception as broken:  # noqa: BLE001 - a user's function may raise anything
        error.add_note(f"not retried: retry_on raised {type(broken).__name__}: {broken}")
        return False
