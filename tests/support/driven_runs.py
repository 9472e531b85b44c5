"""Workflows that the tests of the command line drive. What they do and wait for is in the working directory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, executor, handler, response_handler

if TYPE_CHECKING:
    from stepwell.declarative import AgentWorkflow

DONE, REACHED, GATE, READY = "done.txt", "reached", "gate", "ready"


@dataclass
class Order:
    item: str
    price: int


@executor(id="count")
async def count(number: int, ctx: WorkflowContext[int, str]) -> None:
    """Each number is written down once. At 3 it stays for ever while there is a gate."""
    if number == 3 and Path(GATE).exists():
        Path(REACHED).touch()
        await asyncio.sleep(3600)
    with Path(DONE).open("a") as written:
        written.write(f"{number}\n")
    if number < 5:
        await ctx.send_message(number + 1)
    else:
        await ctx.yield_output(f"counted\nto {number}")


counting = WorkflowBuilder(name="counting", start_executor=count).add_edge(count, count).build()


class Desk(Executor):
    @handler
    async def order(self, order: Order, ctx: WorkflowContext[None, Order]) -> None:
        print("an order came in")  # no data of the command
        ctx.set_state("order", order)
        if order.price > 100:
            await ctx.request_info(order, bool, request_id=f"approve-{order.item}")
        else:
            await ctx.yield_output(order)

    @response_handler
    async def decided(self, original_request: Order, response: bool, ctx: WorkflowContext[None, Order]) -> None:
        await ctx.yield_output(original_request)


orders = WorkflowBuilder(name="orders", start_executor=Desk("desk"))


async def orders_later() -> WorkflowBuilder:
    return orders


@executor(id="check")
async def check(text: str, ctx: WorkflowContext[str, str]) -> None:
    await ctx.yield_output(f"checked {text}")
    await ctx.send_message(text)


@executor(id="send")
async def send(text: str, ctx: WorkflowContext[None, str]) -> None:
    """Fails until it is ready."""
    if not Path(READY).exists():
        raise ValueError("no stamps")
    await ctx.yield_output(f"sent {text}")


letters = WorkflowBuilder(name="letters", start_executor=check).add_edge(check, send).build()


@executor(id="nap")
async def nap(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.sleep(timedelta(hours=1))
    await ctx.yield_output(text)


sleeping = WorkflowBuilder(name="sleeping", start_executor=nap).build()


@executor
async def charge_now(text: str, ctx: WorkflowContext[None, str]) -> None:
    """Charges an amount that somebody changes meanwhile; fails without stamps."""

    async def charge(amount: str) -> str:
        return f"charged {amount}"

    receipt = await ctx.step("charge", charge, Path("amount.txt").read_text())
    if not Path(READY).exists():
        raise ValueError("no stamps")
    await ctx.yield_output(receipt)


charging = WorkflowBuilder(name="charging", start_executor=charge_now).build()


@executor(id="quit")
async def quit_here(text: str, ctx: WorkflowContext[None, str]) -> None:
    raise SystemExit(0)


quitting = WorkflowBuilder(name="quitting", start_executor=quit_here).build()


def poets() -> AgentWorkflow:
    from stepwell.agents import ScriptedAgent
    from stepwell.declarative import AgentWorkflow

    poet = ScriptedAgent("poet", lambda messages: f"An ode to {messages[-1].text}")
    return AgentWorkflow.create().with_name("poets").add_agent("poet", poet)


def another_shape() -> Workflow:
    """Not the graph of `letters`."""
    return WorkflowBuilder(name="letters", start_executor=check).build()


@executor(id="deal")
async def deal(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text)


@executor(id="quick")
async def quick(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.step("look", str.upper, text)
    await ctx.yield_output(f"quick {text}")


@executor(id="slow")
async def slow(text: str, ctx: WorkflowContext[None, str]) -> None:
    """Works as long as there is a gate."""
    while Path(GATE).exists():
        Path(REACHED).touch()
        await asyncio.sleep(0.01)
    await ctx.yield_output(f"slow {text}")


dealing = WorkflowBuilder(name="dealing", start_executor=deal).add_fan_out_edges(deal, [quick, slow]).build()


def clerks() -> Workflow:
    """An agent whose tool works once it is ready, and that must ask before it refunds anything."""
    from stepwell.agents import AgentExecutor, Budget
    from stepwell.agents.scripted import Calls, ScriptedAgent

    def look_up(order: int) -> str:
        if not Path(READY).exists():
            raise ConnectionError("the order system is down")
        return "900 for a samovar"

    clerk = ScriptedAgent("clerk", [Calls(("look_up", {"order": 7})), "it costs 900"], tools={"look_up": look_up})
    budget = Budget(calls=1) if Path("poor").exists() else None
    return WorkflowBuilder(name="clerks", start_executor=AgentExecutor(clerk, budget=budget)).build()
