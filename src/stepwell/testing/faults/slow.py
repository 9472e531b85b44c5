"""A slow store, whose operations overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import cycle
from typing import Any

from stepwell.storage.port import Store
from stepwell.testing.clock import FakeClock
from stepwell.testing.faults.wrapped_store import Call, WrappedStore


class SlowStore(WrappedStore):
    """Forwards every call to another store, after a delay, and delays its answer.

    `turns` is how many iterations of the event loop each operation waits before it is forwarded, and
    again before it is answered; later operations may overtake it. A list is repeated: `[9, 0, 4]` lets
    the second operation overtake the first. With a `clock`, each operation also takes so many `seconds`
    of that clock.
    """

    def __init__(
        self, inner: Store, turns: int | Iterable[int] = 1, *, clock: FakeClock | None = None, seconds: float = 0
    ) -> None:
        super().__init__(inner)
        self._turns = cycle([turns] if isinstance(turns, int) else list(turns) or [0])
        self._clock, self._seconds = clock, seconds

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        return await self.use(name, call)

    async def use(self, name: str, call: Call) -> Any:
        if name == "close":  # called when nothing else is under way
            return await call()
        turns = next(self._turns)
        await _wait(turns)
        if self._clock is not None:
            self._clock(seconds=self._seconds)
        result = await call()
        await _wait(turns)
        return result


async def _wait(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
