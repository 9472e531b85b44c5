"""Real processes, real SIGKILL: nothing told is run again, nothing is lost, every run ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLS, ROUNDS = 12, 24
WORKER = Path(__file__).with_name("worker.py")
SUPERSTEP = {"split": 0, **{f"branch-{n}": 1 for n in range(5)}, "join": 2}


def superstep_of(line: list[str]) -> int:
    """Which superstep of the run a handler belongs to: three in each round, counted from one."""
    return int(line[1]) * 3 + SUPERSTEP[line[2]] + 1


def live(kind: str, path: Path, ledger: Path, lines: int | None) -> int:
    """One life of the worker, killed once it has written down so many lines more."""
    before = ledger.stat().st_size if ledger.exists() else 0
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), kind, str(path), "run-1"], env={**os.environ, "LEDGER": str(ledger)}
    )
    while lines is not None and worker.poll() is None:
        if ledger.exists() and ledger.read_bytes()[before:].count(b"\n") >= lines:
            worker.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    return worker.wait(timeout=60)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_run_that_is_killed_again_and_again_ends_and_repeats_nothing_that_was_told(kind: str, tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance, ledger = random.Random(seed), tmp_path / "ledger"
    kills = 0
    while (code := live(kind, tmp_path, ledger, chance.randint(1, 14) if kills < KILLS else None)) != 0:
        assert code == -signal.SIGKILL, f"the worker failed by itself with exit code {code}"
        kills += 1
    lines = [line.split(maxsplit=2) for line in ledger.read_text().splitlines()]

    told = 0
    ran: dict[tuple[str, str], int] = {}
    for line in lines:
        if line[0] == "told":
            told = max(told, int(line[1]))
        elif line[0] == "ran":
            assert superstep_of(line) > told, f"{line} ran after superstep {told} had been told, seed {seed}"
            ran[line[1], line[2]] = ran.get((line[1], line[2]), 0) + 1
    assert kills == KILLS
    assert len(ran) == ROUNDS * 7, "every handler of every round ran"
    repeated = sum(times - 1 for times in ran.values())
    assert repeated <= kills * 5, f"{repeated} repeated by {kills} kills: only what was cut off may run again"
    assert f"output {ROUNDS * (0 + 1 + 2 + 3 + 4)} after {ROUNDS * 5} parts" in ledger.read_text()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_siblings_that_had_returned_are_not_run_again(kind: str, tmp_path: Path) -> None:
    """Killed in the middle of a fan-out: only the branch that was cut off runs a second time."""
    script = tmp_path / "fan_out.py"
    script.write_text(FAN_OUT)
    ledger = tmp_path / "ledger"
    command = [sys.executable, str(script), kind, str(tmp_path), str(ledger)]
    first = subprocess.Popen([*command, "hang"])
    deadline = time.monotonic() + 20
    while not ledger.exists() or ledger.read_text().count("returned") < 9:
        assert time.monotonic() < deadline, "the branches never returned"
        time.sleep(0.01)
    time.sleep(0.3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    subprocess.run([*command, "finish"], check=True)
    began = [line.split()[1] for line in ledger.read_text().splitlines() if line.startswith("began")]
    assert sorted(began) == sorted([f"b{n}" for n in range(10)] + ["b9"])
    assert "output 45" in ledger.read_text()


FAN_OUT = """
import asyncio, sys
from pathlib import Path
from stepwell import FileCheckpointStorage, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor

kind, path, ledger, mode = sys.argv[1:]

def note(line):
    with open(ledger, "a") as book:
        book.write(line + "\\n")

@executor(id="start")
async def start(n: int, ctx: WorkflowContext[int]) -> None:
    await ctx.send_message(n)

def branch(number):
    @executor(id=f"b{number}")
    async def work(n: int, ctx: WorkflowContext[int]) -> None:
        note(f"began b{number}")
        if number == 9 and mode == "hang":
            await asyncio.sleep(60)
        await ctx.send_message(number)
        note(f"returned b{number}")
    return work

@executor(id="join")
async def join(found: list[int], ctx: WorkflowContext[int, int]) -> None:
    await ctx.yield_output(sum(found))

kinds = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}
storage = kinds[kind](Path(path) / "runs")
branches = [branch(n) for n in range(10)]
workflow = (
    WorkflowBuilder(start_executor=start, name="ten", checkpoint_storage=storage)
    .add_fan_out_edges(start, branches).add_fan_in_edges(branches, join).build()
)
result = workflow.run_sync(1, run_id="r")
note(f"output {result.get_outputs()[0]}")
"""
