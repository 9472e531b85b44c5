"""A process that drives one run and writes down every handler that begins and every superstep that is told.

python worker.py sqlite|file PATH LEDGER RUN_ID
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    FileCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)

ROUNDS = 24
BRANCHES = 5


@dataclass
class Round:
    number: int
    total: int


@dataclass
class Part:
    round: Round
    branch: int


def write_down(line: str) -> None:
    """One write to the end of the file: what the kernel has taken survives the death of the process."""
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


@executor(id="split")
async def split(round: Round, ctx: WorkflowContext[Round]) -> None:
    write_down(f"ran {round.number} split")
    await ctx.send_message(round)


def branch(number: int):  # type: ignore[no-untyped-def]
    @executor(id=f"branch-{number}")
    async def work(round: Round, ctx: WorkflowContext[Part]) -> None:
        write_down(f"ran {round.number} branch-{number}")
        await asyncio.sleep(0.004 * number)
        ctx.append_state("log", f"{round.number}/{number}")
        await ctx.send_message(Part(round, number))

    return work


@executor(id="join")
async def join(parts: list[Part], ctx: WorkflowContext[Round, str]) -> None:
    round = parts[0].round
    write_down(f"ran {round.number} join")
    total = round.total + sum(part.branch for part in parts)
    if round.number + 1 < ROUNDS:
        await ctx.send_message(Round(round.number + 1, total))
    else:
        await ctx.yield_output(f"{total} after {len(ctx.get_state('log'))} parts")


def build(kind: str, path: Path) -> Workflow:
    storage = SQLiteCheckpointStorage(path / "runs.db") if kind == "sqlite" else FileCheckpointStorage(path / "runs")
    branches = [branch(number) for number in range(BRANCHES)]
    return (
        WorkflowBuilder(start_executor=split, name="rounds", checkpoint_storage=storage)
        .add_fan_out_edges(split, branches)
        .add_fan_in_edges(branches, join)
        .add_edge(join, split)
        .build()
    )


async def main(kind: str, path: str, run_id: str) -> None:
    async for event in build(kind, Path(path)).run(Round(0, 0), run_id=run_id, stream=True):
        if event.type == "superstep_completed":
            write_down(f"told {event.iteration}")
        elif event.type == "output":
            write_down(f"output {event.data}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
