"""The time an attempt has: in all, and between two signs of life."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from stepwell.errors import HandlerTimeout
from stepwell.graph.retry import Limits


class TimeLimit:
    """Cancels whoever runs inside it when time is up, and says so as HandlerTimeout, also if that was ignored."""

    def __init__(self, limits: Limits, run_id: str, executor_id: str) -> None:
        self._limits, self._run_id, self._executor_id = limits, run_id, executor_id
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._scope = asyncio.timeout(None)
        self._running = False
        self._ends: float | None = None  # all of it, by the clock of the loop
        self._silent_until: float | None = None
        self._pauses, self._paused_at = 0, 0.0
        self._abandoned = False

    def keep_alive(self) -> None:
        """A sign of life; may come from a thread."""
        if self._limits.idle_timeout is None:
            return
        if threading.get_ident() == self._thread:
            self._listen()
        else:
            with suppress(RuntimeError):  # the loop is closed, and with it whoever listened
                self._loop.call_soon_threadsafe(self._listen)

    def abandon(self) -> None:
        """The handler is a plain function whose thread goes on without anybody who waits for it."""
        self._abandoned = True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """The handler waits on purpose: that time is not counted. Several may wait at once."""
        if self._pauses == 0:
            self._paused_at = self._loop.time()
        self._pauses += 1
        self._set()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._ends is not None and self._pauses == 0:
                self._ends += self._loop.time() - self._paused_at
            self._listen()

    async def __aenter__(self) -> TimeLimit:
        await self._scope.__aenter__()
        self._running = True
        if self._limits.timeout is not None:
            self._ends = self._loop.time() + self._limits.timeout
        self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = False
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise self._timeout_error() from late
        if kind is None and self._scope.expired():
            raise self._timeout_error()  # it was told to stop, went on, and returned: too late all the same

    def _listen(self) -> None:
        if self._limits.idle_timeout is not None:
            self._silent_until = self._loop.time() + self._limits.idle_timeout
        self._set()

    def _set(self) -> None:
        if self._running and not self._scope.expired():
            ends = [moment for moment in (self._ends, self._silent_until) if moment is not None]
            self._scope.reschedule(None if self._pauses or not ends else min(ends))

    def _timeout_error(self) -> HandlerTimeout:
        in_all = self._ends is not None and (self._silent_until is None or self._ends <= self._silent_until)
        why = (
            f"was not done after {self._limits.timeout:g} s"
            if in_all
            else f"gave no sign of life for {self._limits.idle_timeout:g} s"
        )
        late = HandlerTimeout(
            f"executor {self._executor_id!r} of run {self._run_id!r} {why}",
            run_id=self._run_id,
            executor_id=self._executor_id,
        )
        if self._abandoned:
            late.abandoned = True
            late.add_note("its thread cannot be stopped: it was abandoned, and may still be working")
        return late
