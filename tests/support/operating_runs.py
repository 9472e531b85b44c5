"""Workflows that the tests of operating make runs with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, executor, handler, response_handler


@dataclass
class Order:
    id: int
    lines: list[str]


def counting(storage: Any, upto: int = 3, calls: list[int] | None = None, name: str = "counting") -> Workflow:
    """Counts from its input on, one superstep a number, and says what it has counted."""

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, list[int]]) -> None:
        if calls is not None:
            calls.append(number)
        ctx.append_state("numbers", number)
        ctx.set_state("about", {"last": number, "odd": [n for n in range(number) if n % 2]})
        if number < ctx.get_state("upto", upto):
            await ctx.send_message(number + 1)
        else:
            await ctx.yield_output(ctx.get_state("numbers"))

    return WorkflowBuilder(name=name, start_executor=count, checkpoint_storage=storage).add_edge(count, count).build()


class Desk(Executor):
    deadline: timedelta | None = None

    @handler
    async def refund(self, order: Order, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("order", order)
        await ctx.request_info(order, bool, request_id=f"refund-{order.id}", deadline=self.deadline)

    @response_handler
    async def decided(self, original_request: Order, response: bool, ctx: WorkflowContext[None, str]) -> None:
        order = ctx.get_state("order")
        await ctx.yield_output(f"{', '.join(order.lines)}: {'refunded' if response else 'kept'}")


def asking(storage: Any, deadline: timedelta | None = None) -> Workflow:
    """Asks whether to refund an order, and does."""
    desk = Desk("desk")
    desk.deadline = deadline
    return WorkflowBuilder(name="refunds", start_executor=desk, checkpoint_storage=storage).build()
