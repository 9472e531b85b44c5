"""Jobs that threads do for their callers: tasks of any event loop, or threads that wait.

Does not load asyncio: a program that only looks something up, such as the command line, need not
load it, which takes longer than the query.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell.errors import DurabilityError, StoreUnavailable

if TYPE_CHECKING:
    from stepwell.stores.thread_work import Awaited

T = TypeVar("T")


class Job:
    """A piece of work, the caller that waits for it, and its result."""

    __slots__ = ("creates", "error", "result", "waiting", "work")

    def __init__(self, work: Callable[..., Any], waiting: Awaited[Any] | Future[Any], *, creates: bool = False) -> None:
        self.work, self.waiting = work, waiting
        self.creates = creates  # it may create what it works on
        self.result: object = None
        self.error: BaseException | None = None


def submit(threads: Executor, work: Callable[[], T]) -> Future[T]:
    """Start work in a thread. Raises StoreUnavailable if the threads have ended with the program."""
    try:
        return threads.submit(work)
    except RuntimeError as error:
        raise StoreUnavailable(f"cannot use the store while the program is exiting: {error}") from error


def fail(jobs: Sequence[Job], error: BaseException) -> None:
    """Fail jobs that were done together, each with an error of its own.

    One exception that is raised in several tasks would mix their tracebacks.
    """
    for job in jobs:
        job.error = type(error)(str(error)) if isinstance(error, DurabilityError) else StoreUnavailable(repr(error))
        job.error.__cause__ = error


def settle(jobs: Sequence[Job]) -> None:
    """Hand results and errors to the callers, and wake them."""
    for job in jobs:
        if job.error is not None:
            job.waiting.set_exception(job.error)
        else:
            job.waiting.set_result(job.result)
    awaited = [job.waiting for job in jobs if not isinstance(job.waiting, Future)]
    if awaited:
        _thread_work().wake_up(awaited)


def make_awaited(*, unbroken: bool = False) -> Awaited[Any] | None:
    """Return what a task of this thread can await; None if no event loop runs here."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    awaited: Awaited[Any] = _thread_work().Awaited(unbroken=unbroken)
    return awaited


@cache
def _thread_work() -> ModuleType:
    from stepwell.stores import thread_work  # lazy: it loads asyncio, 15 ms

    return thread_work
