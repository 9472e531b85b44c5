"""What is told, in which order, and when it is true."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    StateConflict,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    executor,
    handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Record
from stepwell.stores.memory.store import MemoryStore
from stepwell.workflows import WorkflowEventSource

Ctx = WorkflowContext[Any, Any]
IN_PROGRESS, IDLE, FAILED = WorkflowRunState.IN_PROGRESS, WorkflowRunState.IDLE, WorkflowRunState.FAILED


class Script:
    """start → a, b, each of which yields; whoever is named in `failing` fails."""

    def __init__(self, storage: Any = None) -> None:
        self.storage = storage
        self.failing: set[str] = set()

    def chain(self, **options: Any) -> Workflow:
        start, a = self.step("start"), self.step("a", last=True)
        return self.builder(start, **options).add_edge(start, a).build()

    def fan_out(self, **options: Any) -> Workflow:
        start, a, b = self.step("start"), self.step("a", last=True), self.step("b", last=True)
        return self.builder(start, **options).add_fan_out_edges(start, [a, b]).build()

    def builder(self, start: Any, **options: Any) -> WorkflowBuilder:
        return WorkflowBuilder(start_executor=start, checkpoint_storage=self.storage, **options)

    def step(self, id: str, *, last: bool = False) -> Any:
        @executor(id=id)
        async def go(message: Any, ctx: Ctx) -> None:
            await asyncio.sleep(0)
            if id in self.failing:
                raise ValueError(f"{id} is in trouble")
            await (ctx.yield_output(f"{id}:{message}") if last else ctx.send_message(message))

        return go


async def told(workflow: Workflow, *args: Any, **options: Any) -> list[WorkflowEvent]:
    """Every event of a run, its error swallowed."""
    found: list[WorkflowEvent] = []
    try:
        async for event in workflow.run(*args, stream=True, **options):
            found.append(event)
    except (HandlerFailed, StateConflict):
        pass
    return found


def words(events: list[WorkflowEvent]) -> list[str]:
    """Each event as one word, with whom or what it is about."""
    found = []
    for event in events:
        about = event.executor_id or (event.state.value if event.type == "status" and event.state else event.iteration)
        found.append(f"{event.type} {about}" if about is not None else event.type)
    return found


CHAIN = [
    "started",
    "status IN_PROGRESS",
    "checkpoint 0",
    "superstep_started 1",
    "executor_invoked start",
    "executor_completed start",
    "superstep_completed 1",
    "checkpoint 1",
    "superstep_started 2",
    "executor_invoked a",
    "output a",
    "executor_completed a",
    "superstep_completed 2",
    "checkpoint 2",
    "status IDLE",
]


async def test_the_order_of_a_chain() -> None:
    assert words(await told(Script(InMemoryCheckpointStorage()).chain(), 1)) == CHAIN


async def test_the_order_of_a_chain_that_is_not_stored_has_no_checkpoints() -> None:
    assert words(await told(Script().chain(), 1)) == [word for word in CHAIN if not word.startswith("checkpoint")]


async def test_a_run_that_is_not_streamed_tells_the_same_without_checkpoints() -> None:
    result = await Script(InMemoryCheckpointStorage()).chain().run(1)
    assert words(list(result)) == [word for word in CHAIN if word.split()[0] not in ("started", "status", "checkpoint")]
    again = await Script().chain().run(1, include_status_events=True)
    assert words(list(again)) == [word for word in CHAIN if word.split()[0] not in ("started", "checkpoint")]


async def test_the_order_of_a_fan_out() -> None:
    found = words(await told(Script(InMemoryCheckpointStorage()).fan_out(), 1))
    assert found[8:] == [
        "superstep_started 2",
        "executor_invoked a",
        "executor_invoked b",
        "output a",
        "executor_completed a",
        "output b",
        "executor_completed b",
        "superstep_completed 2",
        "checkpoint 2",
        "status IDLE",
    ]


async def test_the_order_of_a_failure_and_of_its_resume() -> None:
    script = Script(InMemoryCheckpointStorage())
    script.failing.add("b")
    found = words(await told(script.fan_out(), 1, run_id="r"))
    assert found[8:] == [
        "superstep_started 2",
        "executor_invoked a",
        "executor_invoked b",
        "executor_returned a",
        "executor_failed b",
        "failed b",
        "checkpoint 1",
        "status FAILED",
    ]
    script.failing.clear()
    assert words(await told(script.fan_out(), run_id="r")) == [
        "started",
        "status IN_PROGRESS",
        "superstep_started 2",
        "executor_bypassed a",
        "executor_invoked b",
        "output a",
        "executor_completed a",
        "output b",
        "executor_completed b",
        "superstep_completed 2",
        "checkpoint 2",
        "status IDLE",
    ]
    again = await told(script.fan_out(), run_id="r")
    assert words(again) == ["started", "output a", "output b", "status IDLE"]
    assert [e.replayed for e in again] == [False, True, True, True]


async def test_every_event_has_a_state() -> None:
    class Chatty(Executor):
        @handler
        async def chat(self, message: int, ctx: WorkflowContext[int, str]) -> None:
            await ctx.add_event(WorkflowEvent("data", "live"))
            await ctx.yield_output("x")
            await ctx.send_message(message)
            if message > 1:
                raise ValueError("no")

    def build(storage: Any) -> Workflow:
        chatty = Chatty("chatty")
        builder = WorkflowBuilder(start_executor=chatty, checkpoint_storage=storage, on_unroutable="drop")
        return builder.build()

    for message, last in ((1, IDLE), (2, FAILED)):
        for storage in (None, InMemoryCheckpointStorage(), Plain()):
            found = await told(build(storage), message)
            assert all(isinstance(event.state, WorkflowRunState) for event in found)
            assert found[-1].state is last
            assert "data" in {event.type for event in found}
            assert all(event.run_id == found[0].run_id for event in found)


async def test_the_end_of_a_superstep_says_where_it_is_stored() -> None:
    storage = InMemoryCheckpointStorage()
    found = await told(Script(storage).chain(), 1, run_id="r")
    ends = [event.checkpoint for event in found if event.type == "superstep_completed"]
    ids = await storage.list_checkpoint_ids(run_id="r")
    assert [(end.run_id, end.checkpoint_id, end.number) for end in ends if end] == [("r", ids[1], 1), ("r", ids[2], 2)]
    unstored = await told(Script().chain(), 1)
    assert [event.checkpoint for event in unstored if event.type == "superstep_completed"] == [None, None]


async def test_checkpoint_events_hold_the_stored_checkpoints() -> None:
    storage = InMemoryCheckpointStorage()
    found = [e for e in await told(Script(storage).chain(), 1, run_id="r") if e.type == "checkpoint"]
    assert all(isinstance(e.data, WorkflowCheckpoint) for e in found)
    stored = await storage.list_checkpoints(run_id="r")
    assert [e.data.to_dict() for e in found] == [c.to_dict() for c in stored]
    assert [e.checkpoint.checkpoint_id for e in found if e.checkpoint] == [c.checkpoint_id for c in stored]


async def test_an_error_event_says_what_went_wrong_where_and_in_which_executor() -> None:
    script = Script(InMemoryCheckpointStorage())
    script.failing = {"a", "b"}
    found = await told(script.fan_out(), 1)
    failed = [e for e in found if e.type in ("executor_failed", "failed")]
    assert [(e.type, e.executor_id) for e in failed] == [
        ("executor_failed", "a"),
        ("executor_failed", "b"),
        ("failed", "a"),
    ]
    for event in failed:
        assert event.details is not None
        assert event.data is event.details
        assert event.details.executor_id == event.executor_id
        assert (event.details.error_type, event.details.message) == ("ValueError", f"{event.executor_id} is in trouble")
        assert "test_events.py" in (event.details.traceback or "")


async def test_the_failure_of_no_single_executor_says_what_went_wrong() -> None:
    def writer(id: str) -> Any:
        @executor(id=id)
        async def go(message: int, ctx: Ctx) -> None:
            ctx.set_state("k", id)

        return go

    start = Script().step("start")
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [writer("a"), writer("b")]).build()
    found = await told(workflow, 1)
    assert [e.type for e in found[-2:]] == ["failed", "status"]
    assert found[-2].details is not None
    assert found[-2].details.error_type == "StateConflict"
    assert "'a' and 'b'" in found[-2].details.message


class Watched(MemoryStore):
    """Notes in one list when something is durable; the test notes there what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, int]] = []

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await asyncio.sleep(0.001)
        await super().append(record, effects)
        self.notes.append(("durable", record.entry.number))


