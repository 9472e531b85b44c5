"""A clock that a test moves on."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from stepwell.storage import clock


class FakeClock:
    """Inside `with FakeClock() as later:` time goes on as it does, and `later(hours=3)` says that so much has passed.

    Sleeps, back-offs, deadlines and leases believe it. One at a time in a process.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self, **passed: float) -> None:
        """So much time has passed: `later(days=1, seconds=5)`."""
        self._ahead += timedelta(**passed).total_seconds()

    def until(self, moment: datetime) -> None:
        """It is at least that late now."""
        self._ahead += max(0.0, moment.timestamp() - self.seconds())

    def seconds(self) -> float:
        return time.time() + self._ahead

    def __enter__(self) -> Self:
        clock.set_source(self.seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock.set_source()
