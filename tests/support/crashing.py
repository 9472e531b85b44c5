"""A store that dies on request: before or after its n-th durable write."""

from __future__ import annotations

from typing import Any

WRITES = ("append", "write_log", "send")


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and carry on."""


class CrashingStore:
    """Passes everything on to another store; the n-th write is its last act, done or not done."""

    def __init__(self, inner: Any, at: int | None = None, *, after: bool = False) -> None:
        self._inner, self._at, self._after = inner, at, after
        self.writes = 0

    @property
    def is_dead(self) -> bool:
        return self._at is not None and self.writes >= self._at

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return self._dying(method) if name in WRITES else method

    def _dying(self, method: Any) -> Any:
        async def write(*args: Any, **kwargs: Any) -> Any:
            self.writes += 1
            dying = self._at is not None and self.writes >= self._at  # the dead write nothing more
            if dying and not (self._after and self.writes == self._at):
                raise Crash
            result = await method(*args, **kwargs)
            if dying:
                raise Crash
            return result

        return write
