"""A function that is left to wait makes no steps on its way out: it comes to them when it is called again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stepwell import InMemoryCheckpointStorage, RunContext, WorkflowEvent, step, workflow
from stepwell.functional import DurableFunction
from stepwell.testing import CrashingStore, FailingStore, Ledger, crash_everywhere

LEDGER = Ledger()


@step
async def lock(idempotency_key: str = "") -> None:
    LEDGER.do(idempotency_key, "lock")


@step
async def work(idempotency_key: str = "") -> None:
    LEDGER.do(idempotency_key, "work")


@step
async def unlock(idempotency_key: str = "") -> None:
    LEDGER.do(idempotency_key, "unlock")


@workflow
async def in_finally(ctx: RunContext) -> str:
    try:
        await lock()
        await ctx.sleep(3600)
        await work()
        return await ctx.ask("Well?", str)
    finally:
        await unlock()


@asynccontextmanager
async def locked(ctx: RunContext) -> AsyncIterator[None]:
    await lock()
    try:
        yield
    except BaseException:
        await ctx.sleep(7200)
        await unlock()
        raise
    await unlock()


@workflow
async def in_a_context_manager(ctx: RunContext) -> str:
    async with locked(ctx):
        answer = await ctx.ask("Well?", str)
        await work()
        await ctx.sleep(3600)
    return answer


@workflow
def in_a_thread(ctx: RunContext) -> str:
    try:
        lock.sync()
        ctx.sleep(3600)
        work.sync()
        return ctx.ask_sync("Well?", str)
    finally:
        unlock.sync()


@workflow
async def with_exceptions_as_results(ctx: RunContext) -> str:
    await lock()
    answers = await asyncio.gather(ctx.ask("Well?", str), ctx.ask("Or?", str), return_exceptions=True)
    await work()
    await unlock()
    return str(answers[0])


def answer(event: WorkflowEvent) -> str:
    return "well"


@pytest.mark.parametrize("function", [in_finally, in_a_context_manager, in_a_thread, with_exceptions_as_results])
@pytest.mark.parametrize("fault", [CrashingStore, FailingStore])
async def test_each_step_is_made_once_wherever_it_stands(
    function: DurableFunction[None, str], fault: type[CrashingStore] | type[FailingStore]
) -> None:
    LEDGER.clear()
    await crash_everywhere(function, answer=answer, ledger=LEDGER, fault=fault)
    assert sorted(effect[0] for effect in LEDGER.effects) == ["lock", "unlock", "work"]


async def test_nothing_is_made_before_the_answer() -> None:
    LEDGER.clear()
    function = with_exceptions_as_results.build(checkpoint_storage=InMemoryCheckpointStorage())
    assert (await function.run(None)).get_request_info_events()
    assert [effect[0] for effect in LEDGER.effects] == ["lock"]
