"""The run that is recorded, and gone on with after each power failure: rounds of work with steps and questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, executor, handler, response_handler

RUN, ROUNDS, BRANCHES = "r", 2, 4
OUTPUTS = ["9 by person 0", "18 by person 1"]
STATE = {"round": 1, "log": [f"{round}/{branch}" for round in range(ROUNDS) for branch in range(BRANCHES)]}


@dataclass
class Round:
    number: int
    total: int


@dataclass
class Part:
    round: Round
    weight: int


@dataclass
class Question:
    text: str
    round: Round


@dataclass
class Approval:
    by: str


FIRST = Round(0, 0)


def answer(question: Question) -> Approval:
    """What the person says, whenever asked."""
    return Approval(f"person {question.round.number}")


@dataclass
class Watch:
    """Who is told what handlers do."""

    stepping: Callable[[str], Any] = lambda name: None  # a step is really done
    stepped: Callable[[str], Any] = lambda name: None  # a handler has the result of a step
    pace: float = 0.0  # seconds between the ends of parallel handlers: what ends later is remembered apart


def build(storage: Any, watch: Watch) -> Workflow:
    @executor(id="split")
    async def split(round: Round, ctx: WorkflowContext[Round]) -> None:
        ctx.set_state("round", round.number)
        await ctx.send_message(round)

    def weigh(round: int, weight: int) -> int:
        watch.stepping(f"weigh {round}")
        return weight

    def branch(number: int) -> Any:
        @executor(id=f"branch-{number}")
        async def work(round: Round, ctx: WorkflowContext[Part]) -> None:
            weight = number
            if number == 0:
                weight = await ctx.step("weigh", weigh, round.number, 3)
                watch.stepped(f"weigh {round.number}")
            await asyncio.sleep(watch.pace * ((number + 1) // 2))  # two of them end together
            ctx.append_state("log", f"{round.number}/{number}")
            await ctx.send_message(Part(round, weight))

        return work

    def sign(round: int, by: str) -> str:
        watch.stepping(f"sign {round}")
        return f"by {by}"

    class Join(Executor):
        @handler
        async def ask(self, parts: list[Part], ctx: WorkflowContext) -> None:
            round = parts[0].round
            total = round.total + sum(part.weight for part in parts)
            await ctx.request_info(Question("good?", Round(round.number, total)), Approval)

        @response_handler
        async def go_on(self, original_request: Question, response: Approval, ctx: WorkflowContext[Round, str]) -> None:
            round = original_request.round
            signed = await ctx.step("sign", sign, round.number, response.by)
            watch.stepped(f"sign {round.number}")
            await ctx.yield_output(f"{round.total} {signed}")
            if round.number + 1 < ROUNDS:
                await ctx.send_message(Round(round.number + 1, round.total))

    branches, join = [branch(number) for number in range(BRANCHES)], Join("join")
    return (
        WorkflowBuilder(name="rounds", start_executor=split, checkpoint_storage=storage)
        .add_fan_out_edges(split, branches)
        .add_fan_in_edges(branches, join)
        .add_edge(join, split)
        .build()
    )
