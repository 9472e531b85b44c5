"""A handler's outcome is durable as soon as it returns, also if the commit is held up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from stepwell import FileCheckpointStorage, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor

mode, kind, path = sys.argv[1], sys.argv[2], Path(sys.argv[3])
storage = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}[kind](path / "runs")
first_life = not (path / "died").exists()

async def die_slowly():
    (path / "died").touch()
    while not (await storage._store.open("r")).log:  # the outcome of `pay` does not wait for the delayed commit
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), 9)

@executor(id="pay")
async def pay(amount: int, ctx: WorkflowContext[int]) -> None:
    with (path / "paid").open("a") as book:
        book.write("x")
    await ctx.send_message(amount)

@executor(id="end")
async def end(amount: int, ctx: WorkflowContext[None, int]) -> None:
    await ctx.yield_output(amount)

async def ask_a_model(amount):
    if first_life:
        await die_slowly()
    return True

async def main():
    condition = ask_a_model if mode == "condition" else None
    builder = WorkflowBuilder(name="pay", start_executor=pay, checkpoint_storage=storage)
    workflow = builder.add_edge(pay, end, condition).build()
    if mode == "reader" and first_life:
        async for event in workflow.run(5, run_id="r", stream=True):
            if event.type == "executor_invoked":
                await die_slowly()
    print((await workflow.run(5, run_id="r")).get_outputs())

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("mode", ["condition", "reader"])
def test_what_returned_is_not_run_again_though_its_commit_was_held_up(mode: str, kind: str, tmp_path: Path) -> None:
    """A condition that asks a model takes its time, and so may whoever reads the stream."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), mode, kind, str(tmp_path)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.stdout.strip() == "[5]", second.stderr
    assert (tmp_path / "paid").read_text() == "x"


FORK = """
import os, signal, time
from stepwell import WorkflowBuilder, WorkflowContext, executor

@executor(id="plain")
def plain(n: int, ctx: WorkflowContext[None, int]) -> None:
    ctx.yield_output(n)

workflow = WorkflowBuilder(start_executor=plain).build()
assert workflow.run_sync(1).get_outputs() == [1]
pid = os.fork()
if pid == 0:
    os._exit(0 if workflow.run_sync(2).get_outputs() == [2] else 1)
deadline = time.monotonic() + 100
while time.monotonic() < deadline:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        raise SystemExit(os.waitstatus_to_exitcode(status))
    time.sleep(0.02)
os.kill(pid, signal.SIGKILL)
raise SystemExit("the child hangs")
"""


def test_plain_functions_run_in_a_forked_child_too() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
