"""What type checkers know: this file is checked by mypy in strict mode, and each `type: ignore` must be needed."""

from typing import Any, assert_type

import psycopg

from stepwell import StepOptions, Workflow, WorkflowBuilder, WorkflowContext, WorkflowRunResult, executor


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


async def test_a_workflow_that_does_not_say_what_it_yields_has_outputs_of_any_type() -> None:
    result = await WorkflowBuilder(start_executor=buy_plainly).build().run(5)
    assert_type(result.get_outputs(), list[Any])
    assert result.get_outputs() == ["bought"]
