"""Cancelling, limits, many runs of one workflow object, executors in checkpoints, and private values."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    PrivateMissing,
    RetryPolicy,
    RoutingFailed,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    SuperstepLimit,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Record
from stepwell.stores.memory.store import MemoryStore
from tests.engine.running_samples import Chain, Ctx


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return InMemoryCheckpointStorage() if request.param == "memory" else SQLiteCheckpointStorage(tmp_path / "runs.db")


# --- cancelling ---------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_lets_its_handlers_clean_up_and_ends_cancelled_and_can_be_resumed() -> None:
    chain = Chain(2)
    chain.hold["s2"] = asyncio.Event()
    stream = chain.build().run("x", stream=True, run_id="r")
    told = []
    async for event in stream:
        told.append(event)
        if event.type == "executor_invoked" and event.executor_id == "s2":
            await asyncio.sleep(0.001)
            await stream.cancel()
    assert chain.cleaned == ["s2"]
    assert [(e.type, e.state) for e in told[-2:]] == [
        ("checkpoint", WorkflowRunState.CANCELLED),
        ("status", WorkflowRunState.CANCELLED),
    ]
    assert (await stream).get_final_state() is WorkflowRunState.CANCELLED
    assert (await chain.heads("r"))[-1].status is WorkflowRunState.CANCELLED
    chain.hold.clear()
    result = await chain.build().run(run_id="r")
    assert (result.get_outputs(), result.get_final_state()) == (["x"], WorkflowRunState.IDLE)
    assert chain.calls == {"s1": 1, "s2": 2}


async def test_a_run_cancelled_by_another_task_tells_its_reader_everything() -> None:
    chain = Chain(1)
    chain.hold["s1"] = asyncio.Event()
    stream = chain.build().run("x", stream=True, run_id="r")

    async def read() -> list[tuple[str, Any]]:
        return [(event.type, event.state) async for event in stream]

    reader = asyncio.ensure_future(read())
    await chain.reached("s1")
    await stream.cancel()
    assert (await reader)[-1] == ("status", WorkflowRunState.CANCELLED)


async def test_what_had_finished_before_a_cancellation_is_kept() -> None:
    calls: Counter[str] = Counter()
    hold: asyncio.Event | None = asyncio.Event()
    storage = InMemoryCheckpointStorage()

    def build() -> Workflow:
        @executor(id="start")
        async def start(message: int, ctx: Ctx) -> None:
            await ctx.send_message(message)

        @executor(id="quick")
        async def quick(message: int, ctx: Ctx) -> None:
            calls["quick"] += 1
            await ctx.yield_output("quick")

        @executor(id="slow")
        async def slow(message: int, ctx: Ctx) -> None:
            calls["slow"] += 1
            if hold is not None:
                await hold.wait()
            await ctx.yield_output("slow")

        builder = WorkflowBuilder(start_executor=start, checkpoint_storage=storage)
        return builder.add_fan_out_edges(start, [quick, slow]).build()

    stream = build().run(1, stream=True, run_id="r")
    async for event in stream:
        if event.executor_id == "slow":
            await asyncio.sleep(0.001)
            await stream.cancel()
            break
    hold = None
    assert (await build().run(run_id="r")).get_outputs() == ["quick", "slow"]
    assert calls == {"quick": 1, "slow": 2}


async def test_cancelling_before_the_first_event_stores_a_cancelled_run_that_ran_nothing() -> None:
    chain = Chain(1)
    stream = chain.build().run("x", stream=True, run_id="r")
    await stream.cancel()
    assert chain.calls == {}
    assert (await stream).get_final_state() is WorkflowRunState.CANCELLED
    assert (await chain.build().run(run_id="r")).get_outputs() == ["x"]


async def test_cancelling_a_finished_run_changes_nothing() -> None:
    chain = Chain(1)
    stream = chain.build().run("x", stream=True, run_id="r")
    await stream
    await stream.cancel()
    assert (await stream).get_final_state() is WorkflowRunState.IDLE
    assert len(await chain.heads("r")) == 2


# --- limits -------------------------------------------------------------------------------------------------------


async def test_max_iterations_names_what_still_ran_and_a_larger_limit_goes_on() -> None:
    calls = []
    storage = InMemoryCheckpointStorage()

    def build(limit: int) -> Workflow:
        @executor(id="loop")
        async def loop(message: int, ctx: Ctx) -> None:
            calls.append(message)
            await (ctx.send_message(message + 1) if message < 7 else ctx.yield_output(message))

        return (
            WorkflowBuilder(start_executor=loop, max_iterations=limit, checkpoint_storage=storage)
            .add_edge(loop, loop)
            .build()
        )

    with pytest.raises(
        SuperstepLimit, match=r"took 3 supersteps.*'loop' would run next.*larger max_iterations"
    ) as caught:
        await build(3).run(1, run_id="r")
    assert caught.value.run_id == "r"
    assert calls == [1, 2, 3]
    with pytest.raises(SuperstepLimit):
        await build(3).run(run_id="r")
    assert calls == [1, 2, 3]
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert (head.status, head.iteration_count) == (WorkflowRunState.FAILED, 3)
    assert (await build(7).run(run_id="r")).get_outputs() == [7]
    assert calls == [1, 2, 3, 4, 5, 6, 7]


async def test_a_run_that_ends_exactly_at_the_limit_is_done() -> None:
    assert (await Chain(3).build(max_iterations=3).run("x")).get_outputs() == ["x"]


# --- many runs of one workflow object -----------------------------------------------------------------------------


class Busy(Executor):
    """Keeps a number in every place a number can be kept."""

    counted = persistent(0)
    listed = persistent(list[int]())

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.attribute = 0
        self.mine: list[int] = []
        self.hooked = 0

    @handler
    async def work(self, message: int, ctx: WorkflowContext[int, Any]) -> None:
        for _ in range(3):
            self.counted += message
            self.listed.append(message)
            self.attribute += message
            self.mine.append(message)
            self.hooked += message
            ctx.set_state("shared", ctx.get_state("shared", 0) + message)
            await asyncio.sleep(0)
        found = (self.counted, self.listed, self.attribute, self.mine, self.hooked, ctx.get_state("shared"))
        await ctx.yield_output(found)
        if len(self.mine) < 6:
            await ctx.send_message(message)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"hooked": self.hooked}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.hooked = state["hooked"]


@pytest.mark.long
async def test_a_thousand_runs_of_one_workflow_object_at_once_do_not_see_each_other(storage: Any) -> None:
    busy = Busy("busy")
    workflow = WorkflowBuilder(start_executor=busy, checkpoint_storage=storage).add_edge(busy, busy).build()
    results = await asyncio.gather(*(workflow.run(n, run_id=f"r{n}") for n in range(1000)))
    for n, result in enumerate(results):
        assert result.run_id == f"r{n}"
        assert result.get_outputs() == [(k * n, [n] * k, k * n, [n] * k, k * n, k * n) for k in (3, 6)]
        assert {e.run_id for e in result} == {f"r{n}"}
    assert len(await storage.list_checkpoint_ids()) == 3000
    head = await storage.get_latest(run_id="r7")
    assert head.executor_states["busy"] == {"hooked": 42, "counted": 42, "listed": [7] * 6}
    await storage.close()


async def test_the_first_run_uses_the_very_instances_and_later_ones_clones_as_at_build() -> None:
    busy = Busy("busy")
    busy.mine = [0]
    workflow = WorkflowBuilder(start_executor=busy, on_unroutable="drop").build()
    busy.mine.append(99)  # after build(): only the very instance has it
    first = await workflow.run(1)
    assert busy.mine == [0, 99, 1, 1, 1]
    second = await workflow.run(2)
    assert busy.mine == [0, 99, 1, 1, 1]
    assert first.get_outputs()[0][3] == [0, 99, 1, 1, 1]
    assert second.get_outputs()[0][3] == [0, 2, 2, 2]
    assert second.get_outputs()[0][0] == 6


async def test_a_run_that_was_refused_does_not_use_up_the_very_instances() -> None:
    busy = Busy("busy")
    workflow = WorkflowBuilder(start_executor=busy, on_unroutable="drop").build()
    with pytest.raises(RoutingFailed):
        await workflow.run("no number")
    await workflow.run(1)
    assert busy.mine == [1, 1, 1]


async def test_workflows_of_one_builder_share_an_instance_and_yet_no_state_when_they_run_at_once() -> None:
    busy = Busy("busy")
    builder = WorkflowBuilder(start_executor=busy, on_unroutable="drop")
    first, second = builder.build(), builder.build()
    results = await asyncio.gather(first.run(1), second.run(10))
    assert [result.get_outputs() for result in results] == [
        [(n * 3, [n] * 3, n * 3, [n] * 3, n * 3, n * 3)] for n in (1, 10)
    ]


async def test_a_run_restores_every_executor_and_saves_at_the_input_and_after_each_that_ran() -> None:
    saved: list[str] = []
    restored: list[tuple[str, Any]] = []

    class Hooked(Executor):
        def __init__(self, id: str) -> None:
            super().__init__(id)
            self.seen = 0

        @handler
        async def pass_on(self, message: int, ctx: WorkflowContext[int, int]) -> None:
            self.seen += 1
            if self.id == "b" and broken:
                raise ValueError("stop here")
            await (ctx.yield_output(self.seen) if self.id == "c" else ctx.send_message(message))

        async def on_checkpoint_save(self) -> dict[str, Any]:
            saved.append(self.id)
            return {"seen": self.seen}

        async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
            restored.append((self.id, state))
            self.seen = state["seen"]

    storage = InMemoryCheckpointStorage()

    def build() -> Workflow:
        made = [Hooked(id) for id in "abc"]
        return WorkflowBuilder(start_executor=made[0], checkpoint_storage=storage).add_chain(made).build()

    broken = True
    with pytest.raises(HandlerFailed):
        await build().run(1, run_id="r")
    assert saved == ["a", "b", "c", "a"]
    assert restored == []
    broken = False
    await build().run(run_id="r")
    assert restored == [("a", {"seen": 1}), ("b", {"seen": 0}), ("c", {"seen": 0})]
    assert saved == ["a", "b", "c", "a", "b", "c"]
    for checkpoint in await storage.list_checkpoints(run_id="r"):
        assert set(checkpoint.executor_states) == {"a", "b", "c"}


class Saver(Executor):
    """Counts how often it is saved."""

    def __init__(self, id: str = "saver", **limits: Any) -> None:
        super().__init__(id, **limits)
        self.seen = self.saves = 0

    @handler
    async def count(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        self.seen += 1
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output(self.seen))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        self.saves += 1
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Asker(Saver):
    @response_handler
    async def go_on(self, question: str, answer: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.send_message(answer)


@pytest.mark.parametrize(
    ("saver", "saves"), [(Saver(), 0), (Saver(retry=RetryPolicy(max_attempts=2)), 4), (Asker(), 0)]
)
async def test_a_run_that_is_not_stored_saves_an_executor_only_if_it_may_have_to_restore_it(
    saver: Saver, saves: int
) -> None:
    result = await WorkflowBuilder(start_executor=saver).add_edge(saver, saver).build().run(3)
    assert result.get_outputs() == [3]
    assert saver.saves == saves


async def test_an_executor_without_state_is_in_every_checkpoint_too() -> None:
    chain = Chain(2)
    await chain.build().run("x", run_id="r")
    assert [dict(c.executor_states) for c in await chain.heads("r")] == [{"s1": {}, "s2": {}}] * 3


# --- saves that fail ----------------------------------------------------------------------------------------------


async def _read(stream: Any, told: list[WorkflowEvent]) -> None:
    async for event in stream:
        told.append(event)


class Refusing(InMemoryCheckpointStorage):
    """A storage of the user's own whose save fails from the n-th on."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.saves = at, 0

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.saves += 1
        if self.saves >= self.at:
            raise OSError("disk full")
        return await super().save(checkpoint)


