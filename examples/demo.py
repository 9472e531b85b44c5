"""A run survives two kills: one inside a sub-workflow, and one while it waits for a human.

Two workers share a store, and a run is submitted to it. The research is a sub-workflow in which five
researchers work concurrently. When three of them have returned, the worker is killed with SIGKILL.
The other worker notices, and takes the run over inside the research: the three do not run again,
only the two that were interrupted do. Then the run asks a human, and that worker is killed too. A
third process brings the answer.

    python examples/demo.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    Executor,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from stepwell.worker import Worker
from stepwell.workflows import status_word

HOME = Path(".demo")
RESEARCHERS = {"weather": 0.3, "museums": 0.5, "trains": 0.7, "hotels": 3.0, "restaurants": 3.2}  # seconds of work
KILL_AFTER = 3  # researchers that have returned
INSIDE = ["desk", *RESEARCHERS, "collector"]  # executors of the research, in the order of their work


@dataclass
class Question:
    city: str
    topic: str


@dataclass
class Note:
    topic: str
    text: str


@dataclass
class Guide:
    """What the human is asked to approve."""

    text: str


@dataclass
class Decision:
    publish: bool


def ledger(run_id: str) -> Path:
    return HOME / f"{run_id}.ledger"


def enter(executor_id: str) -> None:
    """Record that a handler really started: one line in a file that Stepwell knows nothing about."""
    with ledger(sys.argv[2]).open("a") as book:
        book.write(f"{executor_id} {os.getpid()}\n")


class Planner(Executor):
    """Sends the city to the next executor, which is the research sub-workflow."""

    @handler
    async def plan(self, city: str, ctx: WorkflowContext[str]) -> None:
        enter(self.id)
        await ctx.send_message(city)


class Desk(Executor):
    """Asks every researcher about the city."""

    @handler
    async def ask(self, city: str, ctx: WorkflowContext[Question]) -> None:
        enter(self.id)
        for topic in RESEARCHERS:
            await ctx.send_message(Question(city, topic), target_id=topic)


class Researcher(Executor):
    """Takes a while, as a model would, and answers."""

    @handler
    async def research(self, question: Question, ctx: WorkflowContext[Note]) -> None:
        enter(self.id)
        print(f"  {self.id} ...", flush=True)
        for _ in range(round(10 * RESEARCHERS[self.id])):
            # Many short sleeps: on a busy machine all researchers slow down alike, and their order stays.
            await asyncio.sleep(0.1)
        await ctx.send_message(Note(self.id, f"what there is to know about {self.id} in {question.city}"))
        print(f"  {self.id} done", flush=True)


class Collector(Executor):
    """Receives all notes at once (fan-in); what it yields is the output of the research."""

    @handler
    async def collect(self, notes: list[Note], ctx: WorkflowContext[None, list[Note]]) -> None:
        enter(self.id)
        await ctx.yield_output(notes)


class Editor(Executor):
    """Combines the notes, and asks a human whether to publish them."""

    @handler
    async def edit(self, notes: list[Note], ctx: WorkflowContext[str]) -> None:
        enter(self.id)
        text = "\n".join(f"    {note.topic}: {note.text}" for note in notes)
        await ctx.request_info(Guide(text), Decision)

    @response_handler
    async def apply_decision(self, original_request: Guide, response: Decision, ctx: WorkflowContext[str]) -> None:
        enter("decision")
        await ctx.send_message(original_request.text if response.publish else "    (the human did not want it)")


class Publisher(Executor):
    @handler
    async def publish(self, guide: str, ctx: WorkflowContext[None, str]) -> None:
        enter(self.id)
        await ctx.yield_output(guide)


def research() -> Workflow:
    desk, collector = Desk("desk"), Collector("collector")
    researchers = [Researcher(topic) for topic in RESEARCHERS]
    return (
        WorkflowBuilder(name="research", start_executor=desk)
        .add_fan_out_edges(desk, researchers)
        .add_fan_in_edges(researchers, collector)
        .build()
    )


def build() -> Workflow:
    planner, editor, publisher = Planner("planner"), Editor("editor"), Publisher("publisher")
    storage = SQLiteCheckpointStorage(HOME / "runs.db")
    return (
        WorkflowBuilder(name="city guide", start_executor=planner, checkpoint_storage=storage)
        .add_chain([planner, WorkflowExecutor(research(), "research"), editor, publisher])
        .build()
    )


async def work(run_id: str, is_first: bool) -> None:
    """Drive what is ready, in the first two child processes. The second begins when the first has."""
    storage = SQLiteCheckpointStorage(HOME / "runs.db")
    while not is_first and await standing_of(storage, run_id) == "queued":  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    serving = asyncio.create_task(Worker(storage, [build()]).serve())
    while await standing_of(storage, run_id) != "waiting":  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    print("  the run is waiting", flush=True)
    await serving  # until it is killed; the run itself is on disk


async def standing_of(storage: SQLiteCheckpointStorage, run_id: str) -> str:
    run = await storage.get_run(run_id)
    assert run is not None
    return run.standing


async def answer(run_id: str, publish: bool) -> None:
    """Find the request in the storage and respond to it, in the third child process."""
    workflow = build()
    (request,) = await SQLiteCheckpointStorage(HOME / "runs.db").pending_requests(run_id=run_id)
    print(f"  {request.executor_id} requests a {request.response_type}", flush=True)
    result = await workflow.run(run_id=run_id, responses={request.request_id: {"publish": publish}})
    print(f"  the run is {status_word(result.get_final_state())}; its output:")
    print(result.get_outputs()[0], flush=True)


def main() -> int:
    HOME.mkdir(exist_ok=True)
    run_id, before = f"demo-{time.time_ns():x}", stored_outcomes()
    asyncio.run(build().submit("Lisbon", run_id=run_id))
    say("1", f"Run {run_id} is submitted, and a worker drives it: five researchers at once.")
    second = start("--work", run_id, "second")  # joins in as soon as the first one has begun
    with start("--work", run_id, "first") as child:
        done = relay(child, " done", times=KILL_AFTER)
        # A handler prints before its outcome is stored; wait until it is on disk.
        while stored_outcomes() < before + KILL_AFTER:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    say("2", f"Process {child.pid} was killed with SIGKILL while {len(RESEARCHERS) - done} of them were still working.")
    say("3", "Another worker takes the run over, right there inside the research. Then the run asks a human.")
    with second:
        relay(second, "the run is waiting")
        second.send_signal(signal.SIGKILL)
    say("4", f"Process {second.pid} was killed too, while the run waits. A third one brings the answer.")
    with start("--answer", run_id, "yes" if ask_human() else "no") as third:
        relay(third)
    if third.returncode != 0:
        say("!", "The resumed run failed.", colour="31")
        return 1
    say("5", "How often each executor ran, as recorded by the executors themselves:")
    good = report(run_id, killed=child.pid)
    say("6", f"The data is in {HOME / 'runs.db'} (the run) and {ledger(run_id)} (what ran where).")
    say("7", f"What the run has to show for it: stepwell show {run_id} --store {HOME / 'runs.db'}")
    show = [sys.executable, "-m", "stepwell.cli", "show", run_id, "--store", str(HOME / "runs.db")]
    subprocess.run(show, check=False)  # without the extra `cli` it says what to install
    return 0 if good else 1


def stored_outcomes() -> int:
    """Count the outcomes in the superstep log: handlers that returned in a superstep not committed yet."""
    if not (HOME / "runs.db").exists():
        return 0
    with closing(sqlite3.connect(f"file:{HOME / 'runs.db'}?mode=ro", uri=True)) as database:
        (count,) = database.execute("select count(*) from superstep_log").fetchone()
        return int(count)


def ask_human() -> bool:
    """Ask on the terminal; without one the answer is yes."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        print("     Publish the guide? yes (there is no terminal to ask on)", flush=True)
        return True
    return input("     Publish the guide? [Y/n] ").strip().lower() not in ("n", "no")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


