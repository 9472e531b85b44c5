"""A process stops in the middle of a workflow; another one finds the files and resumes.

    python file_storage_restart.py [directory]

The script starts itself twice as a child process. The first child exits in the middle of the third
parcel, without any cleanup. The second asks the storage for the newest checkpoint.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from stepwell import Executor, FileCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler, persistent


class Loader(Executor):
    loaded: persistent[list[str]] = persistent([])

    @handler
    async def load(self, parcels: list[str], ctx: WorkflowContext[list[str], list[str]]) -> None:
        first, *rest = parcels
        if first == "lamp" and ctx.private["stop_at_lamp"]:
            print(f"  process {os.getpid()} stops now, holding the {first}", flush=True)
            os._exit(9)
        self.loaded.append(first)
        print(f"  process {os.getpid()} loaded the {first}", flush=True)
        if rest:
            await ctx.send_message(rest)
        else:
            await ctx.yield_output(self.loaded)


def build(directory: Path) -> Workflow:
    builder = WorkflowBuilder(
        name="loading", start_executor=Loader, checkpoint_storage=FileCheckpointStorage(directory)
    )
    return builder.add_edge(Loader, Loader).build()


async def work(directory: Path) -> None:
    """Resume from the newest checkpoint, or start if there is none; runs in each child."""
    workflow = build(directory)
    latest = await FileCheckpointStorage(directory).get_latest(workflow_name="loading")
    if latest is None:
        await workflow.run(["table", "chair", "lamp", "carpet"], private={"stop_at_lamp": True})
    else:
        print(f"  process {os.getpid()} resumes after superstep {latest.iteration_count}", flush=True)
        result = await workflow.run(checkpoint_id=latest.checkpoint_id, private={"stop_at_lamp": False})
        print(f"  output: {result.get_outputs()}", flush=True)


async def main(directory: Path) -> None:
    for attempt in ("first", "second"):
        print(f"{attempt} process:", flush=True)
        child = await asyncio.create_subprocess_exec(sys.executable, __file__, "--work", str(directory))
        print(f"  exit code {await child.wait()}")
    (file,) = directory.rglob("*.jsonl")
    commits = [line for line in file.read_text().splitlines() if line.startswith('{"line":"commit"')]
    print(f"one file for the run, with a line for each commit: {len(commits)} of them")


if __name__ == "__main__":
    if "--work" in sys.argv:
        asyncio.run(work(Path(sys.argv[2])))
    elif len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
