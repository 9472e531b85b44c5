"""Something to write, and those who wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from ..core.errors import DurabilityError
from .awaiting import Awaited, wake_up


class Job:
    """Something to write, who waits for it, and how it went."""

    __slots__ = ("_error", "_line", "_result", "again", "sheet", "waiting")

    def __init__(self, line: bytes, sheet: str | None, waiting: Awaited[Any] | Future[Any]) -> None:
        self._line, self.sheet, self.waiting = line, sheet, waiting
        self.again = False  # it was sent before, and nobody said how it went
        self._result: object = None
        self._error: Exception | None = None

    @property
    def line(self) -> bytes:
        return b'{"again":true,' + self._line[1:] if self.again else self._line

    @property
    def load(self) -> int:
        return len(self._line) + len(self.sheet or "")

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


def tell(jobs: Iterable[Job]) -> None:
    """Let those who wait know how it went. From any thread."""
    told = list(jobs)
    for job in told:
        job.settle()
    wake_up(job.waiting for job in told if isinstance(job.waiting, Awaited))


def tell_here(job: Job) -> None:
    """The same in the loop in which somebody waits for it."""
    job.settle()
    if isinstance(job.waiting, Awaited):
        job.waiting.wake_up_here()
