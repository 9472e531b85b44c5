"""What a rule for stores is: a promise, a manner to use the store in, and a way to make sure that it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, cast

from stepwell.storage.encryption import Seal
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.port import Store

OpenStore = Callable[[], Store | Awaitable[Store]]
"""Opens a store at a place that is empty at first; called again, it opens the same place again."""

Manner = Literal["plain", "summed", "sealed"]
"""How a store is used: alone, with a sum in every text as storages do, or with every text sealed."""

_SEAL_KEY = bytes(range(32))


@dataclass(frozen=True)
class Promise:
    """What is true of a store, as it is written down: the name of a function that makes sure of it."""

    keep: Callable[..., Awaitable[None]]
    openings: int = 1
    manners: tuple[Manner, ...] = ("plain", "summed", "sealed")


@dataclass(frozen=True)
class StoreRule:
    """One promise that a store keeps in one manner of use. `str(rule)` says which, as the name of a test."""

    promise: Promise
    manner: Manner

    @property
    def openings(self) -> int:
        """How many stores are open at one place, side by side: 1, or 2 if it is about two programs at once."""
        return self.promise.openings

    async def check(self, open_store: OpenStore) -> None:
        """Try the store. Returns if the promise is kept; raises AssertionError, or what the store raised, if not.

        `open_store` opens it at a place that is empty at first, and at the same place whenever it is called again;
        it may be async. What it opened is closed at the end.
        """
        if not __debug__:
            raise RuntimeError("the rules are made of assert statements: run them without -O")
        async with AsyncExitStack() as after:
            stores = [await self._open(open_store, after) for _ in range(self.openings)]
            await self.promise.keep(*stores)

    async def _open(self, open_store: OpenStore, after: AsyncExitStack) -> Store:
        opening = open_store()
        store = await opening if isawaitable(opening) else opening
        after.push_async_callback(store.close)
        return _in_manner(store, self.manner)

    def __str__(self) -> str:
        return f"{self.promise.keep.__name__}-{self.manner}"


def rule(keep: Callable[[Any], Awaitable[None]]) -> Promise:
    """What follows is true of every store, in every manner. It is given an empty store."""
    return Promise(keep)


def rule_of_two(keep: Callable[[Any, Any], Awaitable[None]]) -> Promise:
    """What follows is true of every store that can be opened twice. It is given two, open at one empty place."""
    return Promise(keep, openings=2)


def rule_of_guards(*manners: Manner) -> Callable[[Callable[[VerifiedStore], Awaitable[None]]], Promise]:
    """What follows is true of what guards a store in these manners. `inner` is the store itself."""
    return lambda keep: Promise(keep, manners=manners)


def _in_manner(store: Store, manner: Manner) -> Store:
    match manner:
        case "plain":
            return store
        case "summed":
            return cast(Store, VerifiedStore(store))
        case "sealed":
            return cast(Store, VerifiedStore(store, Seal({"rules": _SEAL_KEY}, "rules")))
