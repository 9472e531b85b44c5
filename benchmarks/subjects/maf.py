"""Microsoft Agent Framework: one workflow object per run, because an object executes one run at a time."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from agent_framework import (
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from crash import CRASHES, HANDLERS, LAST, Marks
from job import Job, Keeps, Laps, Subject
from material import conversation, documents
from superstep_trace import Tracer

WARM = 10
NAME = "loop"
KEEPS: Mapping[str, Keeps] = {"none": "none", "memory": "mem", "files": "page"}
STORED = ("memory", "files")


def storage(place: str, job: Job) -> Any:
    match place:
        case "memory":
            return InMemoryCheckpointStorage()
        case "files":
            return FileCheckpointStorage(str(job.folder / "runs"))
    return None


def looping(start: Executor, kept: Any, *, limit: int) -> Workflow:
    builder = WorkflowBuilder(
        max_iterations=limit + WARM, name=NAME, start_executor=start, checkpoint_storage=kept, output_from=[start]
    )
    return builder.add_edge(start, start).build()


class Counter(Executor):
    """Counts down, with a tiny state."""

    def __init__(self, laps: Laps | Tracer | None = None, run: int = 0) -> None:
        super().__init__("turn")
        self.laps, self.run = laps, run

    @handler
    async def turn(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        if self.laps is not None:
            self.laps.mark(self.run)
        ctx.set_state("left", left)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))


async def chain(job: Job, place: str) -> None:
    kept = storage(place, job)
    await looping(Counter(), kept, limit=WARM).run(WARM)
    workflow = looping(Counter(), kept, limit=job["supersteps"])
    with job.counted():
        await workflow.run(job["supersteps"])


async def superstep(job: Job, place: str) -> None:
    tracer = Tracer("agent_framework")
    workflow = looping(Counter(tracer), storage(place, job), limit=job["supersteps"])
    await workflow.run(job["supersteps"])
    tracer.note(job)


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


async def growth(job: Job, place: str) -> None:
    messages, laps, turns = conversation(job["turns"]), Laps(), job["turns"]
    kept = storage(place, job)
    await looping(Listener(messages, Laps()), kept, limit=WARM).run(WARM)
    workflow = looping(Listener(messages, laps), kept, limit=turns)
    with job.counted():
        await workflow.run(turns)
    laps.note_costs(job)


class Librarian(Executor):
    """Sets documents once, in the shared state or in its own, and a counter at each turn."""

    def __init__(self, job: Job, texts: list[str], how: str) -> None:
        super().__init__("turn")
        self.job, self.texts, self.how, self.count = job, texts, how, 0

    @handler
    async def turn(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        self.count += 1
        if self.how == "state" and self.count == 1:
            ctx.set_state("texts", self.texts)
        if self.count == 2:
            self.job.start()
        ctx.set_state("count", self.count)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"texts": self.texts} if self.how == "hook" else {}


async def big(job: Job, place: str, how: str) -> None:
    start = Librarian(job, documents(job["kib"]), how)
    workflow = looping(start, storage(place, job), limit=job["supersteps"])
    await workflow.run(job["supersteps"] + 1)
    job.stop()


class Hub(Executor):
    """Sends to all workers, waits for all of them, and repeats."""

    @handler
    async def begin(self, rounds: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.send_message(rounds)

    @handler
    async def joined(self, done: list[int], ctx: WorkflowContext[int, int]) -> None:
        left = done[0] - 1
        await (ctx.send_message(left) if left else ctx.yield_output(0))


class Worker(Executor):
    @handler
    async def work(self, rounds: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(rounds)


def fan(job: Job, kept: Any) -> Workflow:
    hub, workers = Hub("hub"), [Worker(f"worker-{number}") for number in range(job["width"])]
    limit = 10 + 3 * job["rounds"]
    builder = WorkflowBuilder(
        max_iterations=limit, name="fan", start_executor=hub, checkpoint_storage=kept, output_from=[hub]
    )
    return builder.add_fan_out_edges(hub, workers).add_fan_in_edges(workers, hub).build()


async def fanout(job: Job, place: str) -> None:
    kept = storage(place, job)
    await fan(job, kept).run(1)
    workflow = fan(job, kept)
    with job.counted():
        await workflow.run(job["rounds"])


async def many(job: Job, place: str) -> None:
    kept, laps = storage(place, job), Laps()
    await looping(Counter(), kept, limit=WARM).run(WARM)
    workflows = [looping(Counter(laps, run), kept, limit=job["supersteps"]) for run in range(job["runs"])]
    with job.counted():
        await asyncio.gather(*(workflow.run(job["supersteps"]) for workflow in workflows))
    laps.note_latencies(job)


class Begin(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class OneOfTen(Executor):
    def __init__(self, number: int, marks: Marks, again: bool) -> None:
        super().__init__(f"worker-{number}")
        self.number, self.marks, self.again = number, marks, again

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, int]) -> None:
        self.marks.called(self.number)
        if self.number == LAST and not self.again:
            await asyncio.sleep(3600)
        await ctx.yield_output(self.number)
        self.marks.returns()


async def latest(kept: Any) -> str:
    return str((await kept.get_latest(workflow_name=NAME)).checkpoint_id)


async def crash(job: Job, place: str) -> None:
    marks, kept = Marks(job), storage(place, job)
    begin, ten = Begin("begin"), [OneOfTen(number, marks, job.again) for number in range(HANDLERS)]
    builder = WorkflowBuilder(name=NAME, start_executor=begin, checkpoint_storage=kept, output_from=ten)
    workflow = builder.add_fan_out_edges(begin, ten).build()
    if job.again:
        await workflow.run(checkpoint_id=await latest(kept))
    else:
        await workflow.run("go")


def _subject(case: str, place: str, run: Any, how: str | None = None) -> Subject:
    name = "maf" if place == "none" else f"maf-{place}"
    named = f"{name}-hook" if how == "hook" else name
    options = {} if how is None else {"how": how}
    return Subject(case, named, KEEPS[place], partial(run, place=place, **options))


SUBJECTS = [
    *(_subject("chain", place, chain) for place in KEEPS),
    *(_subject("growth", place, growth) for place in ("none", *STORED)),
    *(_subject("big", "files", big, how) for how in ("state", "hook")),
    _subject("superstep", "files", superstep),
    *(_subject("fanout", place, fanout) for place in KEEPS),
    *(_subject("many", place, many) for place in KEEPS),
    *(_subject(case, "files", crash) for case in CRASHES),
]
