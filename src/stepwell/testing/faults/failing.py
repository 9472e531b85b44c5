"""A store that cannot write now and then, or says so although it wrote."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from stepwell.errors import StoreUnavailable
from stepwell.testing.faults.wrapped_store import Call, WrappedStore

NEVER: tuple[int, ...] = ()


class FailingStore(WrappedStore):
    """Passes everything on to another store. Its n-th durable write raises StoreUnavailable, once.

    With `after` the write was done all the same and only its acknowledgement is lost: whoever wrote cannot know. `at`
    is a number, or any container of numbers, such as `range(3, 9)`; without it no write fails, and `writes` counts.
    """

    def __init__(self, inner: Any, at: int | Container[int] = NEVER, *, after: bool = False) -> None:
        super().__init__(inner)
        self._at: Container[int] = (at,) if isinstance(at, int) else at
        self._after = after
        self.failed: list[tuple[str, tuple[Any, ...]]] = []  # the writes that did, by name and arguments

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        number = self.writes
        if number not in self._at:
            return await call()
        if not self._after:
            self.failed.append((name, args))
            raise StoreUnavailable(f"write {number} ({name}) failed, as a test wants it; nothing was written")
        await call()
        self.failed.append((name, args))
        raise StoreUnavailable(f"write {number} ({name}) was done, and a test wants its acknowledgement lost")
