"""What the tests of supersteps share."""

from __future__ import annotations

from typing import Any

from stepwell import (
    WorkflowContext,
    executor,
)

Ctx = WorkflowContext[Any, Any]


def passer(id: str, seen: list[Any] | None = None) -> Any:
    """An executor that notes what it gets and passes it on."""

    @executor(id=id)
    async def go(message: Any, ctx: Ctx) -> None:
        if seen is not None:
            seen.append((id, message))
        await ctx.send_message(message)

    return go


def ender(id: str = "end") -> Any:
    """An executor that yields what it gets."""

    @executor(id=id)
    async def go(message: Any, ctx: Ctx) -> None:
        await ctx.yield_output(message)

    return go


def sender(id: str, *messages: Any, to: str | None = None) -> Any:
    @executor(id=id)
    async def go(message: Any, ctx: Ctx) -> None:
        for one in messages:
            await ctx.send_message(one, to)

    return go
