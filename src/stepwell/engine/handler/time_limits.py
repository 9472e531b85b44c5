"""The time limits of one attempt: in total, and without a sign of life."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from stepwell.errors import HandlerTimeout
from stepwell.graph.retry import Limits


class TimeLimit:
    """Cancels the code inside it when time is up, and raises HandlerTimeout, even if the cancellation was ignored."""

    def __init__(self, limits: Limits, run_id: str, executor_id: str) -> None:
        self._limits, self._run_id, self._executor_id = limits, run_id, executor_id
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._timeout = asyncio.timeout(None)
        self._running = False
        # When the total time is up, by the clock of the loop.
        self._ends: float | None = None
        self._silent_until: float | None = None
        self._pauses, self._paused_at = 0, 0.0
        self._abandoned = False

    def keep_alive(self) -> None:
        """Record a sign of life, from any thread."""
        if self._limits.idle_timeout is None:
            return
        if threading.get_ident() == self._thread:
            self._listen()
        else:
            # The loop is closed, and so is the attempt.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._listen)

    def abandon(self) -> None:
        """Record that the handler is a plain function whose thread could not be stopped."""
        self._abandoned = True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count time inside: the handler waits on purpose. May be entered concurrently."""
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
        await self._timeout.__aenter__()
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
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as error:
            raise self._timeout_error() from error
        if kind is None and self._timeout.expired():
            # The handler ignored the cancellation and returned too late.
            raise self._timeout_error()

    def _listen(self) -> None:
        if self._limits.idle_timeout is not None:
            self._silent_until = self._loop.time() + self._limits.idle_timeout
        self._set()

    def _set(self) -> None:
        if self._running and not self._timeout.expired():
            ends = [moment for moment in (self._ends, self._silent_until) if moment is not None]
            self._timeout.reschedule(None if self._pauses or not ends else min(ends))

    def _timeout_error(self) -> HandlerTimeout:
        in_all = self._ends is not None and (self._silent_until is None or self._ends <= self._silent_until)
        why = (
            f"timed out after {self._limits.timeout:g} s"
            if in_all
            else f"gave no sign of life for {self._limits.idle_timeout:g} s"
        )
        error = HandlerTimeout(
            f"executor {self._executor_id!r} of run {self._run_id!r} {why}",
            run_id=self._run_id,
            executor_id=self._executor_id,
        )
        if self._abandoned:
            error.abandoned = True
            error.add_note("its thread cannot be stopped: it was abandoned, and may still be working")
        return error
