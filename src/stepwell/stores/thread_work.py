"""Work that a thread does, and the task that waits for it.

The thread has the task woken by the event loop at once. With a future that would take another turn of the loop, with a
shielded one two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextvars import Context
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
Wake = Callable[[Any], object]


class Awaited(Generic[T]):
    """What one task awaits, in the event loop that was running when this was made.

    Unbroken, it holds a cancellation back until the work is done, so that whoever is cancelled knows that it was.
    A second cancellation is passed on at once, and the work is done all the same.
    """

    __slots__ = (
        "_asyncio_future_blocking",
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
        self.loop = asyncio.get_running_loop()
        self._asyncio_future_blocking = False
        self._unbroken = self._holds_back = unbroken
        self._is_done = False
        self.is_wanted = True  # False if nobody waits any more, and it need not be done if it was not begun
        self._result: Any = None
        self._error: BaseException | None = None
        self._sleeper: list[tuple[Wake, Context | None]] = []  # one at most; whoever takes it out wakes it up

    def set_result(self, result: T) -> None:
        """To be called by the thread, as the next; then `wake_up`. In the loop itself, then `wake_up_here`."""
        self._result, self._is_done = result, True

    def set_exception(self, error: BaseException) -> None:
        self._error, self._is_done = error, True

    # What a task asks of everything that it awaits: see `asyncio.isfuture`.

    def __await__(self) -> Generator[Self, None, T]:
        self._asyncio_future_blocking = True
        yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def add_done_callback(self, wake: Wake, *, context: Context | None = None) -> None:
        self._sleeper.append((wake, context))
        if self._is_done:  # before the task fell asleep, so nobody may have seen it
            self._wake_up(self.loop.call_soon)

    def cancel(self, msg: object = None) -> bool:
        """Never done here: the task is cancelled when it is woken up, now or when the work is done."""
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
        """Let the task know that the work is done. In its own loop."""
        self._wake_up(self.loop.call_soon)

    def _wake_up(self, soon: Callable[..., object]) -> None:
        try:
            wake, context = self._sleeper.pop()
        except IndexError:  # it is not asleep yet, or somebody else has woken it up
            return
        soon(wake, self, context=context)


def wake_up(done: Iterable[Awaited[Any]]) -> None:
    """Let the tasks know whose work is done. From any thread; each event loop is called once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Awaited[Any]]] = {}
    for awaited in done:
        by_loop.setdefault(awaited.loop, []).append(awaited)
    for loop, some in by_loop.items():
        try:
            if len(some) == 1:
                some[0]._wake_up(loop.call_soon_threadsafe)
            else:
                loop.call_soon_threadsafe(_wake_each, some)
        except RuntimeError:  # the loop was closed meanwhile: nobody is waiting there
            continue


def _wake_each(some: list[Awaited[Any]]) -> None:
    for awaited in some:
        awaited._wake_up(awaited.loop.call_soon)
