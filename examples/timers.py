"""A run is killed while it sleeps, and then sleeps only the remaining time; another is parked for three days.

    python timers.py

The script starts itself three times as a child process, and kills the first one as soon as it sleeps.
"""

import asyncio
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stepwell import SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.workflows import status_word


@executor(id="fill")
async def fill(drink: str, ctx: WorkflowContext[str]) -> None:
    print(f"  the pot is filled for {drink}", flush=True)
    await ctx.send_message(drink)


@executor(id="brew")
async def brew(drink: str, ctx: WorkflowContext[None, str]) -> None:
    print(f"  {drink}: waiting", flush=True)  # code before a sleep runs again after a resume
    await ctx.sleep(2)
    await ctx.yield_output(f"{drink} is ready")


@executor(id="remind")
async def remind(name: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.sleep(timedelta(days=3))
    await ctx.yield_output(f"{name}, your book is due")


def kitchen(storage: SQLiteCheckpointStorage) -> Workflow:
    builder = WorkflowBuilder(name="kitchen", start_executor=fill, checkpoint_storage=storage)
    return builder.add_edge(fill, brew).build()


def library(storage: SQLiteCheckpointStorage) -> Workflow:
    return WorkflowBuilder(name="library", start_executor=remind, checkpoint_storage=storage).build()


async def tea(storage: SQLiteCheckpointStorage) -> None:
    """Start the run, or resume it: it is the same call."""
    result = await kitchen(storage).run("tea", run_id="tea")
    print(f"  {result.get_outputs()[0]}", flush=True)


async def book(storage: SQLiteCheckpointStorage) -> None:
    """Park a run: `run` returns at once, and the storage knows when the run is due."""
    result = await library(storage).run("Ada", run_id="ada")
    print(f"  the run is {status_word(result.get_final_state(), wake=result.wakes_at)}")
    print(f"  due now: {[due.run_id for due in await storage.ready_runs()]}")
    later = datetime.now(UTC) + timedelta(days=4)
    # A scheduler would call `await library(storage).run(run_id=due.run_id)` for each of them.
    for due in await storage.ready_runs(by=later):
        print(f"  due in four days: {due.run_id} of {due.workflow_name}")


async def main(database: Path) -> None:
    for number, part in enumerate(("tea", "tea", "book")):
        print(f"process {number + 1}:", flush=True)
        command = (sys.executable, __file__, part, str(database))
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert child.stdout is not None
        async for line in child.stdout:
            print(line.decode(), end="", flush=True)
            if number == 0 and b"waiting" in line:
                child.kill()
                print("  killed", flush=True)
        await child.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run({"tea": tea, "book": book}[sys.argv[1]](SQLiteCheckpointStorage(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(main(Path(directory) / "runs.db"))
