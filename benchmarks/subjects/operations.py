"""Stepwell from outside: answers, commands, and stores with many checkpoints."""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import machine
from cases import OPERATIONS
from fetched_bytes import Cursor, count_from_now_on
from job import Job, Subject
from material import conversation
from store_calls import StoreCalls

from stepwell import Executor, WorkflowBuilder, WorkflowContext, handler, response_handler
from stepwell.admin import Keep, examine, find_checkpoint, prune, respond
from subjects.stepwell.workflow import KEEPS, storage

SCRIPT = "from stepwell.cli.main import main; main()"  # the same as the installed script
COUNTING = Path(__file__).resolve().parent.parent / "fetched_bytes.py"
COMMITS = 100  # per run of a large store, except the long one
AT_ONCE = 100  # runs that are driven concurrently while a store is filled
WAITING = 4  # one run in four waits for a response
KEPT = 10  # checkpoints that pruning keeps per run
TEAMS = ("north", "south", "east", "west")


class Clerk(Executor):
    """Notes a text in each superstep, and asks questions at the end."""

    def __init__(self, texts: list[Any], questions: int) -> None:
        super().__init__("clerk")
        self.texts, self.questions = texts, questions

    @handler
    async def work(self, left: int, ctx: WorkflowContext[int, str]) -> None:
        ctx.append_state("noted", self.texts[left % len(self.texts)])
        if left > 1:
            await ctx.send_message(left - 1)
        elif self.questions == 0:
            await ctx.yield_output("done")
        for number in range(self.questions if left == 1 else 0):
            await ctx.request_info(f"question {number}?", bool)

    @response_handler
    async def answered(self, original_request: str, response: bool, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(f"{original_request} {response}")


def clerical(kept: Any, texts: list[Any], questions: int) -> Any:
    clerk = Clerk(texts, questions)
    builder = WorkflowBuilder(name="orders", start_executor=clerk, checkpoint_storage=kept, max_iterations=2**62)
    return builder.add_edge(clerk, clerk).build()


def command_cpu_ms(*arguments: str) -> float:
    """Return the CPU time of a process from start to exit."""
    used = machine.used_by_children()
    subprocess.run([sys.executable, "-P", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (machine.used_by_children() - used) * 1000


async def answer(job: Job, place: str) -> None:
    """Count the store calls of an answer. The first run loads what is loaded lazily, and does not count."""
    kept = storage(place, job)
    workflow = clerical(kept, ["tea"], questions=1)
    calls: StoreCalls | None = None
    for run_id in ("warm", "counted"):
        (request,) = (await workflow.run(1, run_id=run_id)).get_request_info_events()
        if run_id == "counted":
            calls = StoreCalls(job.folder / "runs.db")
        result = await workflow.run(responses={request.request_id: True}, run_id=run_id)
        assert result.get_outputs()
    assert calls is not None
    job.notes |= {"reads": len(calls.reads), "writes": len(calls.writes)}
    print(f"reads: {calls.reads}\nwrites: {calls.writes}", file=sys.stderr)
    await kept.close()


async def respond_by_command(job: Job, place: str) -> None:
    """Note the CPU time of the command, and how often it reads the run: bytes fetched, one reading by the API = 1."""
    kept = storage(place, job)
    workflow = clerical(kept, conversation(job["turns"]), questions=job["starts"] + 2)
    requests = [
        event.request_id for event in (await workflow.run(job["turns"], run_id="one")).get_request_info_events()
    ]
    await kept.close()
    commands = [
        ["respond", "one", request, "--response", "true", "--store", f"sqlite:///{job.folder / 'runs.db'}"]
        for request in requests
    ]
    taken = [(command_cpu_ms("-c", SCRIPT, *command), command_cpu_ms("-c", "pass")) for command in commands[1:]]
    for note, spent in zip(("command_cpu_ms", "bare_cpu_ms"), zip(*taken[1:], strict=True), strict=True):
        job.notes[note] = statistics.median(spent)
    fetched = job.folder / "fetched"
    command_cpu_ms(str(COUNTING), str(fetched), *commands[0])
    count_from_now_on()
    await kept.get_latest(run_id="one")  # opens it again
    job.notes["folds"] = round(int(fetched.read_text()) / Cursor.fetched, 1)
    await kept.close()


@dataclass(frozen=True, slots=True)
class Filled:
    """What a store contains."""

    checkpoints: int
    waiting: list[str]  # runs that wait, oldest first
    long: str  # the run with a tenth of all checkpoints


async def fill(kept: Any, checkpoints: int) -> Filled:
    """Fill a store with about this many checkpoints of real runs."""
    length = max(checkpoints // 10, COMMITS)
    count = max((checkpoints - length) // COMMITS, 2 * WAITING)
    ids = [f"{n * 2654435761 % 2**32:08x}-{n}" for n in range(count)]
    texts = [{"number": n, "customer": f"customer {n}", "lines": ["tea", "samovar"]} for n in range(17)]
    asking, plain = clerical(kept, texts, questions=5), clerical(kept, texts, questions=0)
    turn = asyncio.Semaphore(AT_ONCE)

    async def drive(n: int, run_id: str) -> None:
        async with turn:
            workflow = plain if n % WAITING else asking
            await workflow.run(COMMITS - 1, run_id=run_id, tags={"team": TEAMS[n % len(TEAMS)]})

    await asyncio.gather(*(drive(n, run_id) for n, run_id in enumerate(ids)))
    await plain.run(length - 1, run_id="the-long-one")
    return Filled(count * COMMITS + length, ids[::WAITING], "the-long-one")


Call = Callable[[], Awaitable[object]]


async def operations(job: Job, place: str, how: str = "large") -> None:
    kept = storage(place, job)
    filled = await fill(kept, job["small" if how == "small" else "checkpoints"])
    address = f"sqlite:///{job.folder / 'runs.db'}" if place == "sqlite" else str(job.dsn)
    answers = await _answers(kept, job["looks"])
    for _ in range(job["looks"]):
        readings = dict(zip(OPERATIONS, [*_readings(kept, filled), next(answers)], strict=True))
        for name, (command, call) in readings.items():
            spent = command_cpu_ms("-c", SCRIPT, *command, "--store", address)
            job.note_lap(f"{name}_cpu_ms", spent / 1000)
            with job.lap(f"{name}_api_ms"):
                await call()
    policy = Keep(last=KEPT)
    passes: dict[str, Call] = {
        "doctor": lambda: _examine(kept),
        "prune_dry_run": lambda: prune(kept, policy, dry_run=True),
        "prune": lambda: prune(kept, policy),
        "compact": kept.compact,
    }
    for name, call in passes.items():
        began = time.perf_counter()
        await call()
        job.notes[f"{name}_rate"] = filled.checkpoints / (time.perf_counter() - began)
    await kept.close()


def _readings(kept: Any, filled: Filled) -> Iterator[tuple[list[str], Call]]:
    """Yield the operations that only read: as a command, and as a call of the API."""
    short = filled.waiting[len(filled.waiting) // 2][:8]
    filtered = {"status": "IDLE_WITH_PENDING_REQUESTS", "tags": {"team": "north"}}

    async def show(name: str) -> None:
        await kept.load((await find_checkpoint(kept, name)).checkpoint_id)

    yield ["list", "--json"], lambda: kept.list_runs(limit=51)
    yield ["list", "--json", "--status", "waiting", "--tag", "team=north"], lambda: kept.list_runs(**filtered, limit=51)
    yield ["list", "--json", "--text", "xyz"], lambda: kept.list_runs(text="xyz")
    yield ["show", short, "--json"], lambda: show(short)
    yield ["show", filled.long, "--json"], lambda: show(filled.long)
    yield ["requests", "--json"], lambda: kept.pending_requests(limit=51)


async def _answers(kept: Any, looks: int) -> Iterator[tuple[list[str], Call]]:
    """Return responses, each to another request."""
    asked = [(request.run_id, request.request_id) for request in await kept.pending_requests(limit=2 * looks)]
    return (
        (["respond", *by_command, "--response", "true"], partial(respond, kept, *by_call, True))
        for by_command, by_call in zip(asked[::2], asked[1::2], strict=True)
    )


async def _examine(kept: Any) -> None:
    async for _ in examine(kept):
        pass


def _subject(case: str, place: str, run: Any, how: str | None = None) -> Subject:
    name, options = (f"stepwell-{place}", {}) if how is None else (f"stepwell-{place}-{how}", {"how": how})
    return Subject(case, name, KEEPS[place], partial(run, place=place, **options), postgres=place == "postgres")


SUBJECTS = [
    _subject("answer", "sqlite", answer),
    _subject("respond", "sqlite", respond_by_command),
    *(_subject("operations", place, operations, how) for place in ("sqlite", "postgres") for how in (None, "small")),
]
