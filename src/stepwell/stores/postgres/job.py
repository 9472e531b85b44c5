"""Something to write, and those who wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from stepwell.errors import DurabilityError
from stepwell.stores.thread_work import Awaited, wake_up

Line = bytes | Callable[[], bytes]
"""The JSON object that says what to do, or what makes it if the job does not go by its columns."""
Columns = Sequence[bytes | None]
"""What `add` wants to know, as text."""


class Job:
    """Something to write, who waits for it, and how it went."""

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
        """With `columns` it is a record that `add` may add, if the job is alone.

        A best-effort job does not wait for a server that was given up already.
        """
        self._line, self.body, self.waiting, self.columns = line, body, waiting, columns
        self.asked, self.best_effort = time.monotonic(), best_effort
        self.again = False  # it was sent before, and nobody said how it went
        self._result: object = None
        self._error: Exception | None = None

    @property
    def line(self) -> bytes:
        """What to do, for `work`."""
        line = self._line if isinstance(self._line, bytes) else self._line()
        return b'{"again":true,' + line[1:] if self.again else line

    @property
    def load(self) -> int:
        """How much is to be sent; of what has columns, only the body may be long."""
        return len(self.body or "") + (len(self._line) if isinstance(self._line, bytes) else 0)

    def is_wanted(self) -> bool:
        return self.waiting.is_wanted if isinstance(self.waiting, Awaited) else True

    def succeed(self, result: object) -> None:
        self._result = result

    def fail(self, error: DurabilityError) -> None:
        """Each job gets an error of its own: one that is raised in several tasks would mix their tracebacks."""
        self._error = type(error)(str(error))
        self._error.__cause__ = error

    def settle(self) -> None:
        """Let what waits have what came of it."""
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self._result)


def settle_jobs(jobs: Iterable[Job]) -> None:
    """Let those who wait know how it went. From any thread."""
    settled = list(jobs)
    for job in settled:
        job.settle()
    wake_up(job.waiting for job in settled if isinstance(job.waiting, Awaited))


def settle_here(job: Job) -> None:
    """The same in the loop in which somebody waits for it."""
    job.settle()
    if isinstance(job.waiting, Awaited):
        job.waiting.wake_up_here()
