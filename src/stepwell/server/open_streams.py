"""The event streams that are open: counted, limited, and ended when the server stops."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from stepwell.server.problems import RequestRefused


class OpenStreams:
    """How many streams are open, and of whom."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._open = Counter[str]()
        self._tasks = set[asyncio.Task[None]]()

    def check(self, caller: str) -> None:
        """Raise RequestRefused if a caller may not open another one."""
        each = self._open[caller] >= self._most_each
        if each or self._open.total() >= self._most:
            most = f"{self._most_each} of {caller!r}" if each else str(self._most)
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many event streams are open: at most {most}",
                "close one, or follow several runs with one stream",
                headers={"retry-after": "5"},
            )

    @contextmanager
    def counting(self, caller: str, task: asyncio.Task[None]) -> Iterator[None]:
        """Count a stream as open inside the block."""
        self._open[caller] += 1
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    def end_all(self) -> None:
        """Cut off every stream: the server stops, and clients come back with their cursors."""
        for task in list(self._tasks):
            task.cancel()
