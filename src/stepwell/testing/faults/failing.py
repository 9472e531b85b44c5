"""A store whose writes fail, or succeed and report failure."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from stepwell.errors import StoreUnavailable
from stepwell.storage.port import Store
from stepwell.testing.faults.wrapped_store import Call, WrappedStore

NEVER: tuple[int, ...] = ()


class FailingStore(WrappedStore):
    """Forwards every call to another store, but its n-th durable write raises an error.

    The error is StoreUnavailable. With `after` the write is made and only its acknowledgement is
    lost: the caller cannot tell. `at` is the number of the write, from 1, or a container of numbers
    such as `range(3, 9)`; without it no write fails. `writes` counts the durable writes, `failed`
    lists those that failed.
    """

    def __init__(self, inner: Store, at: int | Container[int] = NEVER, *, after: bool = False) -> None:
        super().__init__(inner)
        self._at: Container[int] = (at,) if isinstance(at, int) else at
        self._after = after
        self.failed: list[tuple[str, tuple[Any, ...]]] = []  # name and arguments

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        number = self.writes
        if number not in self._at:
            return await call()
        fate = "failed on purpose; nothing was written"
        if self._after:
            await call()
            fate = "was made, but its acknowledgement was lost on purpose"
        self.failed.append((name, args))
        raise StoreUnavailable(f"write {number} ({name}) {fate}")
