"""Stepwell in every case."""

import asyncio
import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from job import Job, Keeps, Laps, Subject
from killing import CRASHES, HANDLERS, LAST, Marks
from material import conversation, documents

import stepwell
from stepwell import (
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
)

WARM = 10
KEEPS: Mapping[str, Keeps] = {"none": "none", "memory": "mem", "files": "sync", "sqlite": "sync", "postgres": "sync"}
STORED = ("memory", "files", "sqlite", "postgres")
DURABLE = ("files", "sqlite", "postgres")


def storage(place: str, job: Job) -> Any:
    match place:
        case "memory":
            return InMemoryCheckpointStorage()
        case "files":
            return FileCheckpointStorage(job.folder / "runs")
        case "sqlite":
            return SQLiteCheckpointStorage(job.folder / "runs.db")
        case "postgres":
            return stepwell.PostgresCheckpointStorage(str(job.dsn))
    return None


async def close(kept: Any) -> None:
    if kept is not None:
        await kept.close()


async def note_empty(place: str, job: Job) -> None:
    """Open and close an empty store, and note its size."""
    kept = storage(place, job)
    await kept.get_latest(run_id="nobody")
    await kept.close()
    job.note_empty()


def looping(start: Any, kept: Any, *, limit: int) -> Workflow:
    """Build a workflow of one executor that sends to itself."""
    builder = WorkflowBuilder(limit + WARM, name="loop", start_executor=start, checkpoint_storage=kept)
    return builder.add_edge(start, start).build()


async def chain(job: Job, place: str) -> None:
    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_state("left", left)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    kept = storage(place, job)
    workflow = looping(turn, kept, limit=job["supersteps"])
    await workflow.run(WARM)
    with job.counted():
        await workflow.run(job["supersteps"])
    await close(kept)


class Listener(Executor):
    """Holds a conversation, and saves all of it at every checkpoint."""

    def __init__(self, messages: list[dict[str, str]], laps: Laps) -> None:
        super().__init__("turn")
        self.messages, self.laps = messages, laps
        self.heard: list[dict[str, str]] = []

    @handler
    async def turn(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        self.laps.mark()
        self.heard.append(self.messages[left - 1])
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"heard": self.heard}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.heard = state["heard"]

    def clone(self) -> "Listener":
        return Listener(self.messages, self.laps)


def talking(how: str, messages: list[dict[str, str]], laps: Laps) -> Any:
    """Return an executor that adds a message to a conversation at each turn; `how` is the way it is stored."""
    if how == "hook":
        return Listener(messages, laps)

    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        laps.mark()
        message = messages[left - 1]
        if how == "set":
            ctx.set_state("heard", [*ctx.get_state("heard", []), message])
        else:
            if how == "append-and-read":
                assert isinstance(ctx.get_state("heard", []), list)
            ctx.append_state("heard", message)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    return turn


async def growth(job: Job, place: str, how: str = "append") -> None:
    laps, warming = Laps(), Laps()
    turns = job["turns"]
    messages = conversation(turns)
    if place != "none":
        await note_empty(place, job)
    kept = storage(place, job)
    await looping(talking(how, messages, warming), kept, limit=turns).run(WARM)
    workflow = looping(talking(how, messages, laps), kept, limit=turns)
    with job.counted():
        await workflow.run(turns)
    laps.note_costs(job, [turn for turn in (10, 100, 1000, 3000) if turn <= turns], job["window"])
    await close(kept)


class Librarian(Executor):
    """Holds documents, and saves all of them at every checkpoint."""

    def __init__(self, job: Job, texts: list[str]) -> None:
        super().__init__("turn")
        self.job, self.texts, self.count = job, texts, 0

    @handler
    async def turn(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        self.count += 1
        if self.count == 2:
            self.job.start()
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"texts": self.texts, "count": self.count}


def counting(job: Job, texts: list[str]) -> Any:
    """Return an executor that sets documents once and a counter at each turn."""

    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        count = ctx.get_state("count", 0) + 1
        if count == 1:
            ctx.set_state("texts", texts)
        if count == 2:
            job.start()
        ctx.set_state("count", count)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    return turn


