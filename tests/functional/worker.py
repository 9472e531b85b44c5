"""A process that drives a durable function and writes down each step that it executes: worker.py DATABASE LEDGER."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from stepwell import RunContext, SQLiteCheckpointStorage, step, workflow

STEPS, BRANCHES = 30, 4


def write_down(line: str) -> None:
    """Append a line in one write: what the kernel has accepted survives the death of the process."""
    handle = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


@step
async def work(number: int, branch: int, idempotency_key: str = "") -> int:
    write_down(f"{number}/{branch} {idempotency_key}")
    await asyncio.sleep(0.002 * branch)
    return number * branch


@workflow
async def errand(steps: int, ctx: RunContext) -> int:
    total = 0
    for number in range(steps):
        total += sum(await asyncio.gather(*(work(number, branch) for branch in range(BRANCHES))))
        await ctx.sleep(0.001)
    return total


async def main() -> None:
    storage = SQLiteCheckpointStorage(Path(sys.argv[1]))
    result = await errand.build(checkpoint_storage=storage).run(STEPS, run_id="errand")
    await storage.close()
    print(result.get_outputs())


if __name__ == "__main__":
    asyncio.run(main())
