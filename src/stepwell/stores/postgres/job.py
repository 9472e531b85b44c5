"""Jobs: single writes, each with the caller that waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from stepwell.errors import DurabilityError
from stepwell.stores.thread_work import Awaited, wake_up

Line = bytes | Callable[[], bytes]
"""The job as a JSON object for `work`, or a function that makes it, if it is seldom needed."""
Columns = Sequence[bytes | None]
"""The arguments of `add`, as text."""


class Job:
    """A write, the caller that waits for it, and its result."""

    __slots__ = ("_error", "_line", "_result", "again", "asked", "best_effort", "body", "columns", "waiting")

    def __init__(
        self,
        line: Line,
        body: str | None,
        waiting: Awaited[Any] | Future[Any],
        columns: Columns | None = None,
        *,
        best_effort: bool = False,
    ) -> None:
        """Create a job. With `columns` it is a record that `add` may append if the job is alone.

        A best-effort job does not wait for a server that was already given up.
        """
        self._line, self.body, self.waiting, self.columns = line, body, waiting, columns
        self.asked, self.best_effort = time.monotonic(), best_effort
        # It was sent before and the answer was lost. The server then checks whether it was done
        # already.
        self.again = False
        self._result: object = None
        self._error: Exception | None = None

    @property
    def line(self) -> bytes:
        """The job as JSON, for `work`."""
        line = self._line if isinstance(self._line, bytes) else self._line()
        return b'{"again":true,' + line[1:] if self.again else line

    @property
    def load(self) -> int:
        """How many characters are sent. With columns, only the body can be long."""
        return len(self.body or "") + (len(self._line) if isinstance(self._line, bytes) else 0)

    def is_wanted(self) -> bool:
        return self.waiting.is_wanted if isinstance(self.waiting, Awaited) else True

    def succeed(self, result: object) -> None:
        self._result = result

    def fail(self, error: DurabilityError) -> None:
        """Set the error.

        It is copied: one exception raised in several tasks would mix their tracebacks.
        """
        self._error = type(error)(str(error))
        self._error.__cause__ = error

    def settle(self) -> None:
        """Hand the result or the error to the caller. Does not wake it."""
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self._result)


def settle_jobs(jobs: Iterable[Job]) -> None:
    """Hand the results to the callers and wake them, from any thread."""
    settled = list(jobs)
    for job in settled:
        job.settle()
    wake_up(job.waiting for job in settled if isinstance(job.waiting, Awaited))


def settle_here(job: Job) -> None:
    """Hand the result to the caller and wake it, from the caller's own event loop."""
    job.settle()
    if isinstance(job.waiting, Awaited):
        job.waiting.wake_up_here()
