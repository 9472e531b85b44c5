"""A run with something of everything in it, what is stored of it at three moments, and every way to read that again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from stepwell import (
    Executor,
    StepwellError,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.intake.responses import send_responses
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.integrity import add_checksum
from stepwell.storage.stored_values import CommitEffects, Record, RequestEntry, RunEntry
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock
from tests.support import figures

RUN = "victim"
FOR_EVER = 120  # seconds: what is not done by then never ends


@dataclass
class Order:
    item: str
    price: int


class Clerk(Executor):
    @handler
    async def ask(self, order: Order, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(order, bool, deadline=timedelta(days=3), default=False, request_id="sell?")

    @response_handler
    async def decided(self, original_request: Order, response: bool, ctx: WorkflowContext[None, Order]) -> None:
        await ctx.yield_output(original_request)


class Price(Executor):
    @handler
    async def price(self, order: Order, ctx: WorkflowContext[int]) -> None:
        async def look() -> int:
            return order.price

        await ctx.send_message(await ctx.step("look", look))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"large": "x" * 2000}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None: ...


@executor(id="split")
async def split(order: Order, ctx: WorkflowContext[Order]) -> None:
    ctx.set_state("large", "y" * 3000)
    await ctx.send_message(order)


@executor(id="stock")
async def stock(order: Order, ctx: WorkflowContext[int]) -> None:
    ctx.set_state("large", "y" * 3000 + order.item)  # stored as what changed
    ctx.append_state("log", order)
    await ctx.sleep(timedelta(hours=3))
    await ctx.send_message(2)


@executor(id="pack")
async def pack(numbers: list[int], ctx: WorkflowContext[None, int]) -> None:
    await ctx.yield_output(sum(numbers))


def build(storage: Any) -> Workflow:
    inner = WorkflowBuilder(name="desk", start_executor=Clerk("clerk")).build()
    desk, price = WorkflowExecutor(inner, "desk"), Price("price")
    return (
        WorkflowBuilder(name="shop", start_executor=split, checkpoint_storage=storage)
        .add_edge(split, desk)
        .add_fan_out_edges(desk, [price, stock])
        .add_fan_in_edges([price, stock], pack)
        .build()
    )


@dataclass(frozen=True)
class Text:
    """A text that is stored, and where."""

    where: tuple[Any, ...]  # what its sum is bound to
    body: bytes = field(repr=False)
    record: Record | None = field(default=None, repr=False)

    @property
    def tree(self) -> Any:
        tree = json.loads(self.body)
        del tree["sum"]
        return tree

    def summed(self, body: bytes) -> bytes:
        """Another body in its place, with the sum that belongs there: whoever attacks can add up, too."""
        return add_checksum(body, "\0".join(map(str, self.where)).encode())


@dataclass(frozen=True)
class Moment:
    """All that is stored at a moment."""

    texts: tuple[Text, ...] = field(repr=False)
    pending: tuple[RequestEntry, ...] = field(repr=False)
    runs: tuple[RunEntry, ...]

    async def store(self, changes: Mapping[int, bytes] | None = None) -> MemoryStore:
        """A store that holds it, with other bodies for the texts of these indexes."""
        store, listed = MemoryStore(), {run.run_id: run for run in self.runs}
        for index, text in enumerate(self.texts):
            body = (changes or {}).get(index, text.body)
            if text.record is not None:
                entry = text.record.entry
                asked = tuple(one for one in self.pending if one.run_id == entry.run_id)
                run = listed[entry.run_id]
                effects = CommitEffects(asked=asked, wake=run.wake, metadata=run.metadata)
                await store.rewrite(entry.run_id, insert=Record(entry, body), effects=effects)
            elif text.where[0] == "memory":
                _, run_id, place, key = text.where
                await store.write_log(run_id, place, key, body)
            else:
                _, run_id, key = text.where
                await store.send(run_id, key, body)
        return store


async def moment_of(store: MemoryStore) -> Moment:
    texts: list[Text] = []
    runs = await store.runs(ALL_RUNS)
    for run in runs:
        for one in await store.history(run.run_id):
            entry = one.entry
            texts.append(Text(("commit", entry.run_id, entry.number, entry.checkpoint_id), one.body, one))
        opened = await store.open(run.run_id)
        texts += [Text(("memory", run.run_id, row.place, row.key), row.body) for row in opened.log]
        texts += [Text(("mail", run.run_id, signal.key), signal.body) for signal in opened.signals]
    return Moment(tuple(texts), tuple(await store.requests()), tuple(runs))


@cache
def moments() -> tuple[Moment, ...]:
    """The run when it waits for an answer, when the answer was posted, when it sleeps, and when it is done."""
    return asyncio.run(_moments())


async def _moments() -> tuple[Moment, ...]:
    store, found = MemoryStore(), []
    with FakeClock() as later:
        storage = BuiltInStorage(store)
        workflow = build(storage)
        await workflow.run(Order("cup", 3), run_id=RUN, tags={"team": "red"})
        found.append(await moment_of(store))
        archive = workflow._archive_on(storage)
        head = await archive.head(RUN)
        assert head is not None
        answers = {"sell?": DEFAULT_CODEC.pack(True, "$")}
        await send_responses(archive, head, answers, requests=head.requests, pending={})
        found.append(await moment_of(store))
        await workflow.run(run_id=RUN)
        found.append(await moment_of(store))
        later(hours=4)
        result = await workflow.run(run_id=RUN)
        found.append(await moment_of(store))
        assert result.get_outputs() == [5]
    return tuple(found)


async def only_typed(what: str, work: Awaitable[Any], errors: tuple[type[Exception], ...] = (StepwellError,)) -> bool:
    """Whether it was done. It may raise our errors, in words, and must not take for ever."""
    figures.note("bad inputs")
    try:
        await asyncio.wait_for(work, FOR_EVER)
        done = True
    except errors as error:
        said, done = str(error), False
    else:
        said = "it was done"
    assert len(said) > 10, f"{what}: an error should be a sentence, not {said!r}"
    return done


async def read_everything(store: Any, run_id: str = RUN) -> int:
    """Read what is stored in every way there is. How much of it could be read."""
    storage = BuiltInStorage(store)
    workflow, done = build(storage), 0
    ways = {
        "list_checkpoints": _opened(storage.list_checkpoints()),
        "get_latest": _opened(storage.get_latest(run_id=run_id)),
        "load": _loaded(storage, run_id),
        "list_runs": storage.list_runs(),
        "pending_requests": storage.pending_requests(),
        "ready_runs": storage.ready_runs(),
        "event_history": _told(storage, run_id),
        "status": workflow.attach(run_id, drive=True).status(),
        "fork": _forked(workflow, storage, run_id),
        "run": _driven(workflow, run_id),
    }
    for what, work in ways.items():
        done += await only_typed(what, work)
    return done


async def _opened(found: Awaitable[Any]) -> None:
    seen = await found
    for one in [] if seen is None else seen if isinstance(seen, list) else [seen]:
        _look_at(one)


def _look_at(seen: WorkflowCheckpoint) -> None:
    for values in (seen.state, seen.executor_states):
        for key in values:
            values[key]
    for messages in seen.messages.values():
        for message in messages:
            message.data  # noqa: B018
    for event in seen.pending_request_info_events.values():
        (event.data, event.deadline, event.response_schema)  # noqa: B018
    _look_again = WorkflowCheckpoint.from_dict(json.loads(json.dumps(seen.to_dict())))
    assert _look_again.checkpoint_id == seen.checkpoint_id


async def _loaded(storage: BuiltInStorage, run_id: str) -> None:
    for id in await storage.list_checkpoint_ids(run_id=run_id):
        _look_at(await storage.load(id))
        await storage.message_history(id)


async def _told(storage: BuiltInStorage, run_id: str) -> None:
    for event in await storage.event_history(run_id):
        event.data  # noqa: B018


async def _forked(workflow: Workflow, storage: BuiltInStorage, run_id: str) -> None:
    ids = await storage.list_checkpoint_ids(run_id=run_id)
    if ids:
        (await workflow.run(checkpoint_id=ids[len(ids) // 2], run_id="forked")).get_outputs()


async def _driven(workflow: Workflow, run_id: str) -> None:
    with FakeClock() as later:
        result = await workflow.run(run_id=run_id)
        answers = {event.request_id: True for event in result.get_request_info_events()}
        if answers:
            await workflow.run(run_id=run_id, responses=answers)
        later(hours=30)
        (await workflow.run(run_id=run_id)).get_outputs()
