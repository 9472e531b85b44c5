"""Handlers that sleep, for the tests of timers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stepwell import (
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)

HOUR = 3600


def build(start: Any, storage: Any = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage, **options).build()


def sleeper(called: list[Any], *waits: Any, plain: bool = False, **options: Any) -> Any:
    """An executor that sleeps as it is told, and writes down where it comes by."""

    async def work(n: int, ctx: WorkflowContext[None, str]) -> None:
        called.append("called")
        for number, wait in enumerate(waits):
            await (ctx.sleep_until(wait) if isinstance(wait, datetime) else ctx.sleep(wait))
            called.append(number)
        await ctx.yield_output("slept")

    def plain_work(n: int, ctx: WorkflowContext[None, str]) -> None:
        called.append("called")
        for number, wait in enumerate(waits):
            if isinstance(wait, datetime):
                ctx.sleep_until(wait)
            else:
                ctx.sleep(wait)
            called.append(number)
        ctx.yield_output("slept")

    return executor(id="sleeper", **options)(plain_work if plain else work)
