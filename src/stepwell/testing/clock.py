"""A clock that a test can advance."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from stepwell.storage import clock


class FakeClock:
    """A clock that runs as usual and can be advanced: `with FakeClock() as later: later(hours=3)`.

    Sleeps, back-offs, deadlines and leases use it. Only one may be active in a process.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self, **passed: float) -> None:
        """Advance the clock, by the arguments of `timedelta`: `later(days=1, seconds=5)`."""
        self._ahead += timedelta(**passed).total_seconds()

    def until(self, moment: datetime) -> None:
        """Advance the clock to that moment, unless it is later already."""
        self._ahead += max(0.0, moment.timestamp() - self.seconds())

    def seconds(self) -> float:
        """Return the time of this clock in seconds since the epoch."""
        return time.time() + self._ahead

    def __enter__(self) -> Self:
        clock.set_source(self.seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock.set_source()
