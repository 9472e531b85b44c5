"""A payment fails twice, the process dies before the next attempt, and a new process continues the count.

    python retry.py

The script starts itself twice as a child process. The bank is a file: it refuses the first two calls,
and books each idempotency key once, however often it is used.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from stepwell import RetryPolicy, SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor

POLICY = RetryPolicy(max_attempts=4, initial_interval=0.2, retry_on=ConnectionError)


class Bank:
    """Down for the first two calls."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def book(self, amount: int, key: str) -> int:
        calls, booked = json.loads(self.file.read_text()) if self.file.exists() else (0, {})
        if calls >= 2:
            booked.setdefault(key, amount)
        self.file.write_text(json.dumps((calls + 1, booked)))
        if calls < 2:
            raise ConnectionError(f"the bank is down (call {calls + 1})")
        return len(booked)


def build(directory: Path) -> Workflow:
    bank = Bank(directory / "bank.json")

    @executor(id="pay", retry=POLICY, timeout=10)
    def pay(amounts: list[int], ctx: WorkflowContext[None, str]) -> None:
        """Pay an amount. Each attempt receives the original message, unaffected by changes of earlier ones."""
        amount = amounts.pop()
        count = bank.book(amount, ctx.idempotency_key)
        ctx.yield_output(f"{amount} paid in {count} booking")

    storage = SQLiteCheckpointStorage(directory / "runs.db")
    return WorkflowBuilder(name="payments", start_executor=pay, checkpoint_storage=storage).build()


async def work(directory: Path, dies: bool) -> None:
    async for event in build(directory).run([300], run_id="invoice 7", stream=True):
        if event.type == "executor_invoked":
            print(f"  attempt {event.attempt} at {event.data}", flush=True)
        elif event.type == "executor_retrying" and event.details is not None:
            print(f"  attempt {event.attempt} failed: {event.details.message}", flush=True)
            if dies and event.attempt == 2:
                print("  the process dies before the next attempt", flush=True)
                os._exit(9)
        elif event.type == "output":
            print(f"  {event.data}", flush=True)


async def main(directory: Path) -> None:
    for name in ("first", "second"):
        print(f"{name} process:", flush=True)
        child = await asyncio.create_subprocess_exec(sys.executable, __file__, name, str(directory))
        await child.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(Path(sys.argv[2]), dies=sys.argv[1] == "first"))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
