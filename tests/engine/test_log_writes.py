"""Entries of the superstep log on a store that completes its writes: no task, and nothing lost when it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import HandlerFailed, RunContext, StepOptions, StoreUnavailable, step, workflow
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore

DID: list[str] = []


class SlowStore(MemoryStore):
    """A store that takes its time to write to the log, and completes what it began."""

    completes_writes = True
    fails = 0
    stored = False

    async def write_log(self, *args: Any, **options: Any) -> bool:
        return await asyncio.shield(asyncio.ensure_future(self._write_slowly(args, options)))

    async def _write_slowly(self, args: Any, options: Any) -> bool:
        await asyncio.sleep(0.05)
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("the disk is full")
        self.stored = True
        return await super().write_log(*args, **options)


@step
async def pay(what: str) -> str:
    DID.append(what)
    return what


@pytest.fixture
def store() -> SlowStore:
    DID.clear()
    return SlowStore()


async def cancel_while_it_is_stored(ctx: RunContext) -> str:
    try:
        async with asyncio.timeout(0.02):
            await pay("a")
    except TimeoutError:
        DID.append("cancelled")
    return await pay("b")


async def test_a_step_that_is_cancelled_while_it_is_stored_was_made(store: SlowStore) -> None:
    failures = [1]

    @workflow(checkpoint_storage=BuiltInStorage(store))
    async def shop(ctx: RunContext) -> str:
        result = await cancel_while_it_is_stored(ctx)
        if failures:
            raise RuntimeError(f"failure {failures.pop()}")
        return result

    with pytest.raises(HandlerFailed):
        await shop.run(None, run_id="r")
    assert DID == ["a", "cancelled", "b"]
    assert (await shop.run(run_id="r")).get_outputs() == ["b"]
    assert DID == ["a", "cancelled", "b"]


async def test_what_could_not_be_stored_is_made_again(store: SlowStore) -> None:
    @workflow(checkpoint_storage=BuiltInStorage(store))
    async def shop(ctx: RunContext) -> str:
        return await pay("a")

    store.fails = 1
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await shop.run(None, run_id="r")
    assert (await shop.run(run_id="r")).get_outputs() == ["a"]
    assert DID == ["a", "a"]


async def test_a_call_that_finds_an_entry_waits_until_it_is_stored(store: SlowStore) -> None:
    async def act(number: int) -> int:
        DID.append(str(number))
        return number

    @workflow(checkpoint_storage=BuiltInStorage(store))
    async def shop(ctx: RunContext) -> list[int]:
        first = asyncio.create_task(_wait(ctx, 1))
        await asyncio.sleep(0.02)
        # The first is being stored, and its caller gives up.
        first.cancel()
        second = await ctx.step(StepOptions("act", key="k"), act, 2)
        assert store.stored, "it is durable when it returns"
        return [second]

    async def _wait(ctx: RunContext, number: int) -> int:
        return await ctx.step(StepOptions("act", key="k"), act, number)

    assert (await shop.run(None, run_id="r")).get_outputs() == [[1]]
    assert DID == ["1"]
