"""Subtle cases of named agents: stand-ins, attempts, time limits, approvals, events, factories, stores."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    LatestOnly,
    Message,
    RunBusy,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    WorkflowRunState,
)
from stepwell.agents import Calls, ScriptedAgent
from stepwell.declarative import (
    AgentEvent,
    AgentWorkflow,
    Approval,
    ApprovalRequestedEvent,
    InMemoryTranscriptStore,
    LoopLimit,
    OutputRejected,
    Retries,
    WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent,
    WorkflowAgentStartedEvent,
    WorkflowCompletedEvent,
    WorkflowEdgeTraversedEvent,
    WorkflowLayerCompletedEvent,
    WorkflowLayerStartedEvent,
    WorkflowStartedEvent,
    WorkflowTimeout,
    contains,
    equals,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FailingStore, FakeClock, crash_everywhere
from tests.declarative.trap_samples import Review, broken, one_after_the_other, says, stored, told
from tests.support.streams import collect


async def told_until_it_fails(stream: Any) -> list[Any]:
    events: list[Any] = []
    with pytest.raises(HandlerFailed, match="gone"):
        await collect(stream, events)
    return events


async def test_one_stand_in_may_stand_in_for_another() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", broken(), fallback="b", output_key="text")
        .add_agent("b", broken(), fallback="c")
        .add_agent("c", says("at last"))
        .add_agent("end", says("ok"), input_key="text")
        .from_("a")
        .to("end")
        .build()
    )
    result = await workflow.run("go")
    assert result.values["text"] == "at last"
    assert result.outcome is not None
    assert set(result.outcome.failed) == {"b"}


async def test_the_place_in_a_loop_survives_a_restart(tmp_path: Path) -> None:
    def built(*texts: str) -> Any:
        return (
            stored(storage=SQLiteCheckpointStorage(tmp_path / "runs.db"))
            .with_max_iterations(3)
            .add_agent("a", one_after_the_other(*texts), approval=True)
            .from_("a")
            .to("a", when=contains("a", "again"))
            .build()
        )

    result = await built("again 1").run("go", run_id="r")
    for number in (2, 3):
        ((id, asked),) = result.requests.items()
        result = await built(f"again {number}").resume("r", responses={id: asked.approve()})
    ((id, asked),) = result.requests.items()
    with pytest.raises(LoopLimit, match=r"'a' has run 3 times.*still running: none"):
        await built().resume("r", responses={id: asked.approve()})


# --- retries and time -------------------------------------------------------------------------------------------------


async def test_the_number_of_attempts_and_when_the_next_is_due_survive_a_restart(tmp_path: Path) -> None:
    calls: list[str] = []

    async def agent(messages: list[Message]) -> str:
        calls.append("call")
        raise ConnectionError("gone")

    def built() -> Any:
        retry = Retries(3, initial_delay=600, backoff="constant", max_delay=600)
        storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
        return stored(storage=storage).add_agent("a", agent, retry=retry).build()

    with FakeClock() as clock:
        result = await built().run("go", run_id="r")
        assert (len(calls), result.status) == (1, WorkflowRunState.IN_PROGRESS)
        await built().resume("r")
        assert len(calls) == 1  # it is not due
        clock(minutes=11)
        await built().resume("r")
        assert len(calls) == 2
        clock(minutes=11)
        with pytest.raises(HandlerFailed, match="gone"):
            await built().resume("r")
        assert len(calls) == 3


async def test_a_run_that_failed_for_good_has_all_its_attempts_again_when_it_is_resumed() -> None:
    calls: list[str] = []

    async def agent(messages: list[Message]) -> str:
        calls.append("call")
        if len(calls) < 4:
            raise ConnectionError("gone")
        return "fine"

    workflow = stored().add_agent("a", agent, retry=Retries(2, initial_delay=0)).build()
    with pytest.raises(HandlerFailed, match="gone"):
        await workflow.run("go", run_id="r")
    assert (await workflow.resume("r")).output == "fine"
    assert len(calls) == 4


async def test_a_run_that_failed_because_of_an_answer_asks_for_another_when_it_is_resumed() -> None:
    heard: list[str] = []
    agent = one_after_the_other("no object", "none", '{"score": 5}', heard=heard)
    workflow = stored().add_agent("a", agent, output=Review, retry=Retries(2)).build()
    with pytest.raises(OutputRejected, match="could not be read as Review"):
        await workflow.run("go", run_id="r")
    assert (await workflow.resume("r")).output == Review(5)
    assert "You answered:\nnone" in heard[2]


async def test_an_answer_that_was_refused_and_a_failure_are_both_counted_after_a_restart(tmp_path: Path) -> None:
    moves: list[str] = []

    async def agent(messages: list[Message]) -> str:
        moves.append("call")
        if len(moves) == 1:
            return "no object"
        raise ConnectionError("gone")

    def built() -> Any:
        retry = Retries(3, initial_delay=600, backoff="constant", max_delay=600)
        storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
        return stored(storage=storage).add_agent("a", agent, output="structured", retry=retry).build()

    with FakeClock() as clock:
        await built().run("go", run_id="r")
        assert len(moves) == 2
        clock(minutes=11)
        with pytest.raises(HandlerFailed, match="gone"):
            await built().resume("r")
    assert len(moves) == 3


async def test_a_run_that_may_take_only_so_long_does_not_wait_for_an_agent_that_hangs() -> None:
    async def hangs(messages: list[Message]) -> str:
        await asyncio.Event().wait()
        return "never"

    workflow = AgentWorkflow.create().with_timeout(0.05).add_agent("a", hangs, on_error="isolate").build()
    with pytest.raises(WorkflowTimeout, match=r"took longer than 0\.05 s; running: a"):
        await workflow.run("go")


@pytest.mark.parametrize("on_timeout", ["deny", "approve", "suspend"])
async def test_no_time_for_an_approval_means_all_the_time(on_timeout: Any) -> None:
    workflow = stored().add_agent("a", says("x"), approval=Approval(timeout=0, on_timeout=on_timeout)).build()
    with FakeClock() as clock:
        ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
        clock(days=30)
        assert (await workflow.resume("r")).requests == {id: asked}
        assert (await workflow.resume("r", responses={id: asked.approve()})).output == "x"


async def test_a_time_that_is_over_with_suspend_leaves_the_question_open() -> None:
    workflow = stored().add_agent("a", says("x"), approval=Approval(timeout=60, on_timeout="suspend")).build()
    with FakeClock() as clock:
        ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
        clock(hours=1)
        assert (await workflow.resume("r")).requests == {id: asked}
        assert (await workflow.resume("r", responses={id: asked.approve("y")})).output == "y"


# --- approvals --------------------------------------------------------------------------------------------------------


async def test_a_change_that_is_not_what_the_node_promises_is_asked_about_again() -> None:
    workflow = stored().add_agent("a", says('{"score": 1}'), output=Review, approval=Approval(message="ok?")).build()
    ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
    result = await workflow.resume("r", responses={id: asked.approve({"score": "many"})})
    ((id, again),) = result.requests.items()
    assert again.message.startswith("ok?\n\nThe answer could not be read as Review")
    assert (await workflow.resume("r", responses={id: again.approve({"score": 9})})).output == Review(9)


async def test_the_choice_of_a_router_can_be_changed() -> None:
    workflow = (
        stored()
        .add_router("route", ScriptedAgent("r", [Calls(("handoff_to_a", {}))]), approval=True)
        .add_agent("a", says("at a"))
        .add_agent("b", says("at b"))
        .from_("route")
        .to("a", "b")
        .build()
    )
    ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
    assert asked.output == "a"
    ((id, again),) = (await workflow.resume("r", responses={id: asked.approve("nowhere")})).requests.items()
    assert "'nowhere' is not one of 'a', 'b'" in again.message
    assert (await workflow.resume("r", responses={id: again.approve("b")})).output == "at b"


async def test_of_two_questions_the_one_without_an_answer_stays_open() -> None:
    workflow = stored().add_agent("a", says("x"), approval=True).add_agent("b", says("y"), approval=True).build()
    result = await workflow.run("go", run_id="r")
    first, second = result.requests
    result = await workflow.resume("r", responses={first: result.requests[first].approve()})
    assert list(result.requests) == [second]
    result = await workflow.resume("r", responses={second: result.requests[second].approve()})
    assert result.output == {"a": "x", "b": "y"}


async def test_an_approval_request_reaches_the_stream() -> None:
    workflow = stored().add_agent("a", says("x"), approval=Approval(message="ok?")).build()
    (asked,) = await told(workflow.run("go"), ApprovalRequestedEvent)
    assert (asked.agent, asked.data.output, asked.data.message) == ("a", "x", "ok?")


# --- events -----------------------------------------------------------------------------------------------------------


async def test_every_edge_and_every_skipped_agent_is_told_of_even_if_nobody_begins() -> None:
    workflow = (
        stored()
        .add_agent("a", says("x"))
        .add_agent("waits", says("w"), approval=True)
        .add_agent("dead", says("d"))
        .add_agent("join", says("j"))
        .from_("a")
        .to("dead", when=equals("a", "y"))
        .from_("a", "waits")
        .to("join")
        .build()
    )
    events = await told(workflow.run("go", run_id="r"))
    assert WorkflowEdgeTraversedEvent("a", "join", "") in events
    assert [event.agent for event in events if isinstance(event, WorkflowAgentSkippedEvent)] == ["dead"]


async def test_progress_only_grows_and_ends_with_one() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", says("a"))
        .add_agent("b", broken(), fallback="spare")
        .add_agent("spare", says("s"))
        .add_agent("unused", says("u"))
        .add_agent("c", says("c"), fallback="unused")
        .add_agent("end", says("end"))
        .from_("a", "b", "c")
        .to("end")
        .build()
    )
    done = await told(workflow.run("go"), WorkflowAgentCompletedEvent)
    assert [(event.agent, event.progress) for event in done] == [
        ("a", 0.25),
        ("b", 0.25),
        ("c", 0.5),
        ("spare", 0.75),
        ("end", 1.0),
    ]


async def test_layers_begin_and_end_once_each_with_all_that_began_together() -> None:
    workflow = (
        stored()
        .add_agent("a", says("a"))
        .add_agent("b", says("b"), approval=True)
        .add_agent("a2", says("a2"))
        .add_agent("b2", says("b2"))
        .from_("a")
        .to("a2")
        .from_("b")
        .to("b2")
        .build()
    )
    kinds = (WorkflowLayerStartedEvent, WorkflowLayerCompletedEvent)
    first = await told(workflow.run("go", run_id="r"), *kinds, ApprovalRequestedEvent)
    asked = first.pop(1)
    assert first == [
        WorkflowLayerStartedEvent(1, ("a", "b")),
        WorkflowLayerStartedEvent(2, ("a2",)),
        WorkflowLayerCompletedEvent(2, ("a2",)),
    ]
    answers = {asked.request_id: asked.data.approve()}
    assert await told(workflow.resume("r", responses=answers), *kinds) == [
        WorkflowLayerCompletedEvent(1, ("a", "b")),
        WorkflowLayerStartedEvent(3, ("b2",)),
        WorkflowLayerCompletedEvent(3, ("b2",)),
    ]


async def test_after_a_resume_nothing_is_told_twice_and_it_says_that_it_goes_on() -> None:
    workflow = (
        stored()
        .add_agent("a", says("a"))
        .add_agent("b", says("b"), approval=True)
        .add_agent("c", says("c"))
        .from_("a")
        .to("b")
        .from_("b")
        .to("c")
        .build()
    )
    before = await told(workflow.run("go", run_id="r"))
    asked = next(event for event in before if isinstance(event, ApprovalRequestedEvent))
    after = await told(workflow.resume("r", responses={asked.request_id: asked.data.approve()}))
    assert before[0] == WorkflowStartedEvent("stored", "r", 3)
    assert after[0] == WorkflowStartedEvent("stored", "r", 3, resumed=True)
    agents = (WorkflowAgentStartedEvent, WorkflowAgentCompletedEvent)
    assert [type(e).__name__[13:-5] + " " + e.agent for e in [*before, *after] if isinstance(e, agents)] == [
        "Started a",
        "Completed a",
        "Started b",
        "Completed b",
        "Started c",
        "Completed c",
    ]
    assert isinstance(after[-1], WorkflowCompletedEvent)
    assert (after[-1].succeeded, after[-1].success) == (3, True)
    finished = await told(workflow.resume("r"), WorkflowCompletedEvent)
    assert [(event.success, event.output) for event in finished] == [(True, "c")]


async def test_a_run_that_failed_is_resumed_and_finished_and_each_says_so() -> None:
    moves: list[str] = []
    calls: list[str] = []

    async def flaky(messages: list[Message]) -> str:
        moves.append("call")
        if len(moves) == 1:
            raise OSError("gone")
        return "fine"

    workflow = stored().add_agent("a", says("a", calls)).add_agent("b", flaky).from_("a").to("b").build()
    events = await told_until_it_fails(workflow.run("go", run_id="r"))
    over = events[-1]
    assert isinstance(over, WorkflowCompletedEvent)
    assert (over.success, over.succeeded, over.failed) == (False, 1, 1)
    result = await workflow.resume("r")
    assert (result.output, len(calls), len(moves)) == ("fine", 1, 2)


async def test_a_run_that_fails_after_a_resume_counts_what_was_done_before() -> None:
    workflow = stored().add_agent("a", says("a"), approval=True).add_agent("b", broken()).from_("a").to("b").build()
    ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
    with pytest.raises(HandlerFailed):
        await workflow.resume("r", responses={id: asked.approve()})
    events = await told_until_it_fails(workflow.resume("r"))
    assert (events[-1].success, events[-1].succeeded, events[-1].failed) == (False, 1, 1)


async def test_every_agent_that_failed_says_so_and_not_only_the_first() -> None:
    workflow = AgentWorkflow.create().add_agent("a", broken()).add_agent("b", broken()).build()
    events = await told_until_it_fails(workflow.run("go"))
    failed = [e for e in events if isinstance(e, WorkflowAgentCompletedEvent)]
    assert sorted((e.agent, e.success) for e in failed) == [("a", False), ("b", False)]
    assert events[-1].failed == 2


async def test_a_stream_that_is_left_leaves_the_run_free() -> None:
    workflow = stored().add_agent("a", says("a")).add_agent("b", says("b")).from_("a").to("b").build()
    async with workflow.run("go", run_id="r") as stream:
        async for event in stream:
            if isinstance(event, WorkflowAgentCompletedEvent):
                break
    assert (await workflow.resume("r")).output == "b"


async def test_runs_side_by_side_tell_of_themselves_alone() -> None:
    workflow = (
        stored()
        .add_agent("a", ScriptedAgent("a", lambda heard: heard[-1].text))
        .add_agent("b", ScriptedAgent("b", lambda heard: heard[-1].text), approval=Approval(when=contains("b", "1")))
        .from_("a")
        .to("b")
        .build()
    )
    several = await asyncio.gather(*(told(workflow.run(f"t{n}", run_id=f"r{n}")) for n in range(4)))
    for n, events in enumerate(several):
        done = {e.agent: e.outputs for e in events if isinstance(e, WorkflowAgentCompletedEvent)}
        assert done["a"] == {"a": f"t{n}"}
        assert {e.run_id for e in events if isinstance(e, WorkflowStartedEvent)} == {f"r{n}"}
        assert any(isinstance(e, ApprovalRequestedEvent) for e in events) is (n == 1)


async def test_one_run_is_moved_on_by_one_at_a_time() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(messages: list[Message]) -> str:
        entered.set()
        await leave.wait()
        return "slow"

    workflow = stored().add_agent("a", slow).build()
    first = asyncio.ensure_future(_result(workflow.run("go", run_id="r")))
    await entered.wait()
    with pytest.raises(RunBusy):
        await workflow.resume("r")
    leave.set()
    assert (await first).output == "slow"


async def _result(stream: Any) -> Any:
    return await stream


# --- agents of every kind ---------------------------------------------------------------------------------------------


def test_a_configuration_needs_a_factory_and_is_given_to_it() -> None:
    seen: list[Mapping[str, Any]] = []

    def factory(config: Mapping[str, Any]) -> Any:
        seen.append(config)
        return says(config["says"])

    made = AgentWorkflow.create().add_agent("a", {"says": "hello", "model": "small"})
    with pytest.raises(DefinitionError, match=r"'a' has a configuration.*with_agent_factory"):
        made.build()
    assert asyncio.run(_result(made.with_agent_factory(factory).build().run("go"))).output == "hello"
    assert seen == [{"says": "hello", "model": "small"}]


@pytest.mark.parametrize("id", ["a/b", "..", "a.b", "ü✓", "x" * 300, "{{a}}", "a\nb", "nodes/x", " "])
async def test_names_may_be_anything(id: str, tmp_path: Path) -> None:
    heard: list[str] = []

    def built() -> Any:
        return (
            AgentWorkflow.create()
            .with_name(id)
            .with_checkpointing()
            .with_json_workflow_store(tmp_path / "store")
            .with_conversation("per-agent")
            .with_transcript_store(tmp_path / "said")
            .add_agent(id, says("first"), approval=True)
            .add_agent("then", says("ok", heard), input_key=id)
            .from_(id)
            .to("then")
        )

    ((request, asked),) = (await built().build().run("go", run_id=id, session_id=id)).requests.items()
    found = (await AgentWorkflow.of_run(tmp_path / "store", id)).with_agents({id: says("x"), "then": says("ok", heard)})
    found.with_conversation("per-agent").with_transcript_store(tmp_path / "said")
    assert (await found.build().resume(id, responses={request: asked.approve()})).output == "ok"
    assert heard == ["first"]
    assert {path.parent for path in tmp_path.glob("said/*")} == {tmp_path / "said"}


def test_an_agent_without_a_name_is_refused() -> None:
    for id in ("", "conductor", 5, None):
        with pytest.raises(DefinitionError, match="an agent cannot be called"):
            AgentWorkflow.create().add_agent(id, says("x")).build()  # type: ignore[arg-type]


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_save_that_fails_is_an_error() -> None:
    workflow = stored().add_agent("a", says("a")).add_agent("b", says("b")).from_("a").to("b").build()
    report = await crash_everywhere(workflow.workflow, workflow.make_start_message("go", "s"), fault=FailingStore)
    assert report.crashes > 5
    failing = stored(storage=BuiltInStorage(FailingStore(MemoryStore(), 3)))
    with pytest.raises(StoreUnavailable):
        await failing.add_agent("a", says("a")).add_agent("b", says("b")).from_("a").to("b").build().run("go")


async def test_only_the_newest_is_kept_while_a_run_is_under_way(tmp_path: Path) -> None:
    workflow = (
        AgentWorkflow.create()
        .with_name("kept")
        .with_checkpointing()
        .with_json_workflow_store(tmp_path, retention=LatestOnly)
        .add_agent("a", one_after_the_other(*(f"again {n}" for n in range(6)), "enough"))
        .from_("a")
        .to("a", when=contains("a", "again"))
        .build()
    )
    assert workflow.storage is not None
    seen = []
    async for event in workflow.run("go", run_id="r"):
        if not isinstance(event, AgentEvent | WorkflowStartedEvent):
            seen.append(len(await workflow.storage.list_checkpoints(run_id="r")))  # type: ignore[call-arg]
    assert {*seen} == {1}
    assert len(seen) > 20


async def test_a_run_does_not_go_on_with_other_edges() -> None:
    storage = InMemoryCheckpointStorage()

    def made() -> AgentWorkflow:
        return (
            stored(storage=storage)
            .add_agent("a", says("a"), approval=True)
            .add_agent("b", says("b"))
            .add_agent("c", says("c"))
        )

    ((id, asked),) = (await made().from_("a").to("b").build().run("go", run_id="r")).requests.items()
    with pytest.raises(GraphChanged, match=r"'0:a>b' is gone.*'0:a>c' is new.*of_run"):
        await made().from_("a").to("c").build().resume("r", responses={id: asked.approve()})
    other = made().from_("a").to("b", when=equals("a", "no")).build()  # what a condition says may change
    result = await other.resume("r", responses={id: asked.approve()})
    assert result.outcome is not None
    assert "b" in result.outcome.skipped


async def test_a_checkpoint_with_a_skipped_node_inside_a_loop_goes_on(tmp_path: Path) -> None:
    def built(*reviews: str) -> Any:
        return (
            stored(storage=SQLiteCheckpointStorage(tmp_path / "runs.db"))
            .add_agent("draft", says("text"))
            .add_agent("review", one_after_the_other(*reviews))
            .add_agent("lawyer", says("fine"))
            .add_agent("join", says("joined"), approval=True)
            .from_("draft")
            .to("review")
            .from_("draft")
            .to("lawyer", when=contains("draft", "law"))
            .from_("review", "lawyer")
            .to("join")
            .from_("join")
            .to("draft", when=equals("review", "bad"))
            .build()
        )

    result = await built("bad").run("go", run_id="r")
    ((id, asked),) = result.requests.items()
    result = await built("good").resume("r", responses={id: asked.approve()})
    ((id, asked),) = result.requests.items()
    result = await built().resume("r", responses={id: asked.approve()})
    assert result.output == "joined"
    assert result.outcome is not None
    assert "lawyer" in result.outcome.skipped


def test_delays_grow_as_they_are_told_to() -> None:
    from stepwell.declarative.node import _delay

    def waits(backoff: Any) -> list[float]:
        return [_delay(Retries(9, 1.0, backoff, 5.0), number) for number in (1, 2, 3, 4)]

    assert waits("constant") == [1, 1, 1, 1]
    assert waits("linear") == [1, 2, 3, 4]
    assert waits("exponential") == [1, 2, 4, 5]
    assert all(
        low <= wait <= high for wait, low, high in zip(waits("jittered"), (0.5, 1, 2, 4), (1.5, 3, 5, 5), strict=True)
    )


async def test_the_same_call_begins_a_run_and_goes_on_with_it_even_if_a_time_limit_has_changed() -> None:
    storage = InMemoryCheckpointStorage()

    def built(timeout: float) -> Any:
        made = stored(storage=storage).add_agent("a", says("a"), approval=True, timeout=timeout)
        return made.add_agent("b", says("b")).from_("a").to("b").build()

    first = await told(built(5).run("go", run_id="r"), WorkflowStartedEvent, ApprovalRequestedEvent)
    again = await told(built(6).run("go", run_id="r"), WorkflowStartedEvent, ApprovalRequestedEvent)
    assert [event.resumed for event in (first[0], again[0])] == [False, True]
    assert again[1] == first[1]
    with pytest.raises(InputMismatch):
        await built(6).run("something else", run_id="r")


class Six:
    """A storage with the six methods, and nothing else."""

    def __init__(self) -> None:
        self._inner = InMemoryCheckpointStorage()

    async def save(self, checkpoint: Any) -> str:
        return await self._inner.save(checkpoint)

    async def load(self, checkpoint_id: str) -> Any:
        return await self._inner.load(checkpoint_id)

    async def list_checkpoints(self, *, workflow_name: str) -> Any:
        return await self._inner.list_checkpoints(workflow_name=workflow_name)

    async def delete(self, checkpoint_id: str) -> bool:
        return await self._inner.delete(checkpoint_id)

    async def get_latest(self, *, workflow_name: str) -> Any:
        return await self._inner.get_latest(workflow_name=workflow_name)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> Any:
        return await self._inner.list_checkpoint_ids(workflow_name=workflow_name)


async def test_a_storage_of_ones_own_keeps_runs_too() -> None:
    workflow = stored(storage=Six()).add_agent("a", says("a"), approval=True).build()
    ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
    assert (await workflow.resume("r", responses={id: asked.approve()})).output == "a"
    with pytest.raises(DefinitionError, match="Six cannot find a run by its id alone"):
        await AgentWorkflow.of_run(Six(), "r")


async def test_a_conversation_that_cannot_be_kept_is_an_error_and_not_a_failure_of_the_agent() -> None:
    class Full(InMemoryTranscriptStore):
        full = True

        async def append(self, thread: str, key: str, messages: Any) -> None:
            if self.full:
                raise OSError("no space left")
            await super().append(thread, key, messages)

    said, calls = Full(), list[str]()
    workflow = (
        stored()
        .with_conversation("shared")
        .with_transcript_store(said)
        .add_agent("a", says("answer", calls), on_error="isolate", retry=Retries(3, initial_delay=0))
        .build()
    )
    with pytest.raises(HandlerFailed, match="no space left"):
        await workflow.run("go", run_id="r", session_id="s")
    said.full = False
    assert (await workflow.resume("r")).output == "answer"
    assert [message.text for message in await said.read("s")] == ["go", "answer"]
    assert len(calls) == 1
