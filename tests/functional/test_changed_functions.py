"""A durable function that was changed while a run was under way finds its recorded steps, or says which it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import HandlerFailed, RunContext, StepChanged, step, workflow
from stepwell.admin import check
from stepwell.functional import DurableFunction
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore

DID: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DID.clear()


@pytest.fixture
def storage() -> BuiltInStorage:
    return BuiltInStorage(MemoryStore())


async def act(what: str) -> str:
    DID.append(what)
    return what


do = step(act)
charge = step(name="charge")(act)
ship = step(name="ship")(act)
bill = step(name="bill")(act)


@step
async def fail(what: str) -> str:
    DID.append(what)
    raise ConnectionError(what)


Body = Callable[[RunContext], Awaitable[Any]]


def version(storage: BuiltInStorage, body: Body) -> DurableFunction[None, Any]:
    @workflow(name="order", checkpoint_storage=storage)
    async def order(ctx: RunContext) -> Any:
        return await body(ctx)

    return order


async def stop_after(storage: BuiltInStorage, body: Body) -> None:
    """Run a first version that does what `body` does, and then stops."""

    async def stopping(ctx: RunContext) -> None:
        await body(ctx)
        raise RuntimeError("stopped")

    with pytest.raises(HandlerFailed, match="stopped"):
        await version(storage, stopping).run(None, run_id="r")


async def test_a_renamed_step_is_not_executed_again(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")

    async def after(ctx: RunContext) -> None:
        await bill("card")

    await stop_after(storage, before)
    with pytest.raises(StepChanged, match=r"'bill' .* where the stored result is that of step 'charge'") as changed:
        await version(storage, after).run(run_id="r")
    assert (changed.value.stored[:3], changed.value.asked[:3], changed.value.executor_id) == ("act", "act", "order")
    assert DID == ["card"]


async def test_a_step_put_before_another_is_noticed_before_it_is_executed(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")

    async def after(ctx: RunContext) -> None:
        await ship("parcel")
        await charge("card")

    await stop_after(storage, before)
    with pytest.raises(StepChanged, match=r"'ship' .* 'charge'"):
        await version(storage, after).run(run_id="r")
    assert DID == ["card"]


async def test_a_step_that_is_gone_is_noticed_when_the_function_returns(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")
        await asyncio.gather(ship("a"), ship("b"))

    async def after(ctx: RunContext) -> str:
        await charge("card")
        return "done"

    await stop_after(storage, before)
    with pytest.raises(StepChanged, match=r"returned without calling 'ship', which has a stored result"):
        await version(storage, after).run(run_id="r")
    result = await version(storage, after).run(run_id="r", on_changed_step="recall")
    assert result.get_outputs() == ["done"]
    assert DID == ["card", "a", "b"]


async def test_steps_added_at_the_end_are_not_a_change(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")

    async def after(ctx: RunContext) -> str:
        return await charge("card") + await ship("parcel")

    await stop_after(storage, before)
    assert (await version(storage, after).run(run_id="r")).get_outputs() == ["cardparcel"]


async def test_patched_keeps_runs_under_way_on_their_path(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")

    async def after(ctx: RunContext) -> str:
        if await ctx.patched("bill instead"):
            return await bill("card")
        return f"old {await charge('card')}"

    await stop_after(storage, before)
    assert (await version(storage, after).run(run_id="r")).get_outputs() == ["old card"]
    assert (await version(storage, after).run(None, run_id="new")).get_outputs() == ["card"]
    assert DID == ["card", "card"]


async def test_a_decision_is_stored(storage: BuiltInStorage) -> None:
    decided: list[bool] = []

    async def body(ctx: RunContext) -> None:
        decided.append(await ctx.patched("new"))
        await charge("card")

    await stop_after(storage, body)
    await version(storage, body).run(run_id="r")
    assert decided == [True, True]


async def test_a_patch_that_is_removed_again_is_not_missed(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        if await ctx.patched("new"):
            await charge("card")

    async def after(ctx: RunContext) -> str:
        return await charge("card")

    await stop_after(storage, before)
    assert (await version(storage, after).run(run_id="r")).get_outputs() == ["card"]


async def test_a_patch_that_is_not_awaited_is_an_error_and_in_a_thread_a_condition(storage: BuiltInStorage) -> None:
    async def forgotten(ctx: RunContext) -> None:
        assert ctx.patched("new")

    with pytest.raises(HandlerFailed, match=r"write `await ctx\.patched"):
        await version(storage, forgotten).run(None, run_id="r")

    @workflow
    def plain(ctx: RunContext) -> str:
        return "new" if ctx.patched("new") else "old"

    assert (await plain.run()).get_outputs() == ["new"]


async def test_a_branch_that_was_not_finished_is_not_a_change(storage: BuiltInStorage) -> None:
    started = asyncio.Event()

    @step
    async def slow(what: str) -> str:
        if not started.is_set():
            started.set()
            await asyncio.sleep(60)
        return what

    async def body(ctx: RunContext) -> str:
        last = asyncio.create_task(slow("slow"))
        await charge("card")
        await ship("parcel")
        await started.wait()
        if len(DID) == 2:
            DID.append("stopped")
            last.cancel()  # a function that fails waits for its steps
            raise RuntimeError("stopped")
        return await last

    with pytest.raises(HandlerFailed, match="stopped"):
        await version(storage, body).run(None, run_id="r")
    assert (await version(storage, body).run(run_id="r")).get_outputs() == ["slow"]


async def test_a_caught_error_and_a_caught_timeout_are_not_a_change(storage: BuiltInStorage) -> None:
    @step
    async def hang() -> None:
        await asyncio.sleep(60)

    async def body(ctx: RunContext) -> str:
        try:
            await fail("primary")
        except ConnectionError:
            await charge("fallback")
        try:
            async with asyncio.timeout(0.01):
                await hang()
        except TimeoutError:
            await ship("late")
        return "done"

    await stop_after(storage, body)
    assert (await version(storage, body).run(run_id="r")).get_outputs() == ["done"]
    assert DID == ["primary", "fallback", "late", "primary"]


async def test_steps_inside_a_step_are_not_missed_when_it_is_recalled(storage: BuiltInStorage) -> None:
    @step
    async def outer() -> str:
        return "".join(await asyncio.gather(do("a"), do("b"))) + await do("c")

    async def body(ctx: RunContext) -> str:
        return await outer() + await do("d")

    await stop_after(storage, body)
    assert (await version(storage, body).run(run_id="r")).get_outputs() == ["abcd"]
    assert sorted(DID) == ["a", "b", "c", "d"]


async def test_a_thread_notices_a_renamed_step_too(storage: BuiltInStorage) -> None:
    @workflow(name="order", checkpoint_storage=storage)
    def before() -> None:
        charge.sync("card")
        raise RuntimeError("stopped")

    @workflow(name="order", checkpoint_storage=storage)
    def after() -> None:
        bill.sync("card")

    with pytest.raises(HandlerFailed):
        await before.run(None, run_id="r")
    with pytest.raises(StepChanged, match="'bill'"):
        await after.run(run_id="r")
    assert DID == ["card"]


async def test_only_durable_functions_have_patches() -> None:
    from stepwell import WorkflowBuilder, WorkflowContext, executor, get_run_context

    @executor
    async def node(text: str, ctx: WorkflowContext[None, bool]) -> None:
        context = get_run_context()
        assert context is not None
        await ctx.yield_output(await context.patched("new"))

    with pytest.raises(HandlerFailed, match="only durable functions have it"):
        await WorkflowBuilder(start_executor=node).build().run("x")


async def helper(what: str) -> str:
    return await charge(what)


async def renamed_helper(what: str) -> str:
    return await charge(what)


async def together(ctx: RunContext) -> list[str]:
    return list(await asyncio.gather(helper("a"), helper("b")))


async def renamed(ctx: RunContext) -> list[str]:
    return list(await asyncio.gather(renamed_helper("a"), renamed_helper("b")))


async def one_by_one(ctx: RunContext) -> list[str]:
    return [await charge("a"), await charge("b")]


@pytest.mark.parametrize(("before", "after"), [(together, renamed), (together, one_by_one), (one_by_one, together)])
async def test_a_step_that_moved_to_another_task_is_not_executed_again(
    before: Body, after: Body, storage: BuiltInStorage
) -> None:
    await stop_after(storage, before)
    assert (await verdict(storage, before))[0] == "compatible"
    result, (why,) = await verdict(storage, after)
    assert result == "incompatible"
    assert "has a stored result, but of another branch" in why
    with pytest.raises(StepChanged, match=r"step 'charge' of 'order' .* called as act\(str#.*but of another branch"):
        await version(storage, after).run(run_id="r")
    assert sorted(DID) == ["a", "b"]
    # On purpose it is.
    assert (await version(storage, after).run(run_id="r", on_changed_step="recall")).get_outputs() == [["a", "b"]]
    assert sorted(DID) == ["a", "a", "b", "b"]


async def test_a_task_that_comes_late_to_its_recorded_step_is_not_a_change(storage: BuiltInStorage) -> None:
    stop = [True]

    async def late(ctx: RunContext) -> str:
        await asyncio.sleep(0.08)
        return await charge("card")

    async def body(ctx: RunContext) -> str:
        task = asyncio.create_task(late(ctx))
        if stop:
            await task
            stop.clear()
            raise RuntimeError("stopped")
        # The same call, by another task, which is new.
        return await task + await asyncio.create_task(helper("card"))

    with pytest.raises(HandlerFailed, match="stopped"):
        await version(storage, body).run(None, run_id="r")
    assert (await version(storage, body).run(run_id="r")).get_outputs() == ["cardcard"]


# ---------------------------------------------------------------- before a deploy


async def verdict(storage: BuiltInStorage, body: Body) -> tuple[str, tuple[str, ...]]:
    done = list(DID)
    (run,) = (await check(storage, version(storage, body))).runs
    assert done == DID, "a check executes no step"
    return run.verdict, run.why


async def test_a_check_finds_a_renamed_a_missing_and_a_changed_step(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")
        await asyncio.gather(ship("a"), ship("b"))

    async def same(ctx: RunContext) -> None:
        await before(ctx)
        await ctx.sleep(3600)
        await bill("later")

    async def renamed(ctx: RunContext) -> None:
        await bill("card")

    async def missing(ctx: RunContext) -> None:
        await charge("card")

    async def changed(ctx: RunContext) -> None:
        await charge("cash")

    async def patched(ctx: RunContext) -> None:
        if await ctx.patched("no more shipping"):
            await charge("card")
        else:
            await same(ctx)

    await stop_after(storage, before)
    assert await verdict(storage, same) == ("compatible", ())
    assert await verdict(storage, patched) == ("compatible", ())
    for body, problem in ((renamed, "'bill'"), (missing, "without calling 'ship'"), (changed, "str#")):
        result, (why,) = await verdict(storage, body)
        assert result == "incompatible"
        assert problem in why
    # The check has changed nothing.
    assert (await version(storage, same).run(run_id="r")).wakes_at is not None


async def test_a_check_does_not_wait_for_what_is_not_recorded(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")

    async def fails(ctx: RunContext) -> None:
        await charge("card")
        raise OSError("no network here")

    async def waits(ctx: RunContext) -> None:
        await asyncio.gather(charge("card"), asyncio.sleep(3600))

    await stop_after(storage, before)
    assert await verdict(storage, fails) == ("compatible", ())
    assert await verdict(storage, waits) == ("compatible", ())


async def test_a_check_waits_for_what_a_function_does_between_its_steps(storage: BuiltInStorage) -> None:
    async def before(ctx: RunContext) -> None:
        await charge("card")
        await charge("tip")

    async def slow(ctx: RunContext) -> None:
        await charge("card")
        await asyncio.sleep(0.4)
        await bill("tip")

    await stop_after(storage, before)
    result, (why,) = await verdict(storage, slow)
    assert result == "incompatible"
    assert "'bill'" in why


async def test_a_check_replays_a_function_in_a_thread(storage: BuiltInStorage) -> None:
    @workflow(name="order", checkpoint_storage=storage)
    def before() -> None:
        charge.sync("card")
        raise RuntimeError("stopped")

    @workflow(name="order")
    def more() -> None:
        charge.sync("card")
        bill.sync("card")

    @workflow(name="order")
    def other() -> None:
        bill.sync("card")

    with pytest.raises(HandlerFailed):
        await before.run(None, run_id="r")
    assert [run.verdict for run in (await check(storage, more)).runs] == ["compatible"]
    assert [run.verdict for run in (await check(storage, other)).runs] == ["incompatible"]
    assert DID == ["card"]
