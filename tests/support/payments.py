"""A small workflow with something of everything that is stored: a question, a step, a fan-out, a fan-in, state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepwell import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.testing import Ledger

AMOUNT = 30
RUN = "invoice"
OUTPUTS = [62]
EFFECTS = [("book", 30), ("mail", 30), ("sum", 62), ("take", 30)]


class Clerk(Executor):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__("clerk")
        self.ledger = ledger

    @handler
    async def take(self, amount: int, ctx: WorkflowContext[int]) -> None:
        self.ledger.do(ctx, "take", amount)
        ctx.set_state("amount", amount)
        await ctx.request_info(f"pay {amount}?", bool, request_id="pay?")

    @response_handler
    async def decided(self, original_request: str, response: bool, ctx: WorkflowContext[int]) -> None:
        async def rate() -> int:
            self.ledger.calls["rate"] += 1
            return 1

        ctx.append_state("rates", await ctx.step("rate", rate))
        await ctx.send_message(ctx.get_state("amount") if response else 0)


def build(ledger: Ledger) -> Workflow:
    @executor(id="book")
    async def book(amount: int, ctx: WorkflowContext[int]) -> None:
        ledger.do(ctx, "book", amount)
        await ctx.send_message(amount + 1)

    @executor(id="mail")
    async def mail(amount: int, ctx: WorkflowContext[int]) -> None:
        ledger.do(ctx, "mail", amount)
        await ctx.send_message(amount + 1)

    @executor(id="sum")
    async def total(amounts: list[int], ctx: WorkflowContext[None, int]) -> None:
        ledger.do(ctx, "sum", sum(amounts))
        await ctx.yield_output(sum(amounts))

    clerk = Clerk(ledger)
    return (
        WorkflowBuilder(name="payments", start_executor=clerk)
        .add_fan_out_edges(clerk, [book, mail])
        .add_fan_in_edges([book, mail], total)
        .build()
    )


@dataclass
class Payment:
    """A run that somebody moves on, as often as it takes, on whatever store there is."""

    ledger: Ledger = field(default_factory=Ledger)
    workflow: Workflow = field(init=False)

    def __post_init__(self) -> None:
        self.workflow = build(self.ledger)

    async def drive(self, store: Any, run_id: str = RUN) -> list[Any]:
        """Move it on to its end; its outputs."""
        storage = BuiltInStorage(store)
        begun = await storage.get_latest(run_id=run_id) is not None
        result = await self.workflow.run(*(() if begun else (AMOUNT,)), run_id=run_id, checkpoint_storage=storage)
        if result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            answers = {"pay?": True}
            result = await self.workflow.run(run_id=run_id, responses=answers, checkpoint_storage=storage)
        return result.get_outputs()

    async def wait(self, store: Any, run_id: str = RUN) -> None:
        """Move it on until it waits for an answer."""
        await self.workflow.run(AMOUNT, run_id=run_id, checkpoint_storage=BuiltInStorage(store))
