"""How long a server may be away: one count for all who use it, from the first who missed it."""

from __future__ import annotations

import threading
import time

GRACE = 1.0  # seconds that an answer may take, however short the patience is


class Patience:
    """An outage begins with the first attempt that failed, and ends with the first that succeeds.

    When it has lasted too long, everybody who waits is told so. Whoever comes later waits for the server anew: nobody
    has looked meanwhile whether it was back. What is done in passing (to renew or to let go of a lease, to find out
    what became of a commit) does not: as long as nobody has found the server back, it is tried once, and not even that
    right after somebody else has.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.silence = max(seconds, GRACE)  # so long a server may take to answer
        self._lock = threading.Lock()
        self._began: float | None = None
        self._last: Exception | None = None  # what was the matter
        self._missed = 0.0  # when somebody tried last

    def back(self) -> None:
        """Somebody had an answer."""
        if self._began is not None:
            with self._lock:
                self._began = self._last = None

    def away(self, since: float, cause: Exception) -> None:
        """Somebody has missed the server since then."""
        with self._lock:
            self._began = since if self._began is None else min(self._began, since)
            self._last, self._missed = cause, time.monotonic()

    def ask(self, asked: float, *, in_passing: bool) -> tuple[Exception, float] | None:
        """To be called before the first attempt. What was the matter, and for how many seconds, if there is no hope.

        `asked` is when the work was asked for.
        """
        now = time.monotonic()
        with self._lock:
            if self._began is None or self._last is None or now - self._began < self.seconds:
                return None
            if asked <= self._began + self.seconds or (in_passing and now - self._missed < GRACE):
                return self._last, now - self._began
            if not in_passing:
                self._began = self._last = None
            return None

    def bear(self, cause: Exception, since: float) -> float | None:
        """For how long the server has been away, if that is too long; None while it may be waited for.

        `since` is when whoever asks has missed it first.
        """
        self.away(since, cause)
        lasted = time.monotonic() - min(since, since if self._began is None else self._began)
        return lasted if lasted >= self.seconds else None

    def deadline(self, since: float) -> float:
        """Until when an answer is worth waiting for, if the last sign of the server was at that time."""
        began = self._began
        if began is None:
            return since + self.silence
        return max(min(since, began) + self.silence, since + GRACE)
