"""An event loop on which nobody waits: where there is nothing to do until a certain time, it is that time.

For async handlers only: what a thread does takes time that such a loop knows nothing of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.storage import clock

BEGINNING = 1_800_000_000.0


class HurriedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0
        look: Callable[[float | None], Any] = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            found = look(0 if timeout is not None else None)
            if not found and timeout is not None:
                self._passed += max(0.0, timeout)
            return found

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._passed


def hurried(work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of it; all clocks that it sees go as its loop does."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        loop = runner.get_loop()
        clock.set_source(lambda: BEGINNING + loop.time())
        try:
            return runner.run(work)
        finally:
            clock.set_source()
