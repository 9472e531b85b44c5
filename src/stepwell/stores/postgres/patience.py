"""How long to wait for a server that is away.

All callers share one outage, counted from its first failure.
"""

from __future__ import annotations

import threading
import time

GRACE = 1.0  # seconds that an answer may always take, even with a shorter patience


class Patience:
    """The current outage of a server, if there is one.

    An outage starts with the first failed attempt and ends with the first successful one. When it has
    lasted `seconds`, every waiting call fails. A later call starts a new outage with the full patience,
    because the server may have been back in between. Best-effort calls (renewing or releasing a lease,
    looking up the outcome of a commit) do not: until some call was answered, they are tried once, and
    not at all within a second of the last failure. So a run that gives up does not wait a second time
    when it releases its lease.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.silence = max(seconds, GRACE)  # how long a server may take to answer
        self._lock = threading.Lock()
        self._began: float | None = None
        self._last: Exception | None = None  # the cause of the last failure
        self._last_failure = 0.0

    def note_answer(self) -> None:
        """Note that the server has answered: the outage is over."""
        # Checked without the lock first: this is called for every statement, and there is seldom an
        # outage.
        if self._began is not None:
            with self._lock:
                self._began = self._last = None

    def note_silence(self, since: float, cause: Exception) -> None:
        """Note that a call has had no answer since then."""
        with self._lock:
            self._began = since if self._began is None else min(self._began, since)
            self._last, self._last_failure = cause, time.monotonic()

    def find_outage(self, asked: float, *, best_effort: bool) -> tuple[Exception, float] | None:
        """Return the cause and length of an outage if a call should fail at once, else None.

        `asked` is when the call was made.
        """
        now = time.monotonic()
        with self._lock:
            if self._began is None or self._last is None or now - self._began < self.seconds:
                return None
            # Calls made during the outage have waited their share; later ones start anew, unless
            # best-effort.
            if asked <= self._began + self.seconds or (best_effort and now - self._last_failure < GRACE):
                return self._last, now - self._began
            if not best_effort:
                self._began = self._last = None
            return None

    def note_failure(self, cause: Exception, since: float) -> float | None:
        """Note a failed call; return the length of the outage if it is too long, None to try again.

        `since` is when this call failed first.
        """
        self.note_silence(since, cause)
        lasted = time.monotonic() - min(since, since if self._began is None else self._began)
        return lasted if lasted >= self.seconds else None

    def deadline(self, since: float) -> float:
        """Return until when to wait for an answer, if `since` was the server's last sign of life."""
        began = self._began
        if began is None:
            return since + self.silence
        return max(min(since, began) + self.silence, since + GRACE)
