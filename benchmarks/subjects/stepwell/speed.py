"""Many small supersteps: one after the other, side by side, in many runs, and killed."""

import asyncio
from collections.abc import Callable
from typing import Any

from crash import HANDLERS, LAST, Marks
from job import Job, Laps
from superstep_trace import Tracer

from stepwell import Executor, WorkflowBuilder, WorkflowContext, executor, handler
from subjects.stepwell.workflow import WARM, close, looping, storage


def counting_down(mark: Callable[[Any], None] = lambda ctx: None) -> Any:
    """Return an executor that counts down, with a tiny state."""

    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        mark(ctx)
        ctx.set_state("left", left)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    return turn


async def chain(job: Job, place: str) -> None:
    kept = storage(place, job)
    workflow = looping(counting_down(), kept, limit=job["supersteps"])
    await workflow.run(WARM)
    with job.counted():
        await workflow.run(job["supersteps"])
    await close(kept)


async def superstep(job: Job, place: str) -> None:
    tracer = Tracer("stepwell")
    kept = storage(place, job)
    await looping(counting_down(lambda ctx: tracer.mark()), kept, limit=job["supersteps"]).run(job["supersteps"])
    tracer.note(job)
    await close(kept)


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
    laps, kept = Laps(), storage(place, job)
    workflow = looping(counting_down(lambda ctx: laps.mark(ctx.run_id)), kept, limit=job["supersteps"])
    await workflow.run(WARM, run_id="warm")
    laps.forget()
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