@pytest.mark.parametrize("failing", [set(), {"b"}])
async def test_durable_events_are_told_only_after_their_commit(failing: set[str]) -> None:
    store = Watched()
    script = Script(BuiltInStorage(store))
    script.failing = failing
    try:
        async for event in script.fan_out().run(1, stream=True):
            if event.type == "checkpoint":
                store.notes.append(("told", event.data.number))
            elif event.commit is not None:
                assert event.durable
                store.notes.append(("told", event.commit))
    except HandlerFailed:
        pass
    durable = -1
    for what, number in store.notes:
        durable = number if what == "durable" else durable
        assert number == durable
    assert len({note for note in store.notes if note[0] == "told"}) == 3


def shape(event: WorkflowEvent) -> tuple[Any, ...]:
    return (event.type, event.data, event.executor_id, event.iteration, event.commit, event.state, event.checkpoint)


async def test_event_history_tells_the_same_durable_events_again() -> None:
    storage = InMemoryCheckpointStorage()
    script = Script(storage)
    script.failing.add("b")
    found = await told(script.fan_out(), 1, run_id="r")
    script.failing.clear()
    found += await told(script.fan_out(), run_id="r")
    again = await storage.event_history("r")
    assert [shape(e) for e in again] == [shape(e) for e in found if e.durable]
    assert all(e.replayed for e in again)
    assert {e.type for e in found if not e.durable} == {
        "started",
        "status",
        "checkpoint",
        "superstep_started",
        "executor_invoked",
        "executor_returned",
        "executor_bypassed",
    }


