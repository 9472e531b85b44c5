"""Jobs that threads do for their callers: tasks of any event loop, or threads that wait.

Does not load asyncio: a program that only looks something up, such as the command line, need not
load it, which takes longer than the query.

What a task awaits is a lean replacement for `asyncio.Future`: when the thread is done, the event loop
wakes the task in its next iteration. A future would take one iteration more, a shielded future two.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextvars import Context
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from stepwell.errors import DurabilityError, StoreUnavailable

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Wake = Callable[[Any], object]


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
        wake_up(awaited)


def make_awaited(*, unbroken: bool = False) -> Awaited[Any] | None:
    """Return what a task of this thread can await; None if no event loop runs here."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    return Awaited(unbroken=unbroken)


# -------------------------------------------------------------------- what a task awaits


class Awaited(Generic[T]):
    """The result of work in a thread, to be awaited by one task.

    It belongs to the event loop that was running when it was created. With `unbroken`, a cancellation
    is held back until the work is done, so that the cancelled task knows the work was done. A second
    cancellation takes effect at once, and the work is still done.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_bell",
        "_error",
        "_holds_back",
        "_is_done",
        "_result",
        "_sleeper",
        "_unbroken",
        "is_wanted",
        "loop",
    )

    def __init__(self, *, unbroken: bool = False) -> None:
        self.loop: asyncio.AbstractEventLoop = sys.modules["asyncio"].get_running_loop()
        self._bell = _bells.get(self.loop) or _install_bell(self.loop)
        self._asyncio_future_blocking = False
        self._unbroken = self._holds_back = unbroken
        self._is_done = False
        # False once nobody waits any more: work that has not started yet may be skipped.
        self.is_wanted = True
        self._result: Any = None
        self._error: BaseException | None = None
        # At most one entry. `list.pop` is atomic, so of a thread and the loop that both try to wake
        # the task, exactly one does.
        self._sleeper: list[tuple[Wake, Context | None]] = []

    def set_result(self, result: T) -> None:
        """Set the result. Call `wake_up` next, or `wake_up_here` in the loop of the task."""
        # The result before the flag: a task in another thread may read both at any moment.
        self._result, self._is_done = result, True

    def set_exception(self, error: BaseException) -> None:
        """Set the exception to raise in the task. Call `wake_up` next, as after `set_result`."""
        self._error, self._is_done = error, True

    # The interface that a task expects of everything it awaits: see `asyncio.isfuture`.

    def __await__(self) -> Generator[Self, None, T]:
        self._asyncio_future_blocking = True
        yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def add_done_callback(self, wake: Wake, *, context: Context | None = None) -> None:
        self._sleeper.append((wake, context))
        # The work may have been done before the task went to sleep; then nobody else wakes it.
        if self._is_done:
            self._wake_up(self.loop.call_soon)

    def cancel(self, msg: object = None) -> bool:
        """Wake the task now or, the first time with `unbroken`, when the work is done.

        Always False: the task raises the cancellation itself when it wakes up.
        """
        if self._holds_back:
            self._holds_back = False
        else:
            self.is_wanted = self._unbroken
            self._wake_up(self.loop.call_soon)
        return False

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def wake_up_here(self) -> None:
        """Wake the task, from its own event loop."""
        self._wake_up(self.loop.call_soon)

    def _wake_up(self, soon: Callable[..., object]) -> None:
        try:
            wake, context = self._sleeper.pop()
        except IndexError:  # the task is not asleep yet, or was woken already
            return
        soon(wake, self, context=context)


def wake_up(done: Iterable[Awaited[Any]]) -> None:
    """Wake the tasks that wait for these, from any thread.

    Each event loop is called only once: it costs a system call.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[Awaited[Any]]] = {}
    for awaited in done:
        by_loop.setdefault(awaited.loop, []).append(awaited)
    for loop, group in by_loop.items():
        if (bell := group[0]._bell) is not None:
            bell.ring(group)
            continue
        try:
            loop.call_soon_threadsafe(_wake_each, group)
        except RuntimeError:  # the loop was closed, so nobody waits there any more
            continue


def _wake_each(group: list[Awaited[Any]]) -> None:
    for awaited in group:
        awaited.wake_up_here()


class _Bell:
    """Wakes tasks of an event loop from threads, by means of a file that the loop watches.

    `call_soon_threadsafe` does the same with more system calls, and at each of them the two threads
    may change places in the middle of their work. That is 10 of the 28 µs of a way to a thread and
    back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises NotImplementedError if the loop cannot watch files."""
        self._done: deque[Awaited[Any]] = deque()
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # When the loop is gone: as long as it exists, a thread may ring.
        weakref.finalize(loop, os.close, self._file)
        loop.add_reader(self._file, self._wake)

    def ring(self, done: list[Awaited[Any]]) -> None:
        """Wake the tasks that wait for these, from any thread."""
        self._done += done
        os.eventfd_write(self._file, 1)

    def _wake(self) -> None:
        os.eventfd_read(self._file)
        try:
            while self._done:
                self._done.popleft()._wake_up(_call)
        finally:
            if self._done:  # Ctrl+C in one task; the others are woken next
                os.eventfd_write(self._file, 1)


def _call(wake: Wake, awaited: Awaited[Any], *, context: Context | None) -> None:
    wake(awaited) if context is None else context.run(wake, awaited)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = weakref.WeakKeyDictionary()


def _install_bell(loop: asyncio.AbstractEventLoop) -> _Bell | None:
    """Install the bell of an event loop; None if its kind, or the system, has none."""
    if not hasattr(os, "eventfd"):  # Linux has it
        return None
    try:
        bell = _bells[loop] = _Bell(loop)
    except NotImplementedError:
        return None
    return bell
