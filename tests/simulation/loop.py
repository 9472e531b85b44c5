"""An event loop without real time and without races: the same plan makes the same history, tick by tick.

Time jumps to the next timer as soon as nobody has anything to do. Threads take turns with the loop: while a plain
function works, the loop waits for it, and while the function waits, the loop goes on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

from stepwell.engine.durability import lease_renewal as claims
from stepwell.testing import Crash, FakeClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_DAWN = 1_900_000_000.0  # when every simulated world begins, in seconds since 1970
_RealFuture = concurrent.futures.Future


class Stuck(AssertionError):
    """Somebody waits for something that will never happen."""


class _Selector(selectors.SelectSelector):
    """Never waits for the machine: there is nothing outside."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("nobody has anything to do, and the run has not come to rest")
        if timeout > 0:
            self.loop.pass_time(timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """One loop for any number of worlds, one after the other."""

    def __init__(self) -> None:
        self._now = 0.0
        self._idle: list[_Worker] = []
        self.dice = random.Random(0)
        self.claims = _Renewer()
        self.complaints: list[str] = []  # what went wrong in tasks that nobody waits for
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        """It is later; claims are renewed as they would have been meanwhile."""
        self._now += seconds
        if seconds >= 1:
            self.claims.look()

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """A plain function, in a thread that has its turn a little later."""
        answer: asyncio.Future[T] = self.create_future()
        self._later(self.dice.randrange(4), answer, lambda: func(*args))
        return answer

    def _later(self, ticks: int, answer: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        if ticks:
            self.call_soon(self._later, ticks - 1, answer, call)
        elif not answer.cancelled():
            worker = self._idle.pop() if self._idle else _Worker(self._idle)
            worker.take_on(call, answer)

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector and has to be woken."""

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, (Crash, asyncio.CancelledError)):  # the dead do not look at what they began
            self.complaints.append(f"{context.get('message')}: {error!r}")


class _Worker:
    """A thread that works only while the loop stands still."""

    def __init__(self, idle: list[_Worker]) -> None:
        self._idle = idle
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._job: tuple[Callable[[], Any], asyncio.Future[Any]] | None = None
        self._came_to: tuple[bool, Any] | None = None
        threading.Thread(target=self._work, name="simulated", daemon=True).start()

    def take_on(self, call: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        self._job = call, answer
        self.go_on()

    def go_on(self) -> None:
        """In the loop: let it work until it is done or waits."""
        self._turn.release()
        self._back.acquire()
        if self._came_to is None or self._job is None:
            return
        (worked, value), (_, answer) = self._came_to, self._job
        self._came_to = self._job = None
        self._idle.append(self)
        if not answer.done():
            answer.set_result(value) if worked else answer.set_exception(value)

    def wait(self) -> None:
        """In the thread: let the loop go on until it is our turn again."""
        self._back.release()
        self._turn.acquire()

    def _work(self) -> None:
        _HERE.worker = self
        self._turn.acquire()
        while True:
            assert self._job is not None
            try:
                self._came_to = True, self._job[0]()
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the answer
                self._came_to = False, error
            self.wait()


_HERE = threading.local()


class _TurnFuture(_RealFuture):  # type: ignore[type-arg]
    """What a thread waits for: it gives up its turn meanwhile, and has it again at once when the answer is there."""

    _waiting: _Worker | None = None

    def result(self, timeout: float | None = None) -> Any:
        worker = getattr(_HERE, "worker", None)
        if worker is not None and not self.done():
            self._waiting = worker
            worker.wait()
        return super().result(timeout)

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._wake()

    def set_exception(self, exception: BaseException | None) -> None:
        super().set_exception(exception)
        self._wake()

    def cancel(self) -> bool:
        cancelled = super().cancel()
        self._wake()
        return cancelled

    def _wake(self) -> None:
        if self.done() and self._waiting is not None:
            worker, self._waiting = self._waiting, None
            worker.go_on()


class _Renewer(claims._Renewer):
    """Does what the thread that renews claims does, when time passes; not for programs that are held up."""

    def __init__(self) -> None:
        super().__init__()
        self._in_order: dict[Any, None] = {}

    def add(self, claim: Any) -> None:
        self._in_order[claim] = None

    def drop(self, claim: Any) -> Any:
        self._in_order.pop(claim, None)
        return super().drop(claim)

    def look(self) -> None:
        going = [claim for claim in self._in_order if not claim.archive.where.inner.is_gone]
        claims._renew(going, going)


class WorldClock(FakeClock):
    """Goes with the loop, and not at all with the machine's clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def seconds(self) -> float:
        return _DAWN + self._loop.time() + self._ahead


@contextmanager
def simulated_loop() -> Iterator[SimulatedLoop]:
    """A loop in whose threads and claims nothing is left to chance."""
    loop = SimulatedLoop()
    log = logging.getLogger("stepwell")
    level = log.level
    log.setLevel(logging.ERROR)  # what goes wrong here is meant to
    renewer, claims._RENEWER = claims._RENEWER, loop.claims
    concurrent.futures.Future = _TurnFuture  # type: ignore[misc]
    try:
        yield loop
    finally:
        concurrent.futures.Future = _RealFuture  # type: ignore[misc]
        claims._RENEWER = renewer
        log.setLevel(level)
        loop.close()
