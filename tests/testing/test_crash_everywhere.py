"""`crash_everywhere` passes what is right, and finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from stepwell import (
    Executor,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import OpenedRun
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Ledger, NotTheSame, crash_everywhere


@dataclass
class Order:
    item: str
    price: int


class Desk(Executor):
    """Asks a person, in a workflow inside the shop."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__("desk")
        self.ledger = ledger

    @handler
    async def ask(self, order: Order, ctx: WorkflowContext[None, str]) -> None:
        self.ledger.do(ctx, "ask", order.item)
        await ctx.request_info(order, bool)

    @response_handler
    async def decided(self, original_request: Order, response: bool, ctx: WorkflowContext[None, Order]) -> None:
        self.ledger.do(ctx, "decide", response)
        await ctx.yield_output(Order(original_request.item, original_request.price + 1))


def shop(ledger: Ledger, *, careless: bool = False) -> Workflow:
    """Everything that can be interrupted: a fan-out, a question on another floor, steps, a retry, a night's sleep."""
    failures: dict[str, int] = {}

    class Price(Executor):
        @handler(retry=RetryPolicy(initial_interval=0))
        async def price(self, order: Order, ctx: WorkflowContext[int]) -> None:
            failures[ctx.idempotency_key] = failures.get(ctx.idempotency_key, 0) + 1
            if failures[ctx.idempotency_key] == 1:
                raise ConnectionError("not at the first attempt")
            ledger.do(ctx, "price", order.price)
            await ctx.send_message(order.price)

    @executor(id="stock")
    async def stock(order: Order, ctx: WorkflowContext[int]) -> None:
        async def count(n: int) -> int:
            ledger.calls["count"] += 1
            return n

        found = [await ctx.step("count", count, n) for n in range(2)]
        await ctx.sleep(timedelta(hours=8))
        ctx.append_state("log", "stock")
        await ctx.send_message(sum(found))

    @executor(id="pack")
    async def pack(numbers: list[int], ctx: WorkflowContext[None, int]) -> None:
        ledger.do(ctx, "pack", sum(numbers))
        if careless:
            ctx.set_state("calls", ledger.calls["pack"])  # what is kept depends on how often it ran
        await ctx.yield_output(sum(numbers))

    @executor(id="split")
    async def split(order: Order, ctx: WorkflowContext[Order]) -> None:
        await ctx.send_message(order)

    desk = WorkflowExecutor(WorkflowBuilder(name="desk", start_executor=Desk(ledger)).build(), "front")
    price = Price("price")
    return (
        WorkflowBuilder(name="shop", start_executor=desk)
        .add_edge(desk, split)
        .add_fan_out_edges(split, [price, stock])
        .add_fan_in_edges([price, stock], pack)
        .build()
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
async def test_a_workflow_with_everything_in_it_comes_to_the_same_wherever_it_dies(kind: str, tmp_path: Path) -> None:
    made: list[Any] = []

    def store() -> Any:
        made.append(None)
        place = tmp_path / str(len(made))
        stores: dict[str, Callable[[], Any]] = {
            "memory": MemoryStore,
            "sqlite": lambda: SQLiteStore(place),
            "file": lambda: FileStore(place),
        }
        return stores[kind]()

    ledger = Ledger()
    report = await crash_everywhere(shop(ledger), Order("cup", 3), answer=lambda _: True, ledger=ledger, store=store)
    assert report.writes > 15
    assert report.crashes >= 2 * report.writes
    assert ledger.effects == [("ask", "cup"), ("decide", True), ("pack", 5), ("price", 4)]


@pytest.mark.long
async def test_what_depends_on_how_often_it_ran_is_found() -> None:
    ledger = Ledger()
    with pytest.raises(NotTheSame, match=r"when the run crashed .* write \d+ of \d+, the result differs: state"):
        await crash_everywhere(shop(ledger, careless=True), Order("cup", 3), answer=lambda _: True, ledger=ledger)


class Forgetful(MemoryStore):
    """Says that it remembers, and does not."""

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        return changed(await super().open(run_id, owner=owner, seconds=seconds), log=())


async def test_a_store_that_forgets_what_was_durable_is_found() -> None:
    ledger = Ledger()
    with pytest.raises(NotTheSame, match="repeated what was durable"):
        await crash_everywhere(shop(ledger), Order("cup", 3), answer=lambda _: True, ledger=ledger, store=Forgetful)


async def test_a_run_that_nobody_answers_is_compared_where_it_waits() -> None:
    report = await crash_everywhere(shop(Ledger()), Order("cup", 3))
    assert report.writes > 2
