"""How long a server may be away: one outage for all callers, counted from the first failure."""

from __future__ import annotations

import threading
import time

GRACE = 1.0  # seconds that an answer may take, however short the patience is


class Patience:
    """An outage starts with the first failed attempt and ends with the first that succeeds.

    When it has lasted `seconds`, every call that waits fails. A later call starts a new outage with the whole patience:
    the server may have been back in between. Best-effort calls (to renew or release a lease, to find out what became of
    a commit) do not: until somebody has had an answer, they are tried once, and not at all within a second of the
    last failure. So a run that gives up does not wait a second time when it releases its lease.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.silence = max(seconds, GRACE)  # so long a server may take to answer
        self._lock = threading.Lock()
        self._began: float | None = None
        self._last: Exception | None = None  # the cause of the last failure
        self._last_failure = 0.0

    def note_answer(self) -> None:
        """The server has answered somebody."""
        if self._began is not None:
            with self._lock:
                self._began = self._last = None

    def note_silence(self, since: float, cause: Exception) -> None:
        """Somebody has had no answer since then."""
        with self._lock:
            self._began = since if self._began is None else min(self._began, since)
            self._last, self._last_failure = cause, time.monotonic()

    def find_outage(self, asked: float, *, best_effort: bool) -> tuple[Exception, float] | None:
        """The cause and the length of the outage if a call need not be tried; None if it may be.

        `asked` is when the call was made.
        """
        now = time.monotonic()
        with self._lock:
            if self._began is None or self._last is None or now - self._began < self.seconds:
                return None
            if asked <= self._began + self.seconds or (best_effort and now - self._last_failure < GRACE):
                return self._last, now - self._began
            if not best_effort:
                self._began = self._last = None
            return None

    def note_failure(self, cause: Exception, since: float) -> float | None:
        """How long the server has been away, once that is too long; None while the call may be tried again.

        `since` is when this call failed first.
        """
        self.note_silence(since, cause)
        lasted = time.monotonic() - min(since, since if self._began is None else self._began)
        return lasted if lasted >= self.seconds else None

    def deadline(self, since: float) -> float:
        """Until when to wait for an answer, if `since` was the last sign of life of the server."""
        began = self._began
        if began is None:
            return since + self.silence
        return max(min(since, began) + self.silence, since + GRACE)
