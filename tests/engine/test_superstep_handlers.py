"""Handlers of one superstep: order, failures, durability of outcomes, isolation of messages, keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    StateConflict,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    persistent,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from tests.engine.superstep_samples import Ctx, ender, passer, sender


async def test_one_executor_gets_its_messages_in_the_order_they_were_sent() -> None:
    seen: list[Any] = []
    start, end = sender("start", *range(50)), passer("end", seen)
    await WorkflowBuilder(start_executor=start, on_unroutable="drop").add_edge(start, end).build().run(0)
    assert seen == [("end", n) for n in range(50)]


async def test_results_are_folded_in_plan_order_whatever_the_finishing_order() -> None:
    ids = ["a", "b", "c"]

    async def run(pauses: dict[str, float]) -> tuple[list[Any], list[Any]]:
        def worker(id: str) -> Any:
            @executor(id=id)
            async def go(message: int, ctx: Ctx) -> None:
                await asyncio.sleep(pauses[id])
                ctx.append_state("log", id)
                await ctx.yield_output(id)
                await ctx.send_message(id)

            return go

        seen: list[Any] = []

        @executor(id="end")
        async def end(message: str, ctx: Ctx) -> None:
            seen.append(message)
            await ctx.yield_output(ctx.get_state("log"))

        start, workers = passer("start"), [worker(id) for id in ids]
        builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, workers)
        for one in workers:
            builder.add_edge(one, end)
        return (await builder.build().run(0)).get_outputs(), seen

    first = await run({"a": 0.02, "b": 0.01, "c": 0})
    assert first == (["a", "b", "c", ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]], ["a", "b", "c"])
    assert first == await run({"a": 0, "b": 0.01, "c": 0.02})


# --- failures -----------------------------------------------------------------------------------------------------


class Trouble:
    """A fan-out of workers that count their calls and fail while they are told to."""

    def __init__(self, *failing: str, storage: Any = None) -> None:
        self.calls: Counter[str] = Counter()
        self.failing = set(failing)
        self.storage: Any = storage or InMemoryCheckpointStorage()

    def build(self, *ids: str) -> Workflow:
        start, end = passer("start"), ender()
        workers = [self.worker(id) for id in ids]
        return (
            WorkflowBuilder(start_executor=start, checkpoint_storage=self.storage)
            .add_fan_out_edges(start, workers)
            .add_fan_in_edges(workers, end)
            .build()
        )

    def worker(self, id: str) -> Any:
        @executor(id=id)
        async def go(message: Any, ctx: Ctx) -> None:
            self.calls[id] += 1
            ctx.append_state("log", id)
            if id in self.failing:
                raise ValueError(f"{id} is in trouble")
            await asyncio.sleep(0.005)  # longer than the failing ones take
            await ctx.send_message(id)

        return go


@pytest.mark.parametrize("streaming", [False, True])
async def test_siblings_of_a_failed_handler_finish_and_are_kept(streaming: bool) -> None:
    trouble = Trouble("b")
    run = trouble.build("a", "b", "c").run(0, run_id="r", stream=streaming)
    with pytest.raises(HandlerFailed, match="executor 'b' failed in run 'r': ValueError: b is in trouble") as caught:
        await run
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.executor_id, caught.value.run_id) == ("b", "r")
    assert trouble.calls == {"a": 1, "b": 1, "c": 1}
    trouble.failing.clear()
    result = await trouble.build("a", "b", "c").run(run_id="r")
    assert trouble.calls == {"a": 1, "b": 2, "c": 1}
    assert result.get_outputs() == [["a", "b", "c"]]
    head = await trouble.storage.get_latest(run_id="r")
    assert head.state["log"] == ["a", "b", "c"]  # what the failed attempt wrote is not there


async def test_several_failures_at_once_are_all_told_and_all_run_again() -> None:
    trouble = Trouble("a", "c")
    with pytest.raises(HandlerFailed, match="'a'") as caught:
        await trouble.build("a", "b", "c").run(0, run_id="r")
    assert "executor 'c' failed" in "".join(caught.value.__notes__)
    told = await trouble.storage.event_history("r")
    assert [e.executor_id for e in told if e.type == "executor_failed"] == ["a", "c"]
    trouble.failing = {"c"}
    with pytest.raises(HandlerFailed, match="'c'"):
        await trouble.build("a", "b", "c").run(run_id="r")
    trouble.failing.clear()
    assert (await trouble.build("a", "b", "c").run(run_id="r")).get_outputs() == [["a", "b", "c"]]
    assert trouble.calls == {"a": 2, "b": 1, "c": 3}


async def test_what_comes_after_a_failed_message_of_one_executor_waits_for_it() -> None:
    seen: list[int] = []
    broken = True

    class Worker(Executor):
        count = persistent(0)

        @handler
        async def work(self, message: int, ctx: WorkflowContext[Any, int]) -> None:
            self.count += 1
            seen.append(message)
            if message == 2 and broken:
                raise ValueError("two")
            ctx.set_state("last", (ctx.get_state("last") or ()) + (message,))
            await ctx.yield_output(self.count)

    def build() -> Workflow:
        start = sender("start", 1, 2, 3)
        return WorkflowBuilder(start_executor=start, checkpoint_storage=storage).add_edge(start, Worker("w")).build()

    storage = InMemoryCheckpointStorage()
    with pytest.raises(HandlerFailed):
        await build().run(0, run_id="r")
    assert seen == [1, 2]
    broken = False
    result = await build().run(run_id="r")
    assert seen == [1, 2, 2, 3]
    assert result.get_outputs() == [1, 2, 3]
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert head.state["last"] == (1, 2, 3)


async def test_a_handler_that_lets_a_cancellation_of_its_own_escape_has_failed() -> None:
    calls: Counter[str] = Counter()

    @executor(id="own")
    async def own(message: int, ctx: Ctx) -> None:
        raise asyncio.CancelledError

    @executor(id="inner")
    async def inner(message: int, ctx: Ctx) -> None:
        task = asyncio.ensure_future(asyncio.sleep(10))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    @executor(id="sibling")
    async def sibling(message: int, ctx: Ctx) -> None:
        await asyncio.sleep(0.005)
        calls["sibling"] += 1

    start = passer("start")
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [own, inner, sibling]).build()
    with pytest.raises(HandlerFailed, match=r"'own'.*CancelledError") as caught:
        await workflow.run(1)
    assert "'inner'" in "".join(caught.value.__notes__)
    assert calls == {"sibling": 1}


@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_that_lets_stop_iteration_escape_has_failed_and_nobody_waits_for_ever(plain: bool) -> None:
    if plain:

        @executor(id="bad")
        def bad(message: int) -> None:
            next(iter(()))
    else:

        @executor(id="bad")
        async def bad(message: int) -> None:
            next(iter(()))

    with pytest.raises(HandlerFailed, match="StopIteration"):
        await asyncio.wait_for(_run(WorkflowBuilder(start_executor=bad).build()), 5)


async def _run(workflow: Workflow) -> Any:
    return await workflow.run(1)


async def test_a_conflict_fails_the_superstep_and_a_reducer_lets_it_go_on_without_running_anything_again() -> None:
    calls: Counter[str] = Counter()
    storage = InMemoryCheckpointStorage()

    def build(**options: Any) -> Workflow:
        def worker(id: str) -> Any:
            @executor(id=id)
            async def go(message: int, ctx: Ctx) -> None:
                calls[id] += 1
                ctx.set_state("k", [id])

            return go

        start = passer("start")
        return (
            WorkflowBuilder(start_executor=start, checkpoint_storage=storage, **options)
            .add_fan_out_edges(start, [worker("a"), worker("b")])
            .build()
        )

    with pytest.raises(StateConflict, match=r"state\['k'\] was written by 'a' and 'b'"):
        await build().run(1, run_id="r")
    await build(reducers={"k": lambda there, new: there + new}).run(run_id="r")
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert head.state["k"] == ["a", "b"]
    assert calls == {"a": 1, "b": 1}


async def test_what_a_handler_did_is_durable_when_it_returns_also_if_it_was_the_last() -> None:
    """A process that dies while a sibling still runs does not run the finished ones again."""
    inner, calls, hold = MemoryStore(), Counter[str](), asyncio.Event()

    def build(store: Any) -> Workflow:
        def worker(id: str) -> Any:
            @executor(id=id)
            async def go(message: int, ctx: Ctx) -> None:
                calls[id] += 1
                if id == "slow":
                    await hold.wait()
                await ctx.yield_output(id)

            return go

        start = passer("start")
        return (
            WorkflowBuilder(start_executor=start, checkpoint_storage=BuiltInStorage(store))
            .add_fan_out_edges(start, [worker("slow"), worker("fast")])
            .build()
        )

    first = asyncio.ensure_future(_named(build(inner)))
    while not (await inner.open("r")).log:  # noqa: ASYNC110 - a store tells nobody that it was written to
        await asyncio.sleep(0.001)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    hold.set()
    assert (await build(inner).run(run_id="r")).get_outputs() == ["slow", "fast"]
    assert calls == {"slow": 2, "fast": 1}


async def _named(workflow: Workflow) -> Any:
    return await workflow.run(1, run_id="r")


# --- nobody sees what another does to a value ---------------------------------------------------------------------


@dataclass
class Box:
    items: list[str]


STORED = pytest.mark.parametrize("stored", [False, True])


def storage_if(stored: bool) -> Any:
    return InMemoryCheckpointStorage() if stored else None


@STORED
async def test_what_a_handler_changes_after_sending_or_yielding_is_not_seen(stored: bool) -> None:
    @executor(id="start")
    async def start(message: Box, ctx: Ctx) -> None:
        await ctx.send_message(message)
        await ctx.yield_output(message)
        ctx.set_state("box", message)
        ctx.append_state("log", message)
        message.items.append("late")

    @executor(id="end")
    async def end(message: Box, ctx: Ctx) -> None:
        await ctx.yield_output([message, ctx.get_state("box"), *ctx.get_state("log")])

    given = Box(["a"])
    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=storage_if(stored)).add_edge(start, end)
    result = await builder.build().run(given)
    assert result.get_outputs() == [Box(["a"]), [Box(["a"])] * 3]
    assert given == Box(["a"])


@STORED
async def test_what_one_target_of_a_fan_out_does_to_a_message_is_not_seen_by_the_other(stored: bool) -> None:
    start = passer("start")

    @executor(id="vandal")
    async def vandal(message: Box, ctx: Ctx) -> None:
        message.items.clear()

    @executor(id="reader")
    async def reader(message: Box, ctx: Ctx) -> None:
        await asyncio.sleep(0.001)
        await ctx.yield_output(message)

    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=storage_if(stored))
    result = await builder.add_fan_out_edges(start, [vandal, reader]).build().run(Box(["a"]))
    assert result.get_outputs() == [Box(["a"])]


@STORED
async def test_a_value_from_get_state_may_be_changed_and_counts_only_after_set_state(stored: bool) -> None:
    @executor(id="start")
    async def start(message: Box, ctx: Ctx) -> None:
        ctx.set_state("box", message)
        ctx.get_state("box").items.append("lost")
        mine = ctx.get_state("box")
        mine.items.append("kept")
        ctx.set_state("box", mine)
        await ctx.send_message(None)

    @executor(id="end")
    async def end(message: None, ctx: Ctx) -> None:
        ctx.get_state("box").items.append("lost")
        await ctx.yield_output(ctx.get_state("box"))

    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=storage_if(stored)).add_edge(start, end)
    assert (await builder.build().run(Box(["a"]))).get_outputs() == [Box(["a", "kept"])]


@STORED
async def test_what_an_observer_does_to_an_event_is_not_seen_by_the_handlers(stored: bool) -> None:
    start = passer("start")
    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=storage_if(stored)).add_edge(start, ender())
    stream = builder.build().run(Box(["a"]), stream=True)
    async for event in stream:
        match event.data:
            case Box() as box:
                box.items.append("seen")
            case [Box() as box]:
                box.items.append("seen")
    assert (await stream).get_outputs() == [Box(["a", "seen"])]  # the reader's own copy of the output
    assert len([e for e in await stream if e.type == "output"]) == 1


async def test_what_a_failed_attempt_changed_is_not_seen_by_the_next() -> None:
    seen: list[Any] = []

    class Worker(Executor):
        count = persistent(0)

        def __init__(self) -> None:
            super().__init__("worker")
            self.tries: list[int] = []

        @handler
        async def work(self, message: Box, ctx: WorkflowContext[Any, Any]) -> None:
            seen.append((message.items[:], self.count, self.tries[:], ctx.get_state("k")))
            message.items.append("dirt")
            self.count += 1
            self.tries.append(1)
            ctx.set_state("k", "dirt")
            await ctx.yield_output("dirt")
            if len(seen) < 3:
                raise ValueError("not yet")

    workflow = WorkflowBuilder(start_executor=Worker(), checkpoint_storage=InMemoryCheckpointStorage()).build()
    for _ in range(2):
        with pytest.raises(HandlerFailed):
            await workflow.run(Box(["a"]), run_id="r")
    assert (await workflow.run(run_id="r")).get_outputs() == ["dirt"]
    assert seen == [(["a"], 0, [], None)] * 3


@pytest.mark.parametrize("what", ["send_message", "yield_output", "set_state", "delete_state", "append_state"])
async def test_a_context_used_after_its_handler_returned_says_so(what: str) -> None:
    kept: list[Any] = []

    @executor(id="start")
    async def start(message: int, ctx: Ctx) -> None:
        kept.append(ctx)
        ctx.set_state("k", [1])

    await WorkflowBuilder(start_executor=start).build().run(1)
    args = {"send_message": ("x",), "yield_output": ("x",), "delete_state": ("k",)}.get(what, ("k", 1))
    with pytest.raises(RuntimeError, match=f"{what} was called after the handler of 'start' had returned"):
        getattr(kept[0], what)(*args)


async def test_a_handler_knows_who_sent_its_message_and_what_it_has_given_so_far() -> None:
    found: dict[str, Any] = {}

    @executor(id="start")
    async def start(message: Any, ctx: Ctx) -> None:
        found["start"] = (ctx.source_executor_ids, ctx.get_source_executor_id(), ctx.executor_id)
        await ctx.send_message(1)
        await ctx.yield_output(2)
        found["given"] = (ctx.get_sent_messages(), ctx.get_yielded_outputs())

    a, b = passer("a"), passer("b")

    @executor(id="end")
    async def end(message: list[int], ctx: Ctx) -> None:
        found["end"] = ctx.source_executor_ids
        with pytest.raises(RuntimeError, match="a, b"):
            ctx.get_source_executor_id()

    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [a, b]).add_fan_in_edges([a, b], end)
    await builder.build().run(0)
    assert found == {"start": ([], None, "start"), "given": ([1], [2]), "end": ["a", "b"]}


async def test_an_idempotency_key_is_the_same_for_every_attempt_and_for_no_other_delivery() -> None:
    keys: list[str] = []
    broken = True

    @executor(id="start")
    async def start(message: int, ctx: Ctx) -> None:
        keys.append(ctx.idempotency_key)
        if broken:
            raise ValueError("again")

    workflow = WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r")
    broken = False
    await workflow.run(run_id="r")
    await workflow.run(1, run_id="other")
    assert keys[0] == keys[1] != keys[2]
