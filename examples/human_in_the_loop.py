"""A run asks a person, and no process waits for the answer.

    python human_in_the_loop.py

The script starts itself three times as a child process. The first child starts two runs, which ask
for a decision, and exits. The second finds the open requests in the storage, without knowing the
runs, and responds. The third shows the results.
"""

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    Executor,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)


@dataclass
class Expense:
    what: str
    amount: int


@dataclass
class Decision:
    granted: bool
    note: str = ""


class Clerk(Executor):
    @handler
    async def check(self, expense: Expense, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(expense, Decision)

    @response_handler
    async def decide(self, original_request: Expense, response: Decision, ctx: WorkflowContext[None, str]) -> None:
        outcome = "paid" if response.granted else f"refused ({response.note})"
        await ctx.yield_output(f"{original_request.what}: {outcome}")


def build(storage: SQLiteCheckpointStorage) -> Workflow:
    return WorkflowBuilder(name="expenses", start_executor=Clerk("clerk"), checkpoint_storage=storage).build()


async def ask(storage: SQLiteCheckpointStorage) -> None:
    for expense in (Expense("a train ticket", 40), Expense("a boat", 90_000)):
        result = await build(storage).run(expense, run_id=expense.what)
        print(f"  {expense.what}: {len(result.get_request_info_events())} open request")


async def answer(storage: SQLiteCheckpointStorage) -> None:
    for pending in await storage.pending_requests():
        head = await storage.get_latest(run_id=pending.run_id)
        assert head is not None
        expense = head.pending_request_info_events[pending.request_id].data
        print(f"  {pending.executor_id} requests a {pending.response_type} about {expense}")
        # Plain JSON, as a web form would send it.
        response = {"granted": True} if expense.amount < 100 else {"granted": False, "note": "too expensive"}
        await build(storage).run(run_id=pending.run_id, responses={pending.request_id: response})


async def show(storage: SQLiteCheckpointStorage) -> None:
    print(f"  open requests: {len(await storage.pending_requests())}")
    for run_id in ("a train ticket", "a boat"):
        print(f"  {(await build(storage).run(run_id=run_id)).get_outputs()[0]}")


async def main(database: Path) -> None:
    for part in ("ask", "answer", "show"):
        child = await asyncio.create_subprocess_exec(sys.executable, __file__, part, str(database))
        assert await child.wait() == 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"process {os.getpid()}: {sys.argv[1]}")
        asyncio.run({"ask": ask, "answer": answer, "show": show}[sys.argv[1]](SQLiteCheckpointStorage(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(main(Path(directory) / "expenses.db"))
