"""Much state: a conversation that grows, documents that do not change, and twenty megabytes that do."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from job import Job, Laps
from material import KIB, conversation, documents

from stepwell import Executor, WorkflowContext, executor, handler
from subjects.stepwell.workflow import WARM, close, looping, storage


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


async def note_empty(place: str, job: Job) -> None:
    """Open and close an empty store, and note its size."""
    kept = storage(place, job)
    await kept.get_latest(run_id="nobody")
    await kept.close()
    job.note_empty()


async def growth(job: Job, place: str, how: str = "append") -> None:
    laps, warming = Laps(), Laps()
    turns = job["turns"]
    messages = conversation(turns)
    job.notes["conversation"] = turns * KIB
    if place != "none":
        await note_empty(place, job)
    kept = storage(place, job)
    await looping(talking(how, messages, warming), kept, limit=turns).run(WARM)
    workflow = looping(talking(how, messages, laps), kept, limit=turns)
    with job.counted():
        await workflow.run(turns)
    laps.note_costs(job)
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


class LoopTime:
    """CPU time of the event loop's thread, in a handler and between two handler calls."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = {}
        self._returned_at: float | None = None

    @contextmanager
    def handler(self) -> Iterator[None]:
        if self._returned_at is not None:
            self._spent.setdefault("between_cpu_ms", []).append(time.thread_time() - self._returned_at)
        yield
        self._returned_at = time.thread_time()

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._spent.setdefault(name, []).append(time.thread_time() - began)

    def note(self, job: Job) -> None:
        """Note the medians, and the worst turn: the first one writes all of the state."""
        job.notes |= {name: statistics.median(seconds) * 1000 for name, seconds in self._spent.items()}
        job.notes["most_between_cpu_ms"] = max(self._spent["between_cpu_ms"]) * 1000


class Owner(Executor):
    """Holds the whole state itself, and saves it by a hook."""

    def __init__(self, texts: list[str], times: LoopTime) -> None:
        super().__init__("turn")
        self.texts, self.times = texts, times

    @handler
    async def turn(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        with self.times.handler():
            self.texts[left] = self.texts[left][::-1]
            await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"texts": self.texts}


async def heavy(job: Job, place: str, how: str = "state") -> None:
    times, texts = LoopTime(), documents(job["kib"])
    for _ in range(5):
        with times.spent("encode_cpu_ms"):
            msgspec.json.encode(texts)

    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        with times.handler():
            with times.spent("read_cpu_ms"):
                current = ctx.get_state("texts") or texts
            current[left] = current[left][::-1]
            with times.spent("hand_over_cpu_ms"):
                ctx.set_state("texts", current)
            await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(0))

    kept = storage(place, job)
    workflow = looping(Owner(texts, times) if how == "hook" else turn, kept, limit=job["supersteps"])
    with job.counted():
        await workflow.run(job["supersteps"])
    times.note(job)
    await close(kept)
