"""A store that dies on request: before or after its n-th durable write."""

from __future__ import annotations

from typing import Any

from stepwell.testing.faults.wrapped_store import Call, WrappedStore


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and carry on."""


class CrashingStore(WrappedStore):
    """Passes everything on to another store. Its n-th write is its last act, done (`after`) or not done.

    Without `at` it never dies, and only counts: `writes`.
    """

    def __init__(self, inner: Any, at: int | None = None, *, after: bool = False) -> None:
        super().__init__(inner)
        self.at, self._after = at, after

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        dying = self.at is not None and self.writes >= self.at  # the dead write nothing more
        if dying and not (self._after and self.writes == self.at):
            raise Crash
        result = await call()
        if dying:
            raise Crash
        return result
