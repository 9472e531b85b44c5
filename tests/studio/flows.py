"""Workflows that a test holds up and lets go on, by files in the folder of the worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stepwell import AgentExecutor, WorkflowBuilder, WorkflowContext, executor
from stepwell.agents import Answer, Message, ModelReply, Turn

PIECES, FIRST = 12_000, 2_000


async def wait_for(name: str) -> None:
    while not Path(name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.05)


class Talker:
    """Streams its answer in pieces once the file `seen` is there, waits for `more`, and for `enough` before it ends."""

    name = "talker"
    description = "talks"

    async def take_turn(self, turn: Turn) -> Answer:
        async def speak() -> ModelReply:
            while not Path("seen").exists():  # what nobody watches is not sent
                turn.delta("hello? ")
                await asyncio.sleep(0.1)
            for number in range(PIECES):
                turn.delta(f"piece-{number} ")
                if number == FIRST:
                    await wait_for("more")
                elif number % 100 == 0:
                    await asyncio.sleep(0.02)
            await wait_for("enough")
            return ModelReply(None, "that is all")

        reply = await turn.model(speak)
        return Answer([Message("assistant", reply.text)])


talking = WorkflowBuilder(name="talking", start_executor=AgentExecutor(Talker())).build()


@executor(id="fetch")
async def fetch(order: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(order)


@executor(id="deliver")
async def deliver(order: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.step("look", asyncio.sleep, 0.1)
    await wait_for("arrived")
    await ctx.yield_output(f"{order} arrived")


delivering = WorkflowBuilder(name="delivering", start_executor=fetch).add_edge(fetch, deliver).build()


@executor(id="count")
async def count(number: int, ctx: WorkflowContext[None, int]) -> None:
    await ctx.yield_output(number)


counting = WorkflowBuilder(name="counting", start_executor=count).build()
