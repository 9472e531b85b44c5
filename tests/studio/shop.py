"""Workflows for the tests of the page. Run as a program, it starts a run and dies in the middle of it."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Literal

from stepwell import (
    AgentExecutor,
    Executor,
    RetryPolicy,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
)
from stepwell.agents import Calls, Fails, Message, ScriptedAgent
from stepwell.orchestrations import MagenticBuilder

CRASHED = Path("crashed")


@dataclass
class Address:
    """Where the parcel goes."""

    street: str
    floor: int | None = None


@dataclass
class Slot:
    day: date
    size: Literal["small", "large"]


@dataclass
class Answers:
    """Everything that a form can ask."""

    name: str
    first_day: date
    address: Address
    slots: list[Slot]
    colour: Literal["red", "green", "blue", "black", "white"]
    contact: Address | str
    insured: bool
    labels: dict[str, int] = field(default_factory=dict)
    note: str | None = None
    express: bool = False


@executor(id="form")
async def form(question: str, ctx: WorkflowContext[None, str]) -> None:
    answers = await ctx.ask(question, Answers, deadline=timedelta(hours=30))
    await ctx.yield_output(f"{answers.name} {answers.first_day} {answers.slots} {answers.contact} {answers.labels}")


survey = WorkflowBuilder(name="survey", start_executor=form).build()


@executor(id="inspect")
async def inspect(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text)


@executor(id="weigh")
async def weigh(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(await ctx.ask(f"How heavy is {text}?", str))


@executor(id="ship")
async def ship(weight: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"shipped {weight}")


_check = WorkflowBuilder(name="checking", start_executor=inspect).add_edge(inspect, weigh).build()
_checking = WorkflowExecutor(_check, "checking")
parcel = WorkflowBuilder(name="parcel", start_executor=_checking).add_edge(_checking, ship).build()


class Flaky(Executor):
    """Fails twice."""

    tries = 0

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        Flaky.tries += 1
        if Flaky.tries < 3:
            raise ConnectionError("no connection")
        await ctx.yield_output(text)


_retry = RetryPolicy(max_attempts=3, initial_interval=0.05)
flaky = WorkflowBuilder(name="flaky", start_executor=Flaky("flaky", retry=_retry)).build()


@executor(id="first")
async def first(text: str, ctx: WorkflowContext[str]) -> None:
    await asyncio.sleep(2)  # so that somebody watches when the agent begins
    await ctx.send_message(text)


_clerk = ScriptedAgent("clerk", [Fails(ConnectionError("gone"), after="half a sent"), "all of it"], tokens_per_word=2)
_writer = AgentExecutor(
    _clerk, retry=RetryPolicy(max_attempts=2, initial_interval=2), price=lambda usage: usage.output_tokens * 0.5
)
writing = WorkflowBuilder(name="writing", start_executor=first).add_edge(first, _writer).build()


@executor(id="<img src=x onerror=alert(1)>")
async def echo(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(await ctx.ask(text, str))


hostile = WorkflowBuilder(name="<script>alert(2)</script>", start_executor=echo).build()


@executor(id="pack")
async def pack(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.step("wrap", _wrap, text)
    if not CRASHED.exists():
        CRASHED.touch()
        await asyncio.sleep(0.3)
        os._exit(9)
    await ctx.send_message(await ctx.step("tape", _wrap, text))


async def _wrap(text: str) -> str:
    await asyncio.sleep(0.1)
    return f"({text})"


def _describe(messages: list[Message]) -> str | Calls:
    if messages[-1].role == "tool":
        return "done"
    return Calls(("label", {"text": "fragile"}))


_labeller = AgentExecutor(ScriptedAgent("labeller", _describe, tools={"label": lambda text: text}))
crashing = WorkflowBuilder(name="crashing", start_executor=pack).add_edge(pack, _labeller).build()


def _progress(is_done: bool) -> str:
    facts = {"is_request_satisfied": is_done, "is_in_loop": False, "is_progress_being_made": True}
    following = {"next_speaker": "researcher", "instruction_or_question": "How many?"}
    return json.dumps({key: {"reason": "", "answer": answer} for key, answer in {**facts, **following}.items()})


def _manage(messages: list[Message]) -> str:
    prompt = messages[-1].text
    if "Write the answer" in prompt:
        return "512 lamps."
    if "JSON" in prompt:
        return _progress(any(message.author_name == "researcher" for message in messages))
    return "The researcher counts twice." if any("twice" in message.text for message in messages) else "Count."


team = MagenticBuilder(
    participants=[ScriptedAgent("researcher", lambda messages: "512 lamps.", description="finds things out")],
    manager_agent=ScriptedAgent("manager", _manage),
    max_round_count=20,
    enable_plan_review=True,
    name="team",
).build()


@executor(id="questionnaire")
async def questionnaire(question: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(await ctx.ask(question, str))


if __name__ == "__main__":
    storage = SQLiteCheckpointStorage("runs.db")
    # Of an earlier version of the survey, whose executor had another name.
    earlier = WorkflowBuilder(name="survey", start_executor=questionnaire, checkpoint_storage=storage).build()
    asyncio.run(earlier.run("Who moved out?", run_id="survey-old"))
    died = WorkflowBuilder(name="crashing", start_executor=pack, checkpoint_storage=storage).add_edge(pack, _labeller)
    asyncio.run(died.build().run("box", run_id="crashed-1"))
