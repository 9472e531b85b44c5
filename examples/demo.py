"""A run is killed with SIGKILL in the middle of a superstep, and goes on in a new process.

Five researchers work side by side. When three of them have returned, the process that runs them is
killed. A new process resumes the run: the three are not asked again, the two that were cut off are.

    python examples/demo.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from holdfast import Executor, SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler

HOME = Path(".demo")
RESEARCHERS = {"weather": 0.3, "museums": 0.5, "trains": 0.7, "hotels": 3.0, "restaurants": 3.2}  # seconds of work
KILL_AFTER = 3  # of the five


@dataclass
class Question:
    city: str
    topic: str


@dataclass
class Note:
    topic: str
    text: str


def ledger(run_id: str) -> Path:
    return HOME / f"{run_id}.ledger"


def enter(run_id: str, executor_id: str) -> None:
    """Write down that a handler really began: one line in a file, the demo's only witness."""
    with ledger(run_id).open("a") as book:
        book.write(f"{executor_id} {os.getpid()}\n")


class Planner(Executor):
    """Asks every researcher about the city."""

    @handler
    async def plan(self, city: str, ctx: WorkflowContext[Question]) -> None:
        enter(ctx.run_id, self.id)
        for topic in RESEARCHERS:
            await ctx.send_message(Question(city, topic), target_id=topic)


class Researcher(Executor):
    """Thinks for a while, as a model would, and answers."""

    @handler
    async def research(self, question: Question, ctx: WorkflowContext[Note]) -> None:
        enter(ctx.run_id, self.id)
        print(f"  {self.id} ...", flush=True)
        await asyncio.sleep(RESEARCHERS[self.id])
        await ctx.send_message(Note(self.id, f"what there is to know about {self.id} in {question.city}"))
        print(f"  {self.id} done", flush=True)


class Editor(Executor):
    """Puts the notes together once all of them are there."""

    @handler
    async def edit(self, notes: list[Note], ctx: WorkflowContext[str]) -> None:
        enter(ctx.run_id, self.id)
        await ctx.send_message("\n".join(f"    {note.topic}: {note.text}" for note in notes))


class Publisher(Executor):
    @handler
    async def publish(self, guide: str, ctx: WorkflowContext[None, str]) -> None:
        enter(ctx.run_id, self.id)
        await ctx.yield_output(guide)


def build() -> Workflow:
    planner, editor, publisher = Planner("planner"), Editor("editor"), Publisher("publisher")
    researchers = [Researcher(topic) for topic in RESEARCHERS]
    return (
        WorkflowBuilder(
            name="city guide",
            start_executor=planner,
            checkpoint_storage=SQLiteCheckpointStorage(HOME / "runs.db"),
        )
        .add_fan_out_edges(planner, researchers)
        .add_fan_in_edges(researchers, editor)
        .add_edge(editor, publisher)
        .build()
    )


async def drive(run_id: str) -> None:
    """What each child process does. The same call starts the run and goes on with it."""
    result = await build().run("Lisbon", run_id=run_id)
    print(f"  the run is {result.get_final_state().value}; its output:")
    print(result.get_outputs()[0], flush=True)


def main() -> int:
    HOME.mkdir(exist_ok=True)
    run_id = f"demo-{time.time_ns():x}"
    say("1", f"A process starts run {run_id}: a planner asks five researchers at once.")
    with start(run_id) as child:
        done = relay(child, until=KILL_AFTER)
        time.sleep(0.3)  # what has returned is on its way to the disk
        child.send_signal(signal.SIGKILL)
    say("2", f"Process {child.pid} was killed with SIGKILL while {len(RESEARCHERS) - done} of them were still working.")
    say("3", "A new process resumes the run.")
    with start(run_id) as second:
        relay(second)
    if second.returncode != 0:
        say("!", "The resumed run failed.", colour="31")
        return 1
    say("4", "How often each executor ran, as written down by the executors themselves:")
    good = report(run_id, killed=child.pid)
    say("5", f"The data is in {HOME / 'runs.db'} (the run) and {ledger(run_id)} (who ran when).")
    print(
        f"     Look: sqlite3 {HOME / 'runs.db'} \"select number, status, body from commits where run_id = '{run_id}'\""
    )
    return 0 if good else 1


def start(run_id: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--drive", run_id]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


def relay(child: subprocess.Popen[str], until: int | None = None) -> int:
    """Show what a child says, until so many researchers are done or the child has ended."""
    done = 0
    assert child.stdout is not None
    for line in child.stdout:
        print(paint(f"     [{child.pid}]{line.rstrip()}", "2"), flush=True)
        done += line.rstrip().endswith(" done")
        if done == until:
            break
    return done


def report(run_id: str, killed: int) -> bool:
    entries = [line.split() for line in ledger(run_id).read_text().splitlines()]
    times = Counter(name for name, _ in entries)
    for name in ["planner", *RESEARCHERS, "editor", "publisher"]:
        pids = [int(pid) for who, pid in entries if who == name]
        words = "cut off by the kill, ran again" if len(pids) > 1 else "once"
        shown = " then ".join(f"{pid}{' (killed)' if pid == killed else ''}" for pid in pids)
        print(f"     {name:<12} {times[name]}x  {paint(f'{words:<31}', '33' if len(pids) > 1 else '32')} in {shown}")
    finished = list(RESEARCHERS)[:KILL_AFTER]
    good = all(times[name] == 1 for name in ["planner", *finished, "editor", "publisher"])
    verdict = "Nothing that had finished ran again." if good else "Something that had finished ran again!"
    print("     " + paint(verdict, "32;1" if good else "31;1"))
    return good


def say(mark: str, text: str, colour: str = "36;1") -> None:
    print(f"{paint(f'[{mark}]', colour)} {text}", flush=True)


def paint(text: str, colour: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[{colour}m{text}\033[0m"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        asyncio.run(drive(sys.argv[2]))
    else:
        sys.exit(main())
