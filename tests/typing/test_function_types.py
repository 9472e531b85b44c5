"""What type checkers know of durable functions; checked by mypy in strict mode, like `test_typing`."""

from __future__ import annotations

import asyncio
from typing import assert_type

from stepwell import RunContext, WorkflowRunResult, step, workflow
from stepwell.functional import DurableFunction


@step
async def price(name: str, *, taxed: bool = False) -> int:
    return len(name)


@step(name="total", timeout=5)
def total(prices: list[int]) -> int:
    return sum(prices)


@workflow
async def shop(names: list[str], ctx: RunContext) -> str:
    prices = await asyncio.gather(*(price(name, taxed=True) for name in names))
    assert_type(prices, list[int])
    assert_type(await total(prices), int)
    assert_type(await ctx.step("plain", str, 5), str)
    return str(sum(prices))


@workflow(name="closed")
async def closed(ctx: RunContext) -> int:
    assert_type(await shop(["a", "bc"]), str)
    assert_type(await ctx.run(shop, ["a"]), list[str])
    return 5


@workflow
def plain(name: str) -> int:
    assert_type(price.sync(name), int)
    return 1


async def wrong_calls() -> None:
    """Never called: a type checker refuses each of these lines."""
    await price(5)  # type: ignore[arg-type]
    await price("a", text=True)  # type: ignore[call-arg]
    await shop("a")  # type: ignore[arg-type]
    number: str = await price("a")  # type: ignore[assignment]
    del number


async def test_durable_functions_have_the_types_of_their_input_and_result() -> None:
    assert_type(shop, DurableFunction[list[str], str])
    assert_type(closed, DurableFunction[None, int])
    assert_type(plain, DurableFunction[str, int])
    result = await shop.run(["a", "bc"])
    assert_type(result, WorkflowRunResult[str])
    assert result.get_outputs() == ["3"]
    assert_type(await shop.build().start(["a"]).result(), WorkflowRunResult[str])
    assert (await plain.run("a")).get_outputs() == [1]
    assert (await closed.run()).get_outputs() == [5]
