"""Workflows of the golden stores: runs inside runs, timers, runs that are moved back. They stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

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
    timer_handler,
)

NEXT_CENTURY = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass
class Offer:
    price: int


@dataclass
class Deal:
    done: bool


class Seller(Executor):
    @handler
    async def offer(self, price: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"offered for {price}")
        await ctx.request_info(Offer(price), Deal, request_id=f"deal {price}")

    @response_handler
    async def decided(self, original_request: Offer, response: Deal, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{'sold' if response.done else 'kept'} for {original_request.price}")


def build_nested(storage: Any) -> Workflow:
    """A question from two floors down."""
    deep = WorkflowBuilder(name="selling", start_executor=Seller("seller")).build()
    middle = WorkflowExecutor(deep, "deep", allow_direct_output=True)
    market = WorkflowBuilder(name="market", start_executor=middle).build()

    @executor(id="clerk")
    async def clerk(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"clerk: {text}")

    inner = WorkflowExecutor(market, "market")
    builder = WorkflowBuilder(name="nested", start_executor=inner, checkpoint_storage=storage)
    return builder.add_edge(inner, clerk).build()


class Sleeper(Executor):
    """Fails once, then sleeps until the next century."""

    def __init__(self, id: str, *, broken: bool) -> None:
        super().__init__(id, retry=RetryPolicy(max_attempts=3, initial_interval=0))
        self.failures = [True] if broken else []

    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if self.failures:
            self.failures.pop()
            raise ValueError("not yet")
        await ctx.sleep_until(NEXT_CENTURY)
        await ctx.yield_output(f"{text}, at last")


def build_sleeping(storage: Any, *, broken: bool) -> Workflow:
    sleeper = Sleeper("sleeper", broken=broken)

    @executor(id="sibling")
    async def sibling(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{text}, at once")

    @executor(id="begin")
    async def begin(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    builder = WorkflowBuilder(name="sleeping", start_executor=begin, checkpoint_storage=storage)
    return builder.add_fan_out_edges(begin, [sibling, sleeper]).build()


def build_counting(storage: Any) -> Workflow:
    """Counts what it was sent; for runs that are sent to, stopped and moved back."""

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[None, int]) -> None:
        total = ctx.get_state("total", 0) + number
        ctx.set_state("total", total)
        await ctx.yield_output(total)

    return WorkflowBuilder(name="counting", start_executor=count, checkpoint_storage=storage).build()


class Desk(Executor):
    """Sets two timers of many years."""

    @handler
    async def open(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_timer("remind", timedelta(days=36_500))
        ctx.set_timer("give up", timedelta(days=40_000))
        await ctx.send_message(text)

    @timer_handler("remind", "give up")
    async def ring(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"time to {name}")


class Judge(Executor):
    """Asks twice; the work between the questions is a step."""

    @handler
    async def judge(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        first = await ctx.ask(f"is {text} good?", bool, request_id="first question")
        price = await ctx.step("weigh", len, text)
        second = await ctx.ask(Offer(price), Deal, request_id="second question", deadline=NEXT_CENTURY)
        await ctx.yield_output(f"{text}: {first}, {second.done}")


def build_judging(storage: Any) -> Workflow:
    """Timers that are set, and a handler that waits for its second answer."""
    desk, judge = Desk("desk"), Judge("judge")
    return (
        WorkflowBuilder(name="judging", start_executor=desk, checkpoint_storage=storage).add_edge(desk, judge).build()
    )
