"""A workflow of the golden stores in two versions. Both stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell import (
    Executor,
    Migration,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    persistent,
    response_handler,
)


@dataclass
class Loan:
    amount: int


class Clerk(Executor):
    seen = persistent(0)

    @handler
    async def look(self, loan: Loan, ctx: WorkflowContext) -> None:
        self.seen += 1
        ctx.set_state("cents", loan.amount * 100)
        await ctx.request_info(loan, bool, request_id="golden loan")

    @response_handler
    async def decided(self, original_request: Loan, response: bool, ctx: WorkflowContext[Loan]) -> None:
        await ctx.send_message(original_request)


def build(storage: Any, clerk: str = "clerk", *, broken: bool = False, **options: Any) -> Workflow:
    @executor(id="pay")
    async def pay(loan: Loan, ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output((loan.amount, ctx.get_state("cents"), ctx.get_state("euros")))

    @executor(id="note")
    async def note(loan: Loan, ctx: WorkflowContext[None, Any]) -> None:
        if broken:
            raise ValueError("no ink")
        await ctx.yield_output("noted")

    first = Clerk(clerk)
    builder = WorkflowBuilder(name="loans", start_executor=first, checkpoint_storage=storage, **options)
    return builder.add_fan_out_edges(first, [pay, note]).build()


SECOND = (
    Migration(2)
    .rename_executor("clerk", "officer")
    .change_state("cents", lambda cents: cents / 100)
    .rename_state("cents", "euros")
)


def build_second(storage: Any, *, broken: bool = False) -> Workflow:
    return build(storage, "officer", broken=broken, migrations=[SECOND])
