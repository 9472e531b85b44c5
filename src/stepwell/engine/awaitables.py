"""Awaitables for what has already happened.

`send_message` and its like act when called; the awaitable they return is there for `await` to be
allowed, and a forgotten `await` loses nothing.
"""

from __future__ import annotations

from collections.abc import Generator


class _Done:
    """An awaitable that completes at once."""

    __slots__ = ()

    # The `yield` that is never reached makes this a generator, which `__await__` must return.
    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE = _Done()


class ReadyValue:
    """An awaitable that returns a known value at once."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, str]:
        return self._value
        yield
