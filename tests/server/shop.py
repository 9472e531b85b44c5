"""A shop whose orders may have to pass a person; as a program, its worker or its server."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from stepwell import (
    Executor,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker


@dataclass
class Order:
    item: str
    amount: int = 1


@dataclass
class Decision:
    granted: bool
    note: str = ""


class Desk(Executor):
    @handler
    async def take(self, order: Order, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("order", order)
        if order.amount > 10:
            raise ValueError(f"{order.amount} are too many")
        if order.amount > 1:
            await ctx.request_info(f"May {order.amount} {order.item} pass?", Decision, request_id="pass")
        else:
            await ctx.yield_output(f"one {order.item}")

    @response_handler
    async def decided(self, question: str, decision: Decision, ctx: WorkflowContext[None, str]) -> None:
        if decision.note == "ask again":
            await ctx.request_info("Once more: may it pass?", Decision, request_id="pass")
            return
        ctx.set_state("granted", decision.granted)
        await ctx.yield_output("passed" if decision.granted else "held")


def make_orders(storage: BuiltInStorage) -> Workflow:
    return WorkflowBuilder(name="orders", start_executor=Desk("desk"), checkpoint_storage=storage).build()


if __name__ == "__main__":
    # Under the name by which it is imported: the stored names of the classes are those of the tests.
    from tests.server import shop

    storage = SQLiteCheckpointStorage("runs.db")
    workflow = shop.make_orders(storage)
    if sys.argv[1] == "work":
        Worker(storage, [workflow]).run()
    else:
        import uvicorn

        from stepwell.server import app

        uvicorn.run(app(storage, [workflow], auth=sys.argv[3]), port=int(sys.argv[2]), log_level="error")
