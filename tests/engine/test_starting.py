"""A run is started that somebody else is just starting, or drives already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import RunBusy, RunError, WorkflowRunState
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import OpenedRun
from stepwell.stores.memory.store import MemoryStore
from tests.support.held import Script, counting

SOMEBODY = Owner("elsewhere", "another machine", 1, "0", "their drive")


class Watched(MemoryStore):
    """Says when somebody was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = asyncio.Event()

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        try:
            return await super().open(run_id, owner=owner, seconds=seconds)
        except RunBusy:
            self.refused.set()
            raise


@pytest.fixture
def store() -> Watched:
    return Watched()


async def started(store: Watched, message: int) -> Any:
    """A handle of a run that somebody else has claimed, once it was refused the claim."""
    handle = counting(BuiltInStorage(store), Script()).start(message, run_id="r")
    await store.refused.wait()
    return handle


async def test_if_whoever_was_first_never_began_the_run_is_begun_here(store: Watched) -> None:
    await store.acquire("r", SOMEBODY, seconds=600)
    handle = await started(store, 1)
    await store.release("r", SOMEBODY)
    async with asyncio.timeout(30):
        assert (await handle.result()).get_outputs() == [1, 2, 3, 4]


async def test_if_it_was_begun_with_the_same_message_it_is_this_run(store: Watched) -> None:
    script = Script()
    gate = script.hold(2)
    storage = BuiltInStorage(store)
    first = counting(storage, script).start(1, run_id="r")
    await gate.reached.wait()
    second = await started(store, 1)
    script.let_go()
    assert (await second.result()).get_outputs() == (await first.result()).get_outputs() == [1, 2, 3, 4]


async def test_if_it_was_begun_with_another_message_it_is_refused(store: Watched) -> None:
    script = Script()
    gate = script.hold(2)
    first = counting(BuiltInStorage(store), script).start(1, run_id="r")
    await gate.reached.wait()
    second = await started(store, 7)
    async with asyncio.timeout(30):
        with pytest.raises(RunError, match="was started with another input"):
            await second.result()
    script.let_go()
    assert (await first.result()).get_outputs() == [1, 2, 3, 4]


async def test_one_that_had_stopped_goes_on_when_whoever_held_it_lets_go(store: Watched) -> None:
    script = Script()
    gate = script.hold(2)
    handle = counting(BuiltInStorage(store), script).start(1, run_id="r")
    await gate.reached.wait()
    assert await handle.cancel() is WorkflowRunState.CANCELLED
    await store.acquire("r", SOMEBODY, seconds=600)
    again = await started(store, 1)
    await store.release("r", SOMEBODY)
    async with asyncio.timeout(30):
        assert (await again.result()).get_outputs() == [1, 2, 3, 4]
