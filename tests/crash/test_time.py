"""Killed in a back-off and in a sleep: the count goes on, the rest is waited for, what was done is not repeated."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.store import FileCheckpointStorage
from stepwell.stores.sqlite.store import SQLiteCheckpointStorage
from stepwell.testing.store_rules.samples import logged

PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from stepwell import (FileCheckpointStorage, RetryPolicy, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext,
                      executor)
from stepwell.storage import clock

what, kind, path, ahead = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
clock.set_source(lambda: 1_800_000_000 + ahead)  # it stands still: however long a life takes, nothing more is due
storage = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}[kind](path / "runs")

def note(line):
    with (path / "ledger").open("a") as book:
        book.write(line + "\\n")

def times(line):
    return (path / "ledger").read_text().splitlines().count(line)

@executor(id="start")
async def start(n: int, ctx: WorkflowContext[int]) -> None:
    await ctx.send_message(n)

@executor(id="steady")
async def steady(n: int, ctx: WorkflowContext[str]) -> None:
    note("steady")
    await ctx.send_message("steady")

@executor(id="flaky", retry=RetryPolicy(max_attempts=3, initial_interval=50, backoff_factor=1, jitter=0))
async def flaky(n: int, ctx: WorkflowContext[str]) -> None:
    note("flaky")
    if times("flaky") < 3:
        raise ConnectionError("not yet")
    await ctx.send_message("flaky")

@executor(id="sleepy")
def sleepy(n: int, ctx: WorkflowContext[str]) -> None:
    note("sleepy")
    ctx.sleep(50)
    note("sleepy awoke")
    ctx.send_message("sleepy")

@executor(id="join")
async def join(found: list[str], ctx: WorkflowContext[None, list[str]]) -> None:
    await ctx.yield_output(found)

@executor(id="patient")
async def patient(n: int, ctx: WorkflowContext[None, str]) -> None:
    note("patient")
    await ctx.sleep(2 * 3600)
    note("patient awoke")
    if what == "hang":
        time.sleep(60)
    await ctx.yield_output(f"{n} at last")

branches = [steady, flaky, sleepy]
workflow = (WorkflowBuilder(name="soon", start_executor=start, checkpoint_storage=storage)
            .add_fan_out_edges(start, branches).add_fan_in_edges(branches, join).build())
long = WorkflowBuilder(name="long", start_executor=patient, checkpoint_storage=storage).build()

async def main():
    if what == "soon":
        async for event in workflow.run(1, run_id="r", stream=True):
            if event.type == "executor_invoked" and event.executor_id == "flaky":
                note(f"attempt {event.attempt}")
            if event.type == "superstep_started":
                # a while later: if it waited for nothing, it would be done before that
                asyncio.get_running_loop().call_later(0.3, note, "still there")
            if event.type == "output":
                print(event.data)
    elif what == "long":
        await long.run(1, run_id="r")
        note("put aside")
        time.sleep(60)
    else:
        for due in await storage.ready_runs():
            print(due.run_id, due.workflow_name, (await long.run(run_id=due.run_id)).get_outputs())

asyncio.run(main())
"""


class World:
    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        (path / "program.py").write_text(PROGRAM)

    def start(self, what: str, *, ahead: float = 0) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.path / "program.py"), what, self.kind, str(self.path), str(ahead)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def said(self, what: str, *, ahead: float = 0) -> list[str]:
        process = self.start(what, ahead=ahead)
        said, _ = process.communicate()
        assert process.returncode == 0
        return said.splitlines()

    def killed(self, what: str, when: Callable[[], bool], *, ahead: float = 0) -> None:
        """One life, which ends when something is the case."""
        process = self.start(what, ahead=ahead)
        deadline = time.monotonic() + 60
        while not when():
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, f"it never came to that: {self.ledger()}"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def ledger(self) -> list[str]:
        book = self.path / "ledger"
        return book.read_text().splitlines() if book.exists() else []

    def remembered(self) -> dict[str, bytes]:
        """What is on the disk of the superstep that is under way."""
        kinds = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}

        async def look() -> dict[str, bytes]:
            async with kinds[self.kind](self.path / "runs") as storage:
                assert isinstance(storage, BuiltInStorage)
                return await logged(storage._store, "r", 1)

        return asyncio.run(look()) if (self.path / "runs").exists() else {}

    def notes(self) -> dict[str, dict[str, Any]]:
        return {key: json.loads(body) for key, body in self.remembered().items() if "/" in key}


@pytest.fixture(params=["sqlite", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


FIRST, SECOND, SLEEP = "1.1/attempt/1", "1.1/attempt/2", "1.2/timer/0"
STEADY, SLEEPY = "1.0", "1.2"


def test_killed_while_one_backs_off_and_one_sleeps_both_wait_for_the_rest_and_no_more(world: World) -> None:
    world.killed("soon", lambda: {FIRST, SLEEP, STEADY} <= world.remembered().keys())
    before = world.notes()
    assert before.keys() == {FIRST, SLEEP}
    failure = before[FIRST]["failure"]
    known = failure["error_type"], failure["message"], failure["executor_id"]
    assert known == ("ConnectionError", "not yet", "flaky")

    lines = len(world.ledger())
    world.killed("soon", lambda: {"sleepy", "still there"} <= set(world.ledger()[lines:]))
    assert world.notes() == before  # it waits for the same moments as before
    assert world.ledger().count("flaky") == 1
    assert "sleepy awoke" not in world.ledger()

    world.killed("soon", lambda: {SECOND, SLEEPY} <= world.remembered().keys(), ahead=1000)
    after = world.notes()
    assert {key: after[key] for key in before} == before
    assert after.keys() == {FIRST, SECOND, SLEEP}

    assert world.said("soon", ahead=2000) == ["['steady', 'flaky', 'sleepy']"]
    ran = world.ledger()
    assert [line for line in ran if line.startswith("attempt")] == ["attempt 1", "attempt 2", "attempt 3"]
    assert ran.count("steady") == 1
    assert ran.count("flaky") == 3
    assert ran.count("sleepy") == 3  # once in each life that found it asleep or due
    assert ran.count("sleepy awoke") == 1
    assert world.remembered() == {}


def test_a_run_that_was_put_aside_is_found_by_another_process_when_it_is_due(world: World) -> None:
    world.killed("long", lambda: "put aside" in world.ledger())
    assert world.said("due") == []
    assert world.said("due", ahead=7100) == []
    assert world.ledger() == ["patient", "put aside"]
    assert world.said("due", ahead=7300) == ["r long ['1 at last']"]
    assert world.said("due", ahead=9999) == []
    assert world.ledger() == ["patient", "put aside", "patient", "patient awoke"]


def test_killed_after_it_woke_it_does_not_sleep_again(world: World) -> None:
    world.killed("long", lambda: "put aside" in world.ledger())
    world.killed("hang", lambda: "patient awoke" in world.ledger(), ahead=7300)
    assert world.said("due", ahead=7300) == ["r long ['1 at last']"]
    assert world.ledger()[2:] == ["patient", "patient awoke"] * 2