class RefusingStore(MemoryStore):
    def __init__(self, at: int, what: str = "append") -> None:
        super().__init__()
        self.at, self.what, self.writes = at, what, 0

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        self._count("append")
        await super().append(record, effects)

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, **options: Any) -> bool:
        self._count("write_log")
        return await super().write_log(run_id, place, key, body)

    def _count(self, what: str) -> None:
        self.writes += what == self.what
        if what == self.what and self.writes >= self.at:
            raise StoreUnavailable("disk full")


@pytest.mark.parametrize("make", [Refusing, lambda at: BuiltInStorage(RefusingStore(at))], ids=["six methods", "store"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_save_that_fails_fails_the_superstep_and_the_run_says_so(make: Callable[[int], Any], at: int) -> None:
    chain = Chain(3, make(at))
    told: list[WorkflowEvent] = []
    stream = chain.build().run("x", stream=True, run_id="r")
    with pytest.raises(StoreUnavailable, match="disk full"):
        await _read(stream, told)
    assert len(await chain.heads("r")) == at - 1
    assert sum(e.type == "superstep_completed" for e in told) == max(0, at - 2)
    assert not [e for e in told if e.type == "output"]
    if at > 1:
        assert [(e.type, e.state) for e in told[-2:]] == [
            ("failed", WorkflowRunState.FAILED),
            ("status", WorkflowRunState.FAILED),
        ]
        assert told[-2].details is not None
        assert "disk full" in told[-2].details.message
        assert told[-2].commit is None  # nothing that is not stored is told as if it were
    with pytest.raises(StoreUnavailable, match="disk full"):
        await Chain(3, make(at)).build().run("x", run_id="r")
    if isinstance(chain.storage, Refusing):
        chain.storage.at = 99
    else:
        chain.storage._store.inner.at = 99
    assert (await chain.build().run("x", run_id="r")).get_outputs() == ["x"]


async def test_an_outcome_that_could_not_be_kept_aside_does_no_harm_once_its_superstep_is_committed() -> None:
    chain = Fan(BuiltInStorage(RefusingStore(1, "write_log")))
    assert (await chain.build().run("x", run_id="r")).get_outputs() == ["a", "b", "c"]


async def test_an_outcome_that_could_not_be_kept_aside_fails_the_run_that_needs_it() -> None:
    chain = Fan(BuiltInStorage(RefusingStore(1, "write_log")))
    chain.failing = "b"
    with pytest.raises(StoreUnavailable, match="disk full"):
        await chain.build().run("x", run_id="r")


class Fan:
    def __init__(self, storage: Any) -> None:
        self.storage, self.failing = storage, ""

    def build(self) -> Workflow:
        def worker(id: str) -> Any:
            @executor(id=id)
            async def go(message: Any, ctx: Ctx) -> None:
                if id == self.failing:
                    raise ValueError("trouble")
                await ctx.yield_output(id)

            return go

        @executor(id="start")
        async def start(message: Any, ctx: Ctx) -> None:
            await ctx.send_message(message)

        builder = WorkflowBuilder(start_executor=start, checkpoint_storage=self.storage)
        return builder.add_fan_out_edges(start, [worker(id) for id in "abc"]).build()


# --- private values -----------------------------------------------------------------------------------------------


SECRET = "s3cr3t-do-not-write"


def whisperer(storage: Any) -> Workflow:
    @executor(id="first")
    async def first(message: str, ctx: Ctx) -> None:
        assert ctx.private["token"] == SECRET
        assert SECRET not in repr(ctx.private)
        assert list(ctx.private) == ["token"]
        await ctx.send_message(message)

    @executor(id="second")
    def second(message: str, ctx: Ctx) -> None:
        ctx.yield_output(len(ctx.private["token"]))

    return WorkflowBuilder(start_executor=first, checkpoint_storage=storage).add_edge(first, second).build()


async def test_private_values_can_be_read_and_are_in_no_stored_byte(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    result = await whisperer(storage).run("x", private={"token": SECRET})
    assert result.get_outputs() == [len(SECRET)]
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes()
    await storage.close()
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes()


async def test_a_private_value_that_is_missing_after_a_resume_is_a_clear_error_and_can_be_given_then() -> None:
    storage = InMemoryCheckpointStorage()
    async for event in whisperer(storage).run("x", private={"token": SECRET}, stream=True, run_id="r"):
        if event.type == "superstep_completed":
            break
    with pytest.raises(PrivateMissing, match="run 'r' was not passed the private value 'token'") as caught:
        await whisperer(storage).run(run_id="r")
    assert caught.value.run_id == "r"
    result = await whisperer(storage).run(run_id="r", private={"token": SECRET})
    assert result.get_outputs() == [len(SECRET)]
