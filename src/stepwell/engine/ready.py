"""Awaitables that need not be awaited: what they stand for has already happened."""

from __future__ import annotations

from collections.abc import Generator


class _Done:
    """An awaitable that has already happened."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE = _Done()


class Ready:
    """An awaitable whose answer is already there."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, str]:
        return self._value
        yield