async def test_a_handler_tells_live_events_that_are_marked_as_its_own() -> None:
    reused = WorkflowEvent("progress", {"percent": 50})

    def build() -> Workflow:
        @executor(id="start")
        def start(message: int, ctx: Ctx) -> None:
            ctx.add_event(reused)

        return WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()

    for streamed in (True, False):
        run_id = f"r{streamed}"
        events = await told(build(), 1, run_id=run_id) if streamed else list(await build().run(1, run_id=run_id))
        (event,) = [e for e in events if e.type == "progress"]
        assert (event.data, event.executor_id, event.run_id, event.durable, event.state) == (
            {"percent": 50},
            "start",
            run_id,
            False,
            IN_PROGRESS,
        )
        assert event.origin is WorkflowEventSource.EXECUTOR
    assert reused.run_id is None  # the object is the handler's; what was told is not


async def test_a_handler_cannot_tell_what_only_the_engine_may() -> None:
    @executor(id="start")
    async def start(message: str, ctx: Ctx) -> None:
        await ctx.add_event(WorkflowEvent(message, "never stored"))

    workflow = WorkflowBuilder(start_executor=start).build()
    for type in ("output", "status", "checkpoint", "superstep_completed", "failed"):
        with pytest.raises(HandlerFailed, match=f"'{type}' are emitted by the engine only"):
            await workflow.run(type)
    for type in ("warning", "error", "anything"):
        assert type in [e.type for e in await workflow.run(type)]


# --- the result ---------------------------------------------------------------------------------------------------


