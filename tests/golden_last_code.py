"""What a program with the code of the last format does to a store: run with that code, never with the present one.

`python golden_last_code.py KIND PATH begin|answer|count`; `count` waits for a line on its input before each superstep.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import holdfast
from golden_later import build_nested
from golden_workflow import build_asking
from holdfast import (
    FileCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)

LAST = 6


def build_counting(storage: Any, before: Any) -> Workflow:
    """Counts up to the last number, one superstep each; `before` is called first in each."""

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        await before(number)
        ctx.append_state("numbers", number)
        await ctx.yield_output(number)
        if number < LAST:
            await ctx.send_message(number + 1)

    builder = WorkflowBuilder(name="slow counting", start_executor=count, checkpoint_storage=storage)
    return builder.add_edge(count, count).build()


async def wait_for_line(number: int) -> None:
    print("at", number, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def main(kind: str, path: str, what: str) -> None:
    storage = SQLiteCheckpointStorage(path) if kind == "sqlite" else FileCheckpointStorage(path)
    match what:
        case "begin":
            await build_asking(storage).run("gold", run_id="waiting")
            await build_nested(storage).run(3, run_id="nested")
        case "answer":
            responses = {"golden question": {"good": True}}
            print((await build_asking(storage).run(run_id="waiting", responses=responses)).get_outputs())
        case "count":
            print((await build_counting(storage, wait_for_line).run(1, run_id="counting")).get_outputs())
    await storage.close()


if __name__ == "__main__":
    assert ".zip" in str(Path(holdfast.__file__ or "")), "this is the present code"
    asyncio.run(main(*sys.argv[1:]))
