"""The task that reads a drive, by which the run is left: it is cancelled, or closes the drive.

Handlers run in another task. Theirs is cancelled by time limits and task groups of their own, too, whose clean-up is
part of what they do; that of a handler that is left belongs to the resume. So the two must be told apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ReadingTask:
    """Says whether the handlers of a drive are left: nothing new begins in them then."""

    def __init__(self) -> None:
        # The drive is closed or stopped, or its run is cancelled.
        self.has_left = False
        # It waits for a task in which the drive is read, and which runs the handlers.
        self.has_own_task = False
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0

    def watch(self) -> None:
        """Note that the task that calls reads the drive from now on."""
        self._task = asyncio.current_task()
        # What it was cancelled by before, and has outlived, does not count.
        self._cancelled_before = 0 if self._task is None else self._task.cancelling()

    @property
    def is_cancelled(self) -> bool:
        """Whether the task that reads was cancelled, and may not know yet."""
        return self._task is not None and self._task.cancelling() > self._cancelled_before

    def is_leaving(self) -> bool:
        """Return whether the run is left where it is."""
        return self.has_left or self.is_cancelled

    async def read(self, reading: Coroutine[Any, Any, T]) -> T:
        """Read the drive in a task of its own, which may run handlers without another one."""
        self.watch()
        self.has_own_task = True
        try:
            return await asyncio.create_task(reading)
        finally:
            self._task = None