async def test_a_result_has_the_outputs_from_before_a_resume_too() -> None:
    storage = InMemoryCheckpointStorage()
    broken = True

    def build() -> Workflow:
        @executor(id="loop")
        async def loop(message: int, ctx: Ctx) -> None:
            if message == 3 and broken:
                raise ValueError("three")
            await ctx.yield_output(message)
            if message < 4:
                await ctx.send_message(message + 1)

        return WorkflowBuilder(start_executor=loop, checkpoint_storage=storage).add_edge(loop, loop).build()

    with pytest.raises(HandlerFailed):
        await build().run(1, run_id="r")
    broken = False
    for options in ({"run_id": "r"}, {"message": 1, "run_id": "r"}):
        result = await build().run(**options)
        assert result.get_outputs() == [1, 2, 3, 4]
        assert result.run_id == "r"
    stream = build().run(run_id="r", stream=True)
    assert (await stream).get_outputs() == [1, 2, 3, 4]


async def test_a_result_keeps_intermediate_outputs_apart_and_hides_what_was_not_named() -> None:
    def step(id: str, *, last: bool = False) -> Any:
        @executor(id=id)
        async def go(message: int, ctx: Ctx) -> None:
            await ctx.yield_output(id)
            if not last:
                await ctx.send_message(message)

        return go

    a, b, c = step("a"), step("b"), step("c", last=True)
    builder = WorkflowBuilder(start_executor=a, output_from=[c], intermediate_output_from=["b"])
    result = await builder.add_chain([a, b, c]).build().run(1)
    assert (result.get_outputs(), result.get_intermediate_outputs()) == (["c"], ["b"])
    assert [e.type for e in result if e.type in ("output", "intermediate")] == ["intermediate", "output"]


async def test_a_result_has_a_final_state_a_timeline_and_no_requests() -> None:
    script = Script(InMemoryCheckpointStorage())
    result = await script.chain().run(1, run_id="r")
    assert result.get_final_state() is IDLE
    assert [e.state for e in result.status_timeline()] == [IN_PROGRESS, IDLE]
    assert result.get_request_info_events() == []
    again = await script.chain().run(run_id="r")
    assert [e.state for e in again.status_timeline()] == [IDLE]


# --- six-method storages ------------------------------------------------------------------------------------------


class Plain:
    """A storage of the user's own: the six methods on a dictionary, and nothing else."""

    def __init__(self) -> None:
        self.kept: dict[str, WorkflowCheckpoint] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.kept[checkpoint.checkpoint_id] = checkpoint
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return self.kept[checkpoint_id]

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [one for one in self.kept.values() if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self.kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        known = await self.list_checkpoints(workflow_name=workflow_name)
        return known[-1] if known else None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


async def test_a_storage_of_six_methods_is_warned_of_once_in_each_run() -> None:
    storage = Plain()
    script = Script(storage)
    script.failing.add("a")
    first = await told(script.chain(), 1, run_id="r")
    script.failing.clear()
    second = await told(script.chain(), run_id="r")
    for found in (first, second):
        (warning,) = [e for e in found if e.type == "warning"]
        assert "keeps whole checkpoints only" in warning.data
        assert warning.state is IN_PROGRESS
    assert [e.data for e in second if e.type == "output"] == ["a:1"]
    assert not [e for e in await told(Script(InMemoryCheckpointStorage()).chain(), 1) if e.type == "warning"]


@pytest.mark.parametrize("storage", [None, InMemoryCheckpointStorage()])
async def test_a_handler_knows_whether_somebody_watches(storage: Any) -> None:
    @executor(id="ask")
    async def ask(message: str, ctx: WorkflowContext[Any, bool]) -> None:
        await ctx.yield_output(ctx.is_streaming())

    workflow = WorkflowBuilder(start_executor=ask, checkpoint_storage=storage).build()
    assert (await workflow.run("x")).get_outputs() == [False]
    assert [e.data async for e in workflow.run("x", stream=True) if e.type == "output"] == [True]
    assert (await workflow.run("x", stream=True)).get_outputs() == [True]
    assert (await workflow.start("x").result()).get_outputs() == [True]  # events of a handle can be read at any time
