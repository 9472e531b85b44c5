"""The time an attempt has: in all, and between two signs of life."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ..core.errors import HandlerTimeout
from ..graph.policy import Limits


class TimeLimit:
    """Cancels whoever runs inside it when time is up, and says so as HandlerTimeout."""

    def __init__(self, limits: Limits, run_id: str, executor_id: str) -> None:
        self._limits, self._run_id, self._executor_id = limits, run_id, executor_id
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._scope = asyncio.timeout(None)
        self._ends: float | None = None  # all of it, by the clock of the loop
        self._silent_until: float | None = None
        self._paused = 0

    def alive(self) -> None:
        """A sign of life; may come from a thread."""
        if self._limits.idle_timeout is None:
            return
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._listen)
        else:
            self._listen()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The handler waits on purpose: that time is not counted."""
        began = self._loop.time()
        self._paused += 1
        self._set()
        try:
            yield
        finally:
            self._paused -= 1
            if self._ends is not None and not self._paused:
                self._ends += self._loop.time() - began
            self._listen()

    async def __aenter__(self) -> TimeLimit:
        await self._scope.__aenter__()
        if self._limits.timeout is not None:
            self._ends = self._loop.time() + self._limits.timeout
        self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise self._too_late() from late

    def _listen(self) -> None:
        if self._limits.idle_timeout is not None:
            self._silent_until = self._loop.time() + self._limits.idle_timeout
        self._set()

    def _set(self) -> None:
        if self._scope.expired():
            return
        ends = [moment for moment in (self._ends, self._silent_until) if moment is not None]
        self._scope.reschedule(None if self._paused or not ends else min(ends))

    def _too_late(self) -> HandlerTimeout:
        in_all = self._ends is not None and (self._silent_until is None or self._ends <= self._silent_until)
        why = (
            f"was not done after {self._limits.timeout:g} s"
            if in_all
            else f"gave no sign of life for {self._limits.idle_timeout:g} s"
        )
        return HandlerTimeout(
            f"executor {self._executor_id!r} of run {self._run_id!r} {why}",
            run_id=self._run_id,
            executor_id=self._executor_id,
        )
