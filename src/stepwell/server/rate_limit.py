"""How often a caller may change something."""

from __future__ import annotations

import time
from http import HTTPStatus

from stepwell.server.problems import RequestRefused

_MOST_CALLERS = 10_000  # that are remembered


class RateLimit:
    """A bucket for each caller: full it holds what may come in two seconds, and it fills steadily."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, and when that was

    def take(self, caller: str) -> None:
        """Count one request. Raises RequestRefused if there were too many."""
        now, most = time.monotonic(), 2 * self._per_second
        left, then = self._buckets.pop(caller, (most, now))
        left = min(most, left + (now - then) * self._per_second)
        if len(self._buckets) >= _MOST_CALLERS:  # the one that was seen longest ago
            del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = (max(0.0, left - 1), now)
        if left < 1:
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"more than {self._per_second:g} changes per second",
                "wait a moment",
                headers={"retry-after": "1"},
            )
