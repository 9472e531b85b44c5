"""`FakeClock`: advance the time of a process in a test."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from stepwell.storage import clock


class FakeClock:
    """Replaces the clock of this process: `with FakeClock() as clock: clock(hours=3)` lets three hours pass.

    It keeps running at normal speed, ahead of the real time by what it was advanced. Sleeps, back-offs, deadlines
    and leases use it. Only one can be active in a process.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self, **passed: float) -> None:
        """Advance the clock by a duration, in the arguments of `timedelta`: `clock(days=1, seconds=5)`."""
        self._ahead += timedelta(**passed).total_seconds()

    def until(self, moment: datetime) -> None:
        """Advance the clock to a moment. Does nothing if the moment has passed."""
        self._ahead += max(0.0, moment.timestamp() - self.seconds())

    def seconds(self) -> float:
        """Return the time of this clock, in seconds since 1970."""
        return time.time() + self._ahead

    def __enter__(self) -> Self:
        clock.set_source(self.seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock.set_source()
