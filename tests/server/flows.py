"""Workflows that servers in processes of their own serve."""

from __future__ import annotations

import asyncio

from stepwell import Executor, WorkflowBuilder, WorkflowContext, executor, handler, response_handler


@executor(id="count")
async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
    await asyncio.sleep(0.02)
    await ctx.yield_output(number)
    if number > 0:
        await ctx.send_message(number - 1)


counting_down = WorkflowBuilder(name="counting down", start_executor=count).add_edge(count, count).build()


class Clerk(Executor):
    @handler
    async def ask(self, amount: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"refund {amount}?", bool, request_id="approval")

    @response_handler
    async def decide(self, original_request: str, response: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("refunded" if response else "declined")


refunds = WorkflowBuilder(name="refunds", start_executor=Clerk("clerk")).build()
