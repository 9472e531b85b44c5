"""A process that drives a run of three floors to its end, and writes down what begins on each floor and what is told.

python nested_worker.py sqlite|file PATH [POINT]

At POINT it says so in the ledger and stands still, so that it can be killed there and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell import (
    Executor,
    FileCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
)
from stepwell.testing.store_rules.samples import logged

KIND, PATH = sys.argv[1], Path(sys.argv[2])
POINT = sys.argv[3] if len(sys.argv) > 3 else None
STORAGE = SQLiteCheckpointStorage(PATH / "runs.db") if KIND == "sqlite" else FileCheckpointStorage(PATH / "runs")


def write_down(line: str) -> None:
    """One write to the end of the file: what the kernel has taken survives the death of the process."""
    handle = os.open(PATH / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


async def begin(name: str, ctx: WorkflowContext[Any, Any]) -> None:
    write_down(f"ran {name} {ctx.idempotency_key}")
    if name == POINT:
        await stand_still(name)


async def stand_still(point: str) -> None:
    write_down(f"at {point}")
    await asyncio.Event().wait()


@dataclass
class Shall:
    what: str


@dataclass
class Answer:
    yes: bool


def step(name: str) -> Executor:
    @executor(id=name)
    async def work(text: str, ctx: WorkflowContext[str]) -> None:
        await begin(name, ctx)
        await ctx.send_message(text)

    return work


@executor(id="right")
async def right(text: str, ctx: WorkflowContext[str]) -> None:
    """Begins when what its sibling did is on disk."""
    while not await logged(STORAGE._store, ctx.run_id, ctx.at.place):  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await begin("right", ctx)
    await ctx.send_message(text)


class Join(Executor):
    @handler
    async def join(self, parts: list[str], ctx: WorkflowContext[str]) -> None:
        await begin("join", ctx)
        await ctx.request_info(Shall(parts[0]), Answer)

    @response_handler
    async def said(self, question: Shall, answer: Answer, ctx: WorkflowContext[str]) -> None:
        await begin("said", ctx)
        await ctx.send_message(f"{question.what} {answer.yes}")


class Out(Executor):
    @handler
    async def out(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await begin(self.id, ctx)
        await ctx.yield_output(text)


def cellar() -> Workflow:
    dig, left, join = step("dig"), step("left"), Join("join")
    return (
        WorkflowBuilder(name="cellar", start_executor=dig)
        .add_fan_out_edges(dig, [left, right])
        .add_fan_in_edges([left, right], join)
        .add_edge(join, Out("cellar out"))
        .build()
    )


def house() -> Workflow:
    below = cellar()
    for name, storage in (("ground", None), ("top", STORAGE)):
        enter, sub = step(f"{name} in"), WorkflowExecutor(below, f"under {name}")
        builder = WorkflowBuilder(name=name, start_executor=enter, checkpoint_storage=storage)
        below = builder.add_chain([enter, sub, Out(f"{name} out")]).build()
    return below


async def main() -> None:
    answers: dict[str, Any] = {}
    while True:
        stream = (
            house().run("x", run_id="r", stream=True, nested=True)
            if not answers
            else house().run(run_id="r", responses=answers, stream=True, nested=True)
        )
        async for event in stream:
            if event.type == "executor_completed" and not event.replayed:
                write_down(f"told {event.executor_id} in {event.run_id} {event.commit}")
        result = await stream
        if result.get_final_state() is WorkflowRunState.IDLE:
            write_down(f"output {result.get_outputs()}")
            return
        if POINT == "waiting":
            await stand_still("waiting")
        answers = {event.request_id: {"yes": True} for event in result.get_request_info_events()}


if __name__ == "__main__":
    asyncio.run(main())
