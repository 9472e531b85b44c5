"""A handle refers to a run by its id: in the program that started it, and in another one that takes over.

    python handles.py

The first program starts a run and is killed in the middle of it. The second one, this script, attaches
to the run, reads its events and resumes it. Then it sends the run more input, cancels it, resumes it,
and restores an earlier checkpoint.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from stepwell import SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.workflows import RunHandle, status_word

reached = asyncio.Event()
rocks = {"first": 3, "again": 0}  # the depth at which each program stops


def build(storage: SQLiteCheckpointStorage, rock: int) -> Workflow:
    @executor
    async def dig(depth: int, ctx: WorkflowContext[int, str]) -> None:
        print(f"    digs at {depth} m", flush=True)
        if depth == rock:
            os.kill(os.getpid(), 9)
        if depth == rocks["again"]:
            reached.set()
            try:
                await asyncio.Event().wait()  # until it is cancelled
            finally:
                print("    puts the spade away")
        await ctx.yield_output(f"{depth} m")
        if depth % 5:
            await ctx.send_message(depth + 1)

    return WorkflowBuilder(name="digging", start_executor=dig, checkpoint_storage=storage).add_edge(dig, dig).build()


async def first_program(storage: SQLiteCheckpointStorage) -> None:
    await build(storage, rocks["first"]).start(1, run_id="well").result()


async def second_program(storage: SQLiteCheckpointStorage, child: asyncio.subprocess.Process) -> None:
    await child.wait()
    workflow = build(storage, 0)
    handle = workflow.attach("well", drive=True)
    left = await storage.get_run("well")
    assert left is not None
    print(f"the first program exited with {child.returncode}; the run it left is {left.standing}")
    async for event in handle.events():
        if event.type == "output":
            print(f"  output: {event.data}{' (from the history)' if event.replayed else ''}")

    print("more input:")
    await handle.send(9)
    print(f"  {(await handle.result()).get_outputs()[-2:]}")

    print("cancelled:")
    rocks["again"] = 15
    await handle.send(14)
    await reached.wait()
    print(f"  {status_word(await workflow.attach('well', drive=True).cancel())}")

    print("resumed, with nothing done twice:")
    rocks["again"] = 0
    print(f"  {(await workflow.run(run_id='well')).get_outputs()[-2:]}")
    await move_back(handle)


async def move_back(handle: RunHandle) -> None:
    third = (await handle.checkpoints())[3]
    print(f"restored to commit {third.number}:")
    await handle.restore(third)
    print(f"  all outputs now: {(await handle.result()).get_outputs()}")


async def main(database: Path) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, __file__, str(database))
    await second_program(SQLiteCheckpointStorage(database), child)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(first_program(SQLiteCheckpointStorage(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(main(Path(directory) / "wells.db"))
