"""A process is killed: how its run stands is true at once, and stays so until somebody resumes it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor

PROGRAM = """
import asyncio, sys
from stepwell import SQLiteCheckpointStorage
from tests.crash.test_standing import build

asyncio.run(build(SQLiteCheckpointStorage(sys.argv[1])).run(1, run_id="r"))
"""


def build(storage: SQLiteCheckpointStorage, seconds: float = 600) -> Any:
    @executor(id="slow")
    async def slow(number: int, ctx: WorkflowContext[int, int]) -> None:
        print("reached", flush=True)
        await asyncio.sleep(seconds)
        await ctx.yield_output(number)

    return WorkflowBuilder(name="slow", start_executor=slow, checkpoint_storage=storage).build()


@pytest.mark.process
async def test_a_killed_run_is_stalled_at_once_and_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "runs.db")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"reached\n"
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    run = await storage.get_run("r")
    assert run is not None
    assert (run.standing, await storage.ready_runs()) == ("running", [])
    assert run.owner is not None
    assert run.owner.startswith(f"process {process.pid} on ")
    process.kill()
    await process.wait()
    run = await storage.get_run("r")
    assert run is not None
    assert (run.standing, run.since) == ("stalled", run.changed_at)
    assert [each.run_id for each in await storage.ready_runs()] == ["r"]
    assert (await build(storage, 0).run(run_id="r")).get_outputs() == [1]
    assert (await storage.get_run("r")).standing == "completed"  # type: ignore[union-attr]
    await storage.close()
