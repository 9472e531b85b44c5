"""A run that waits for a person is all on disk: processes come and go, answers race, one is taken, once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys, time
from dataclasses import dataclass
from pathlib import Path
from stepwell import (Executor, FileCheckpointStorage, ResponseRejected, RunBusy, SQLiteCheckpointStorage,
                      UnknownRequest, WorkflowBuilder, WorkflowContext, handler, response_handler)

what, kind, path = sys.argv[1], sys.argv[2], Path(sys.argv[3])
storage = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}[kind](path / "runs")

def note(line):
    with (path / "ledger").open("a") as book:
        book.write(line + "\\n")

@dataclass
class Approval:
    by: str

class Asker(Executor):
    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        note("asked")
        await ctx.request_info(text, Approval)
    @response_handler
    async def take(self, original_request: str, response: Approval, ctx: WorkflowContext[str]) -> None:
        note(f"took {response.by}")
        await ctx.send_message(f"{original_request} by {response.by}")

class Slow(Executor):
    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        note("began")
        if what == "answer-and-hang":
            await asyncio.sleep(60)
        await ctx.yield_output(text)

asker, slow = Asker("asker"), Slow("slow")
workflow = WorkflowBuilder(name="w", start_executor=asker, checkpoint_storage=storage).add_edge(asker, slow).build()

async def main():
    if what == "ask":
        await workflow.run("plan", run_id="r")
        note("waiting")
        time.sleep(60)
    elif what.startswith("answer"):
        id = sys.argv[5] if len(sys.argv) > 5 else (await storage.pending_requests())[0].request_id
        try:
            result = await workflow.run(run_id="r", responses={id: {"by": sys.argv[4]}})
            print(result.get_outputs())
        except (RunBusy, UnknownRequest, ResponseRejected) as error:
            print(type(error).__name__)
    elif what == "which":
        print((await storage.pending_requests())[0].request_id)
    else:
        print((await workflow.run(run_id="r")).get_outputs())

asyncio.run(main())
"""


class World:
    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        (path / "program.py").write_text(PROGRAM)

    def start(self, what: str, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.path / "program.py"), what, self.kind, str(self.path), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def until(self, line: str) -> None:
        deadline = time.monotonic() + 20
        while line not in self.ledger():
            assert time.monotonic() < deadline, f"{line!r} never came"
            time.sleep(0.01)

    def ledger(self) -> list[str]:
        book = self.path / "ledger"
        return book.read_text().splitlines() if book.exists() else []


@pytest.fixture(params=["sqlite", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_killed_while_waiting_and_killed_after_the_answer_nothing_is_repeated(world: World) -> None:
    asking = world.start("ask")
    world.until("waiting")
    kill(asking)
    answering = world.start("answer-and-hang", "me")
    world.until("began")
    kill(answering)
    assert world.start("go on").communicate()[0].strip() == "['plan by me']"
    assert world.ledger() == ["asked", "waiting", "took me", "began", "began"]


def test_of_many_answers_from_many_processes_the_first_is_taken_and_the_others_are_told(world: World) -> None:
    asking = world.start("ask")
    world.until("waiting")
    kill(asking)
    id = world.start("which").communicate()[0].strip()
    answering = [world.start("answer", f"person-{n}", id) for n in range(6)]
    said = [process.communicate()[0].strip() for process in answering]
    taken = [line for line in world.ledger() if line.startswith("took")]
    assert len(taken) == 1
    winner = taken[0].removeprefix("took ")
    assert world.start("go on").communicate()[0].strip() == f"['plan by {winner}']"
    assert set(said) <= {f"['plan by {winner}']", "RunBusy", "UnknownRequest", "ResponseRejected"}
