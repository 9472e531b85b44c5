"""A store that dies on request: before or after its n-th durable write."""

from __future__ import annotations

from typing import Any

WRITES = ("append", "put", "remove", "drop", "remember", "post")
"""What makes something durable. Everything else a store does can be done again."""


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and carry on."""


class CrashingStore:
    """Passes everything on to another store. Its n-th write is its last act, done (`after`) or not done.

    Without `at` it never dies, and only counts: `writes`.
    """

    def __init__(self, inner: Any, at: int | None = None, *, after: bool = False) -> None:
        self.inner, self.at, self._after = inner, at, after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        return self._dying(name, method) if name in WRITES else method

    def wrote(self, name: str, args: tuple[Any, ...]) -> None:
        """Something was written. For whoever wants to know what."""

    def _dying(self, name: str, method: Any) -> Any:
        async def write(*args: Any, **kwargs: Any) -> Any:
            self.writes += 1
            dying = self.at is not None and self.writes >= self.at  # the dead write nothing more
            if dying and not (self._after and self.writes == self.at):
                raise Crash
            result = await method(*args, **kwargs)
            self.wrote(name, args)
            if dying:
                raise Crash
            return result

        return write
