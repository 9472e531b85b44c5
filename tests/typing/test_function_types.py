"""What type checkers know of durable functions; checked by mypy in strict mode, like `test_typing`."""

from __future__ import annotations

import asyncio
from typing import assert_type

from stepwell import RetryPolicy, RunContext, WorkflowRunResult, get_run_context, step, workflow
from stepwell.functional import DurableFunction


@step
async def price(name: str, *, taxed: bool = False) -> int:
    return len(name)


@step(name="total", timeout=5)
def total(prices: list[int]) -> int:
    return sum(prices)


@step(retry=RetryPolicy(), remember=LookupError, replay_key=lambda number, *, unit="g": f"{number}{unit}")
async def weigh(number: int, *, unit: str = "g", idempotency_key: str = "") -> float:
    return float(number)


class Scale:
    @step
    async def read(self, number: int) -> bytes:
        return bytes(number)


@workflow
async def shop(names: list[str], ctx: RunContext) -> str:
    prices = await asyncio.gather(*(price(name, taxed=True) for name in names))
    assert_type(prices, list[int])
    assert_type(await total(prices), int)
    assert_type(await weigh(3, unit="kg"), float)
    assert_type(weigh.name, str)
    assert_type(await asyncio.create_task(weigh(3)), float)
    assert_type(await ctx.step("plain", str, 5), str)
    return str(sum(prices))


@workflow(name="closed")
async def closed(ctx: RunContext) -> int:
    assert_type(await shop(["a", "bc"]), str)
    assert_type(await ctx.run(shop, ["a"]), list[str])
    return 5


@workflow(name="asking", description="asks", retry=RetryPolicy(), timeout=5)
async def asking(count: int, ctx: RunContext) -> bool:
    assert_type(await ctx.ask("Well?", bool), bool)
    assert_type(await ctx.ask("How many?", int, default=5), int)
    assert_type(await ctx.patched("new"), bool)
    assert_type(await asking(count), bool)
    assert_type(get_run_context(), RunContext | None)
    return True


@workflow
def plain(name: str) -> int:
    assert_type(price.sync(name), int)
    return 1


async def wrong_calls() -> None:
    """Never called: a type checker refuses each of these lines."""
    await price(5)  # type: ignore[arg-type]
    await price("a", text=True)  # type: ignore[call-arg]
    await total("a")  # type: ignore[arg-type]
    await total()  # type: ignore[call-arg]
    await weigh(3, "kg")  # type: ignore[call-arg]
    await weigh("3")  # type: ignore[arg-type]
    total.sync(5)  # type: ignore[arg-type]
    step(replay_key=5)  # type: ignore[call-overload]
    workflow(timeout="long")  # type: ignore[call-overload]
    await shop("a")  # type: ignore[arg-type]
    number: str = await price("a")  # type: ignore[assignment]
    del number


async def test_durable_functions_have_the_types_of_their_input_and_result() -> None:
    assert_type(shop, DurableFunction[list[str], str])
    assert_type(closed, DurableFunction[None, int])
    assert_type(plain, DurableFunction[str, int])
    assert_type(asking, DurableFunction[int, bool])
    assert_type(asking.build(checkpoint_storage="memory"), DurableFunction[int, bool])
    result = await shop.run(["a", "bc"])
    assert_type(result, WorkflowRunResult[str])
    assert result.get_outputs() == ["3"]
    assert_type(await shop.build().start(["a"]).result(), WorkflowRunResult[str])
    assert (await plain.run("a")).get_outputs() == [1]
    assert (await closed.run()).get_outputs() == [5]