def relay(child: subprocess.Popen[str], until: str | None = None, times: int = 1) -> int:
    """Print the output of a child until it has printed `until` so many times, or has ended."""
    matches = 0
    assert child.stdout is not None
    for line in child.stdout:
        print(paint(f"     [{child.pid}]{line.rstrip()}", "2"), flush=True)
        matches += until is not None and line.rstrip().endswith(until)
        if matches == times:
            break
    return matches


def report(run_id: str, killed: int) -> bool:
    entries = [line.split() for line in ledger(run_id).read_text().splitlines()]
    times = Counter(name for name, _ in entries)
    for name in ["planner", *INSIDE, "editor", "decision", "publisher"]:
        pids = [int(pid) for entered, pid in entries if entered == name]
        note = "interrupted, ran again" if len(pids) > 1 else "once"
        shown = " then ".join(f"{pid}{' (killed)' if pid == killed else ''}" for pid in pids)
        where = f"  research/{name}" if name in INSIDE else name
        print(f"     {where:<22} {times[name]}x  {paint(f'{note:<22}', '33' if len(pids) > 1 else '32')} in {shown}")
    finished = [name for name in times if name not in list(RESEARCHERS)[KILL_AFTER:]]
    good = len(times) == len(INSIDE) + 4 and all(times[name] == 1 for name in finished)
    verdict = "Nothing that had finished ran again." if good else "Something that had finished ran again!"
    print("     " + paint(verdict, "32;1" if good else "31;1"))
    return good


def say(mark: str, text: str, colour: str = "36;1") -> None:
    print(f"{paint(f'[{mark}]', colour)} {text}", flush=True)


def paint(text: str, colour: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[{colour}m{text}\033[0m"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--work", run_id, place]:
            asyncio.run(work(run_id, place == "first"))
        case ["--answer", run_id, word]:
            asyncio.run(answer(run_id, word == "yes"))
        case _:
            sys.exit(main())
