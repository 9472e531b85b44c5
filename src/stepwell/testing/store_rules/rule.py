"""Store rules: a promise of the store port, a manner of using the store, and a check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, NamedTuple

from stepwell.storage.encryption import Seal
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.outbox import Outbox
from stepwell.storage.port import Store
from stepwell.storage.verified_outbox import VerifiedOutbox

OpenStore = Callable[[], Store | Awaitable[Store]]
"""Opens a store at an empty location; called again, it opens the same location again.

May be async.
"""

Manner = Literal["plain", "summed", "sealed"]
"""How a store is used: directly, with checksums (as storages do), or encrypted."""

_SEAL_KEY = bytes(range(32))


class OutboxStore(NamedTuple):
    """A store and its outbox."""

    store: Store
    outbox: Outbox


@dataclass(frozen=True)
class Promise:
    """A promise of the store port: a function that checks it, and whose name states it."""

    keep: Callable[..., Awaitable[None]]
    openings: int = 1
    manners: tuple[Manner, ...] = ("plain", "summed", "sealed")
    of_outbox: bool = False  # it gets an `OutboxStore` for each opening


@dataclass(frozen=True)
class StoreRule:
    """One promise of the store port, checked in one manner of use.

    `str(rule)` is the name of the promise and the manner, for use as a test id.
    """

    promise: Promise
    manner: Manner

    @property
    def openings(self) -> int:
        """How many stores are opened at one location: 1, or 2 for rules about two programs."""
        return self.promise.openings

    @property
    def chapter(self) -> str:
        """The protocol of the port that it is about, such as "signals", or "two_programs"."""
        return self.promise.keep.__module__.removeprefix(f"{__package__}.").partition(".")[0]

    async def check(self, open_store: OpenStore) -> None:
        """Check that a store keeps this promise.

        `open_store` opens the store at an empty location, and at the same location each time it is
        called; it may be async. The stores it opened are closed at the end.

        Raises AssertionError, or whatever the store raised, if the promise is broken.
        """
        # Under -O the asserts vanish, and every store would pass.
        if not __debug__:
            raise RuntimeError("store rules are made of assert statements; run them without -O")
        async with AsyncExitStack() as after:
            stores = [await self._open(open_store, after) for _ in range(self.openings)]
            await self.promise.keep(*stores)

    async def _open(self, open_store: OpenStore, after: AsyncExitStack) -> Store | OutboxStore:
        opening = open_store()
        store = await opening if isawaitable(opening) else opening
        after.push_async_callback(store.close)
        used = _in_manner(store, self.manner)
        if not self.promise.of_outbox:
            return used
        if not isinstance(store, Outbox):
            raise TypeError(f"{type(store).__name__} has no outbox: see stepwell.storage.outbox")
        return OutboxStore(used, VerifiedOutbox(store, used) if isinstance(used, VerifiedStore) else store)

    def __str__(self) -> str:
        return f"{self.promise.keep.__name__}-{self.manner}"


def rule(keep: Callable[[Any], Awaitable[None]]) -> Promise:
    """Declare a promise of every store, in every manner. The function gets an empty store."""
    return Promise(keep)


def rule_of_two(keep: Callable[[Any, Any], Awaitable[None]]) -> Promise:
    """Declare a promise of stores that can be opened twice.

    The function gets two at one empty location.
    """
    return Promise(keep, openings=2)


def outbox_rule(keep: Callable[[OutboxStore], Awaitable[None]]) -> Promise:
    """Declare a promise of every store with an outbox."""
    return Promise(keep, manners=("plain", "sealed"), of_outbox=True)


def outbox_rule_of_two(keep: Callable[[OutboxStore, OutboxStore], Awaitable[None]]) -> Promise:
    """Declare a promise of stores with an outbox that can be opened twice."""
    return Promise(keep, openings=2, manners=("plain", "sealed"), of_outbox=True)


def rule_of_guards(*manners: Manner) -> Callable[[Callable[[VerifiedStore], Awaitable[None]]], Promise]:
    """Declare a promise of the guard around a store, in these manners.

    `store.inner` is the store itself.
    """
    return lambda keep: Promise(keep, manners=manners)


def _in_manner(store: Store, manner: Manner) -> Store:
    match manner:
        case "plain":
            return store
        case "summed":
            return VerifiedStore(store)
        case "sealed":
            return VerifiedStore(store, Seal({"rules": _SEAL_KEY}, "rules"))
