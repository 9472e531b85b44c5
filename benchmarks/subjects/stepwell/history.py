"""A store that holds long runs: read, listed and resumed."""

import time
from collections.abc import Sequence
from typing import Any

import machine
from job import Job
from material import conversation

from stepwell import Executor, Workflow, WorkflowContext, handler
from subjects.stepwell.workflow import close, looping, storage, storage_maker


class Counter(Executor):
    """Counts up for ever, or adds to a conversation, and knows when it was called last."""

    def __init__(self, messages: Sequence[Any] = ()) -> None:
        super().__init__("turn")
        self.messages, self.called_at = messages, 0.0

    @handler
    async def turn(self, number: int, ctx: WorkflowContext[int]) -> None:
        self.called_at = time.perf_counter()
        if self.messages:
            ctx.append_state("heard", self.messages[number % len(self.messages)])
        else:
            ctx.set_state("number", number)
        await ctx.send_message(number + 1)

    def clone(self) -> "Counter":
        return self


async def prepare_history(job: Job, place: str) -> None:
    kept = storage(place, job)
    counting, talking = (looping_long(job, each, kept) for each in (Counter(), Counter(conversation(job["talk"]))))
    await move(counting.run(0, run_id="few", stream=True), upto=job["few"])
    await move(counting.run(0, run_id="many", stream=True), upto=job["checkpoints"])
    await move(talking.run(0, run_id="talk", stream=True), upto=job["talk"])
    await close(kept)


def looping_long(job: Job, counter: Counter, kept: Any) -> Workflow:
    return looping(counter, kept, limit=2 * job["checkpoints"])


async def history(job: Job, place: str) -> None:
    """Measure in a new process, in a store that `prepare_history` has filled."""
    make_storage, counter, talker = storage_maker(place, job), Counter(), Counter(conversation(job["talk"]))
    began = time.perf_counter()
    kept = make_storage()
    counting = looping_long(job, counter, kept)
    await move(counting.run(run_id="many", stream=True), upto=0)
    job.notes["open_to_handler_ms"] = (counter.called_at - began) * 1000
    job.notes["process_to_handler_ms"] = (
        machine.seconds_since_start() - time.perf_counter() + counter.called_at
    ) * 1000
    talking = looping_long(job, talker, kept)
    for _ in range(job["looks"]):
        for run_id, workflow in (("few", counting), ("many", counting), ("talk", talking)):
            with job.lap(f"latest_ms_{run_id}"):
                await kept.get_latest(run_id=run_id)
            with job.lap(f"page_ms_{run_id}"):
                await kept.list_checkpoint_ids(run_id=run_id, limit=job["page"])
            began = time.perf_counter()
            with job.lap(f"resume_ms_{run_id}"):
                await move(workflow.run(run_id=run_id, stream=True), upto=0)
            job.note_lap(f"next_ms_{run_id}", max(counter.called_at, talker.called_at) - began)
    await close(kept)


async def move(stream: Any, *, upto: int) -> None:
    """Drive a run until this superstep is committed, and stop."""
    async with stream:
        async for event in stream:
            if event.type == "superstep_completed" and event.iteration >= upto:
                return