async def big(job: Job, place: str, how: str = "state") -> None:
    texts = documents(1 if how == "small" else job["kib"])
    kept = storage(place, job)
    start = Librarian(job, texts) if how == "hook" else counting(job, texts)
    workflow = looping(start, kept, limit=job["supersteps"])
    await workflow.run(job["supersteps"] + 1)
    job.stop()
    await close(kept)


async def heavy(job: Job, place: str) -> None:
    """Note the CPU time of the event loop's thread: to read the state, to set it, and between two handler calls."""
    spent: dict[str, list[float]] = {"read_ms": [], "hand_over_ms": [], "between_ms": []}
    returned_at: float | None = None

    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        nonlocal returned_at
        called_at = time.thread_time()
        texts = ctx.get_state("texts") or documents(job["kib"])
        read_at = time.thread_time()
        texts[left] = texts[left][::-1]
        begun_at = time.thread_time()
        ctx.set_state("texts", texts)
        handed_over_at = time.thread_time()
        if returned_at is not None:
            spent["between_ms"].append(called_at - returned_at)
            spent["read_ms"].append(read_at - called_at)
            spent["hand_over_ms"].append(handed_over_at - begun_at)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))
        returned_at = time.thread_time()

    kept = storage(place, job)
    workflow = looping(turn, kept, limit=job["supersteps"])
    with job.counted():
        await workflow.run(job["supersteps"])
    job.notes |= {name: statistics.median(seconds) * 1000 for name, seconds in spent.items()}
    await close(kept)


async def fresh(job: Job, place: str) -> None:
    called_at = 0.0

    @executor(id="turn")
    async def turn(number: int, ctx: WorkflowContext[int]) -> None:
        nonlocal called_at
        called_at = time.perf_counter()
        ctx.set_state("number", number)
        await ctx.send_message(number + 1)

    began = time.perf_counter()
    kept, limit = storage(place, job), 2 * job["checkpoints"]
    workflow = looping(turn, kept, limit=limit)
    if job.again:
        await move(workflow.run(run_id="one", stream=True), upto=0)
        job.notes["next_handler_ms"] = (called_at - began) * 1000
    else:
        await move(workflow.run(0, run_id="one", stream=True), upto=job["checkpoints"])
    await close(kept)
    if not job.again:
        await asyncio.to_thread(job.note_fresh_processes, job["processes"])


async def history(job: Job, place: str) -> None:
    called_at = 0.0

    @executor(id="turn")
    async def turn(number: int, ctx: WorkflowContext[int]) -> None:
        nonlocal called_at
        called_at = time.perf_counter()
        ctx.set_state("number", number)
        await ctx.send_message(number + 1)

    kept, limit = storage(place, job), 2 * job["checkpoints"]
    workflow = looping(turn, kept, limit=limit)
    await move(workflow.run(0, run_id="one", stream=True), upto=1)
    for stop in (stop for stop in (100, 1000, 5000) if stop <= job["checkpoints"]):
        await move(workflow.run(run_id="one", stream=True), upto=stop)
        fresh = kept if place == "memory" else storage(place, job)  # as another process would open it
        again = looping(turn, fresh, limit=limit)
        await fresh.get_latest(run_id="nobody")  # opens it
        for look in range(job["looks"]):
            with job.lap(f"latest_ms_{stop}"):
                await fresh.get_latest(run_id="one")
            with job.lap(f"page_ms_{stop}"):
                await page(fresh)
            with job.lap(f"resume_ms_{stop}"):
                began = time.perf_counter()
                await move(again.run(run_id="one", stream=True), upto=stop + 1 + look)
            job.note_lap(f"next_ms_{stop}", called_at - began)
        if fresh is not kept:
            await close(fresh)
    await close(kept)


async def move(stream: Any, *, upto: int) -> None:
    """Drive a run until this superstep is committed, and stop."""
    async with stream:
        async for event in stream:
            if event.type == "superstep_completed" and event.iteration >= upto:
                return


