"""How long a process keeps what it drives, and by which clock: real processes, some of whose clocks are wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stepwell import FileCheckpointStorage, InMemoryCheckpointStorage, SQLiteCheckpointStorage
from tests.support.postgres_server import dsn, fresh_schema

PROGRAM = """
import sys, time
real = time.time
time.time = lambda: real() + {ahead}  # before anybody asks: the wall clock of this process is wrong
import asyncio
from stepwell import *

@executor
async def wait(seconds: float, ctx: WorkflowContext[None, str]) -> None:
    print("driving", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await ctx.yield_output("done")

async def main():
    async with {storage} as storage:
        workflow = WorkflowBuilder(name="w", start_executor=wait, checkpoint_storage=storage).build()
        try:
            print((await workflow.run({given}run_id="r")).get_outputs(), flush=True)
        except (RunBusy, CommitConflict) as error:
            print(type(error).__name__, flush=True)

asyncio.run(main())
"""

Making = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def program(kind: str, tmp_path: Path) -> Iterator[Making]:
    """Starts a process that drives one run until it is let go."""
    with ExitStack() as after:
        storages = {
            "sqlite": lambda: f"SQLiteCheckpointStorage({str(tmp_path / 'runs.db')!r}",
            "file": lambda: f"FileCheckpointStorage({str(tmp_path / 'runs')!r}",
            "postgres": lambda: f"PostgresCheckpointStorage({dsn()!r}, schema={after.enter_context(fresh_schema())!r}",
        }
        opening = storages[kind]()

        def start(*, given: str = "", ahead: float = 0, lease: float = 30) -> subprocess.Popen[str]:
            code = PROGRAM.format(ahead=ahead, storage=f"{opening}, lease={lease})", given=given)
            pipe = subprocess.PIPE
            process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
            after.callback(end, process)
            return process

        yield start


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize(("theirs", "ours"), [(0, [3600, -3600]), (-3600, [0])])
def test_a_clock_that_is_an_hour_wrong_takes_no_run_from_a_process_that_is_alive(
    program: Making, theirs: float, ours: list[float]
) -> None:
    driving = program(given="0.0, ", ahead=theirs)
    assert says(driving) == "driving"
    rivals = [program(ahead=ahead) for ahead in ours]
    assert {says(rival) for rival in rivals} == {"RunBusy"}
    assert driving.communicate("\n", timeout=60)[0].strip() == "['done']"


@pytest.mark.parametrize(("kind", "ahead"), [("sqlite", 3600), ("file", 0), ("postgres", 0)])
def test_a_process_that_stands_still_loses_its_run_when_its_lease_ends(program: Making, ahead: float) -> None:
    still = program(given="0.0, ", ahead=ahead, lease=1)
    assert says(still) == "driving"
    still.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    while says(other := program(lease=1)) == "RunBusy":
        assert time.monotonic() - began < 25  # with a lease of 30 seconds it would take longer
    still.send_signal(signal.SIGCONT)
    assert still.communicate("\n", timeout=60)[0].strip() == "CommitConflict"
    assert other.communicate("\n", timeout=60)[0].strip() == "['done']"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_short_lease_is_renewed_often_enough(program: Making) -> None:
    driving = program(given="0.0, ", lease=1)
    assert says(driving) == "driving"
    time.sleep(1.5)  # longer than a lease
    assert says(program(lease=1)) == "RunBusy"
    assert driving.communicate("\n", timeout=60)[0].strip() == "['done']"


@pytest.mark.parametrize("lease", [0, -1, 0.5, float("nan"), float("inf"), "30", None, True])
def test_a_lease_that_cannot_be_is_refused(tmp_path: Path, lease: Any) -> None:
    for make in (
        lambda: InMemoryCheckpointStorage(lease=lease),
        lambda: SQLiteCheckpointStorage(tmp_path / "runs.db", lease=lease),
        lambda: FileCheckpointStorage(tmp_path / "runs", lease=lease),
    ):
        with pytest.raises(ValueError, match="lease must be a number of seconds, at least 1"):
            make()


def test_a_lease_is_written_as_a_time_that_other_machines_understand(tmp_path: Path) -> None:
    from asyncio import run

    from stepwell.storage.lease import this_process

    storage = FileCheckpointStorage(tmp_path / "runs")
    run(storage._store.acquire("r", this_process("mine"), seconds=60))
    (log,) = tmp_path.rglob("*.jsonl")
    _, lease, until = log.read_text().split("\n")[:3]
    assert json.loads(lease)["owner"]["pid"] == os.getpid()
    assert json.loads(until) == pytest.approx(time.time() + 60, abs=5)
    run(storage.close())
