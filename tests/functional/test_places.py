"""Where a step is known again: by its place, as `ctx.step` is, or by the key that its arguments give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import HandlerFailed, RunContext, StepOptions, WorkflowBuilder, WorkflowContext, executor, step, workflow
from stepwell.functional import DurableFunction
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.testing import Ledger, crash_everywhere

DID: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DID.clear()


async def act(what: str) -> str:
    DID.append(what)
    return what


def act_in_a_thread(what: str) -> str:
    DID.append(what)
    return what


charge = step(name="charge")(act)


class Connection:
    """Different in every process, so that no digest of it could be compared."""


@step(replay_key=lambda connection, number: f"page {number}")
async def load(connection: Connection, number: int) -> int:
    DID.append(f"load {number}")
    return number


Body = Callable[[RunContext], Awaitable[Any]]


def version(storage: BuiltInStorage, body: Body) -> DurableFunction[None, Any]:
    @workflow(name="order", checkpoint_storage=storage)
    async def order(ctx: RunContext) -> Any:
        return await body(ctx)

    return order


async def run_both(storage: BuiltInStorage, before: Body, after: Body) -> Any:
    """Run a version that fails at its end, then resume with another one; return its outputs."""

    async def failing(ctx: RunContext) -> None:
        await before(ctx)
        raise RuntimeError("stopped")

    with pytest.raises(HandlerFailed, match="stopped"):
        await version(storage, failing).run(None, run_id="r")
    return (await version(storage, after).run(run_id="r")).get_outputs()


async def test_a_step_and_ctx_step_are_known_by_the_same_place(every_storage: BuiltInStorage) -> None:
    async def by_context(ctx: RunContext) -> list[str]:
        first = await ctx.step("charge", act, "one")
        second, third = await asyncio.gather(ctx.step("charge", act, "two"), ctx.step("charge", act, "three"))
        return [first, second, third]

    async def by_decorator(ctx: RunContext) -> list[str]:
        return [await charge("one"), *await asyncio.gather(charge("two"), charge("three"))]

    assert await run_both(every_storage, by_context, by_decorator) == [["one", "two", "three"]]
    assert sorted(DID) == ["one", "three", "two"]


async def test_handlers_of_graphs_have_the_same_places(storage: BuiltInStorage) -> None:
    fails = [True]

    @executor
    async def node(text: str, ctx: WorkflowContext[None, str]) -> None:
        result = await (ctx.step("charge", act, text) if fails else charge(text))
        if fails:
            fails.clear()
            raise RuntimeError("once")
        await ctx.yield_output(result)

    graph = WorkflowBuilder(start_executor=node, checkpoint_storage=storage).build()
    with pytest.raises(HandlerFailed):
        await graph.run("card", run_id="r")
    assert (await graph.run(run_id="r")).get_outputs() == ["card"]
    assert DID == ["card"]


async def test_a_replay_key_finds_the_call_in_another_branch_and_order(every_storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> list[int]:
        return [await load(Connection(), 1), await load(Connection(), 2)]

    async def after(ctx: RunContext) -> list[int]:
        await charge("new")
        second, first = await asyncio.gather(load(Connection(), 2), load(Connection(), 1))
        return [first, second, await load(Connection(), 3)]

    assert await run_both(every_storage, before, after) == [[1, 2, 3]]
    assert DID == ["load 1", "load 2", "new", "load 3"]


async def test_a_replay_key_is_the_key_of_step_options(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> int:
        options = StepOptions("load", key="page 1")
        return await ctx.step(options, load.function, Connection(), 1)

    async def after(ctx: RunContext) -> int:
        return await load(Connection(), 1)

    assert await run_both(storage, before, after) == [1]
    assert DID == ["load 1"]


async def test_two_branches_that_give_the_same_key_share_one_call() -> None:
    @workflow
    async def both() -> list[int]:
        return list(await asyncio.gather(load(Connection(), 1), load(Connection(), 1)))

    assert (await both.run()).get_outputs() == [[1, 1]]
    assert DID == ["load 1"]


@pytest.mark.parametrize("key", ["", 5, None])
async def test_a_replay_key_that_is_not_a_string_is_an_error(key: Any) -> None:
    @step(replay_key=lambda: key)
    async def wrong() -> None: ...

    @workflow
    async def calls() -> None:
        await wrong()

    with pytest.raises(HandlerFailed, match=r"key of the step '.*wrong' is a non-empty string"):
        await calls.run()


async def test_steps_with_keys_survive_a_crash_at_every_write() -> None:
    ledger = Ledger()

    @step(replay_key=lambda number: f"n{number % 3}")
    async def note(number: int, idempotency_key: str = "") -> int:
        ledger.do(idempotency_key, "note", number % 3)
        return number % 3

    @workflow
    async def notes() -> list[int]:
        return [await note(0), *await asyncio.gather(note(1), note(2)), await note(3), await note(4)]

    await crash_everywhere(notes, ledger=ledger)
    assert ledger.effects == [("note", 0), ("note", 1), ("note", 2)]


async def test_a_step_in_a_thread_has_the_place_of_one_on_the_event_loop(storage: BuiltInStorage) -> None:
    first = step(name="charge")(act_in_a_thread)

    @workflow(name="order", checkpoint_storage=storage)
    def in_a_thread() -> None:
        first.sync("one")
        raise RuntimeError("stopped")

    @workflow(name="order", checkpoint_storage=storage)
    async def on_the_loop() -> list[str]:
        return [await first("one"), await first("two")]

    with pytest.raises(HandlerFailed, match="stopped"):
        await in_a_thread.run(None, run_id="r")
    assert (await on_the_loop.run(run_id="r")).get_outputs() == [["one", "two"]]
    assert DID == ["one", "two"]