async def page(kept: Any) -> None:
    """List the newest twenty checkpoints."""
    await kept.list_checkpoint_ids(run_id="one", limit=20)


class Hub(Executor):
    """Sends to all workers, waits for all of them, and repeats."""

    @handler
    async def begin(self, rounds: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.send_message(rounds)

    @handler
    async def joined(self, done: list[int], ctx: WorkflowContext[int, int]) -> None:
        left = done[0] - 1
        await (ctx.send_message(left) if left else ctx.yield_output(0))


def worker(number: int) -> Any:
    @executor(id=f"worker-{number}")
    async def work(rounds: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(rounds)

    return work


async def fanout(job: Job, place: str) -> None:
    hub, workers = Hub("hub"), [worker(number) for number in range(job["width"])]
    kept = storage(place, job)
    builder = WorkflowBuilder(10 + 3 * job["rounds"], name="fan", start_executor=hub, checkpoint_storage=kept)
    workflow = builder.add_fan_out_edges(hub, workers).add_fan_in_edges(workers, hub).build()
    await workflow.run(1)
    with job.counted():
        await workflow.run(job["rounds"])
    await close(kept)


async def many(job: Job, place: str) -> None:
    laps = Laps()

    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        laps.mark(ctx.run_id)
        ctx.set_state("left", left)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    kept = storage(place, job)
    workflow = looping(turn, kept, limit=job["supersteps"])
    await workflow.run(WARM, run_id="warm")
    with job.counted():
        await asyncio.gather(*(workflow.run(job["supersteps"], run_id=f"r{n}") for n in range(job["runs"])))
    laps.note_latencies(job)
    await close(kept)


async def crash(job: Job, place: str) -> None:
    marks = Marks(job)

    @executor(id="begin")
    async def begin(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    def one(number: int) -> Any:
        @executor(id=f"worker-{number}")
        async def work(text: str, ctx: WorkflowContext[None, int]) -> None:
            marks.called(number)
            if number == LAST and not job.again:
                await asyncio.sleep(3600)
            await ctx.yield_output(number)
            marks.returns()

        return work

    kept = storage(place, job)
    builder = WorkflowBuilder(name="ten", start_executor=begin, checkpoint_storage=kept)
    workflow = builder.add_fan_out_edges(begin, [one(number) for number in range(HANDLERS)]).build()
    result = await workflow.run("go", run_id="one")
    assert len(result.get_outputs()) == HANDLERS
    await close(kept)


def _subjects() -> list[Subject]:
    found = [_subject("chain", place, chain) for place in KEEPS]
    for case in ("growth", "long"):
        found += [_subject(case, place, growth) for place in DURABLE]
        found += [_subject(case, "sqlite", growth, how) for how in ("append-and-read", "hook", "set")]
    found += [_subject("growth", "none", growth, "hook")]
    found += [_subject("heavy", place, heavy) for place in ("none", "sqlite", "postgres")]
    found += [_subject("fresh", place, fresh) for place in DURABLE]
    found += [_subject("big", place, big) for place in DURABLE]
    found += [_subject("big", place, big, how) for place in ("sqlite", "postgres") for how in ("small", "hook")]
    found += [_subject("history", place, history) for place in STORED]
    found += [_subject("fanout", place, fanout) for place in KEEPS]
    found += [_subject("many", place, many) for place in KEEPS]
    found += [_subject(case, place, crash) for case in CRASHES for place in DURABLE]
    return [one for one in found if not one.postgres or hasattr(stepwell, "PostgresCheckpointStorage")]


def _subject(case: str, place: str, run: Any, how: str | None = None) -> Subject:
    name = "stepwell" if place == "none" else f"stepwell-{place}"
    named = name if how is None else f"{name}-{how}"
    options = {} if how is None else {"how": how}
    return Subject(case, named, KEEPS[place], partial(run, place=place, **options), postgres=place == "postgres")


SUBJECTS = _subjects()
