"""What a rule for stores is: a promise, and a way to make sure that a store keeps it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from ..durable.ports import Store

Opening = Callable[[], Store | Awaitable[Store]]
"""Opens a store; called again, it opens the same place again."""


@dataclass(frozen=True)
class StoreRule:
    """One promise that every store keeps. `str(rule)` says which."""

    promise: Callable[..., Awaitable[None]]
    openings: int = 1  # how many stores are opened at one place, side by side

    async def check(self, open_store: Opening) -> None:
        """Raises AssertionError unless the store keeps the promise.

        `open_store` opens a store at a place that is empty at first. What was opened is closed at the end.
        """
        if not __debug__:
            raise RuntimeError("rules are made of assert statements: run them without -O")
        async with AsyncExitStack() as after:
            opened = [await _opened(open_store, after) for _ in range(self.openings)]
            await self.promise(*opened)

    def __str__(self) -> str:
        return str(getattr(self.promise, "__name__", self.promise))


def rule(promise: Callable[[Any], Awaitable[None]]) -> StoreRule:
    """Declare a rule: a function whose name is the promise, and which takes an empty store."""
    return StoreRule(promise)


async def _opened(open_store: Opening, after: AsyncExitStack) -> Store:
    found = open_store()
    store = await found if isawaitable(found) else found
    after.push_async_callback(store.close)
    return store
