"""What type checkers know: mypy (strict) and pyright check this file, and each `type: ignore` must be needed."""

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, assert_type

import psycopg

from stepwell import (
    InMemoryCheckpointStorage,
    StepOptions,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunResult,
    executor,
    timer_handler,
)
from stepwell.engine.drive.run_stream import RunStream
from stepwell.workflows import RunHandle


async def charge(amount: int, *, currency: str = "EUR", idempotency_key: str = "") -> float:
    return float(amount)


def total(prices: list[int]) -> int:
    return sum(prices)


def insert(db: psycopg.Connection[Any], name: str) -> int:
    return len(name)


@executor
async def buy(amount: int, ctx: WorkflowContext[None, str]) -> None:
    assert_type(await ctx.step("charge", charge, amount), float)
    assert_type(await ctx.step("charge", charge, amount, currency="USD"), float)
    assert_type(await ctx.step(StepOptions("total", timeout=5), total, [amount]), int)
    await ctx.yield_output("bought")


@executor
def buy_plainly(amount: int, ctx: WorkflowContext[None, str]) -> None:
    assert_type(ctx.step_sync("charge", charge, amount), float)
    assert_type(ctx.step_sync("total", total, [amount]), int)
    ctx.yield_output("bought")


async def wrong_calls(ctx: WorkflowContext[None, str]) -> None:
    """Never called: a type checker refuses each of these lines."""
    await ctx.step("charge", charge, "five")  # type: ignore[call-overload]
    await ctx.step("charge", charge, 5, curency="USD")  # type: ignore[call-arg]
    await ctx.step("total", total)  # type: ignore[call-overload]
    amount: str = await ctx.step("charge", charge, 5)  # type: ignore[call-overload]
    await ctx.step("insert", insert, "kelp")  # type: ignore[call-overload]  # only a transaction passes a connection
    del amount


async def remind(name: str, ctx: WorkflowContext[None, str]) -> None:
    """Never called: a decorator keeps the type of the function, and names are strings."""


async def timers(ctx: WorkflowContext[None, str]) -> None:
    """Never called: a type checker refuses the last three lines."""
    assert_type(ctx.set_timer("remind", 5), None)
    ctx.set_timer("remind", timedelta(days=1))
    assert_type(ctx.cancel_timer("remind"), None)
    assert_type(await timer_handler(remind)("remind", ctx), None)
    assert_type(await timer_handler("remind", timeout=5)(remind)("remind", ctx), None)
    assert_type(await buy.timer_handler("remind")(remind)("remind", ctx), None)
    ctx.set_timer("remind", "soon")  # type: ignore[arg-type]
    ctx.set_timer(5, 5)  # type: ignore[arg-type]
    timer_handler(5)  # type: ignore[call-overload]


async def in_a_transaction(ctx: WorkflowContext[None, str]) -> None:
    """Never called: needs PostgreSQL; only its types are of interest."""
    assert_type(await ctx.step(StepOptions("insert", transaction=True), insert, "kelp"), int)
    await ctx.step(StepOptions("insert", transaction=True), insert, 5)  # type: ignore[call-overload]


async def test_the_results_of_steps_and_workflows_have_their_types() -> None:
    workflow = WorkflowBuilder[str](start_executor=buy).build()
    assert_type(workflow, Workflow[str])
    result = await workflow.run(5)
    assert_type(result, WorkflowRunResult[str])
    assert_type(result.get_outputs(), list[str])
    assert result.get_outputs() == ["bought"]
    handle = workflow.start(6)
    assert_type((await handle.result()).get_outputs(), list[str])
    assert (await handle.result()).get_outputs() == ["bought"]


async def wrong_runs(workflow: Workflow[str], flag: bool) -> None:
    """Never called: options are checked in every form of `run`."""
    await workflow.run(5, run_di="five")  # type: ignore[call-overload]
    await workflow.run(5, durability="often")  # type: ignore[call-overload]
    await workflow.run(5, nested=True)  # type: ignore[call-overload]  # only a stream shows a part of the events
    workflow.run_streaming(5, nested="yes")  # type: ignore[arg-type]
    workflow.run_sync(5, replay=True)  # type: ignore[call-arg]
    assert_type(
        workflow.run(5, stream=flag),
        RunStream[WorkflowRunResult[str]] | Coroutine[Any, Any, WorkflowRunResult[str]],
    )


async def test_a_stream_and_a_handle_know_what_the_workflow_yields() -> None:
    workflow = WorkflowBuilder[str](start_executor=buy, checkpoint_storage=InMemoryCheckpointStorage()).build()
    stream = workflow.run(5, stream=True, nested=True, replay=True)
    assert_type(stream, RunStream[WorkflowRunResult[str]])
    assert_type((await stream).get_outputs(), list[str])
    assert_type(workflow.run_streaming(5, run_id="r"), RunStream[WorkflowRunResult[str]])
    assert_type(workflow.attach("r"), RunHandle[str])
    async for event in workflow.run_streaming(5, run_id="r"):
        assert_type(event, WorkflowEvent)
    assert_type(await workflow.result("r"), WorkflowRunResult[str])
    assert (await workflow.result("r")).get_outputs() == ["bought"]


async def test_a_workflow_that_does_not_say_what_it_yields_has_outputs_of_any_type() -> None:
    result = await WorkflowBuilder(start_executor=buy_plainly).build().run(5)
    assert_type(result.get_outputs(), list[Any])
    assert result.get_outputs() == ["bought"]
