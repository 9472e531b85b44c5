"""A run, and the processes that want to drive it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.stored_values import Record
from stepwell.testing.store_rules.samples import logged

from .held import RUN
from .ledger import Line
from .nursery import WAIT, Child, Nursery
from .places import Place

LEASE = 0.3  # seconds


class World:
    """A run, and the processes that want to drive it."""

    def __init__(self, place: Place, nursery: Nursery) -> None:
        self._place, self._nursery, self._ledger = place, nursery, place.ledger
        self._lines: list[Line] = []
        self._children: list[Child] = []

    def begin(
        self, me: str, way: str = "insists", manner: str = "as it is", lease: float = LEASE, shape: str = "flat"
    ) -> Child:
        child = self._nursery.bear("tests.crash.held", str(self._place), me, str(lease), way, manner, shape, name=me)
        self._children.append(child)
        return child

    def let_on(self, who: str, *names: str) -> None:
        for name in names:
            (self._place.path / f"{who} {name}").touch()

    def let_go(self) -> None:
        """Those who are ready begin, all at once."""
        (self._place.path / "go").touch()

    def lines(self, what: str, **more: object) -> list[Line]:
        self._lines += self._ledger.news()
        return [one for one in self._lines if one.what == what and more.items() <= one.more.items()]

    def until(self, what: str, times: int = 1, **more: object) -> Line:
        deadline = time.monotonic() + WAIT
        while len(found := self.lines(what, **more)) < times:
            assert time.monotonic() < deadline, f"{what} {more} never came:\n{self.story()}"
            fallen = [f"{child} ended with {child.code()}" for child in self._children if child.has_failed()]
            assert not fallen, f"{fallen} before {what} {more} came:\n{self.story()}"
            time.sleep(0.005)
        return found[-1]

    def story(self) -> str:
        words = [f"{child}: {child.words()}" for child in self._children if child.words()]
        return "\n".join([*map(str, self._lines), *words])

    def stop_until_overtaken(self, child: Child, other: str) -> Child:
        """Let a process stand still until its lease is over and another one drives the run."""
        child.stop_between_writes()
        taking_over = self.begin(other)
        self.until("ran", me=other, name="slow")
        return taking_over

    def records(self) -> list[Record]:
        found: list[Record] = self._ask(lambda storage: storage._store.history(RUN))
        return found

    def memory(self) -> str:
        """What is remembered of the superstep in which the run is, as text."""

        async def look(storage: BuiltInStorage) -> str:
            at = await StoreArchive(storage._store, DEFAULT_CODEC).head(RUN)
            assert at is not None
            return str(await logged(storage._store, RUN, at.place))

        found: str = self._ask(look)
        return found

    def _ask(self, question: Callable[[BuiltInStorage], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            async with self._place.open() as storage:
                return await question(storage)

        return asyncio.run(ask())

    def end(self) -> None:
        for child in self._children:
            child.kill()
