"""Workflows of named agents, run."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    HandlerFailed,
    HandlerTimeout,
    InMemoryCheckpointStorage,
    LatestOnly,
    Message,
    SQLiteCheckpointStorage,
    WorkflowRunState,
)
from stepwell.agents import Calls, Fails, ScriptedAgent
from stepwell.declarative import (
    AgentEvent,
    AgentWorkflow,
    Approval,
    InMemoryTranscriptStore,
    LoopLimit,
    MissingInput,
    NodeApprovalRequest,
    OutputRejected,
    Retries,
    WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent,
    WorkflowCompletedEvent,
    WorkflowEdgeTraversedEvent,
    WorkflowStartedEvent,
    WorkflowTimeout,
    contains,
    equals,
    greater,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.testing import FakeClock, crash_everywhere
from tests.support.streams import collect


def says(text: str, name: str = "agent") -> ScriptedAgent:
    return ScriptedAgent(name, lambda messages: text)


def echo(heard: list[str] | None = None) -> Any:
    async def agent(messages: list[Message]) -> str:
        if heard is not None:
            heard.append(messages[-1].text)
        return f"<{messages[-1].text}>"

    return agent


async def test_keys_meet() -> None:
    heard: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .with_name("pair")
        .add_agent("draft", echo(), output_key="text")
        .add_agent("review", echo(heard), input_key="text")
        .from_("draft")
        .to("review")
        .build()
    )
    result = await workflow.run("kelp")
    assert heard == ["<kelp>"]
    assert result.output == "<<kelp>>"
    assert result.status is WorkflowRunState.IDLE
    assert result.values == {"input": "kelp", "text": "<kelp>", "review": "<<kelp>>"}


async def test_a_missing_input_is_an_error_and_not_the_original_prompt() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("draft", echo(), output_key="text")
        .add_agent("review", echo(), input_key="draft")
        .from_("draft")
        .to("review")
        .build()
    )
    with pytest.raises(MissingInput, match=r"'review' in run .* needs 'draft'.* there are 'input', 'text'"):
        await workflow.run("kelp")


async def test_templates_instructions_and_context() -> None:
    heard: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", echo())
        .add_agent(
            "b",
            echo(heard),
            input_template="{{ a }} of {{input.topic}}",
            instructions="Be brief.",
            context_keys=["input"],
        )
        .from_("a")
        .to("b")
        .build()
    )
    await workflow.run({"topic": "kelp"})
    assert heard == ['Be brief.\n\ninput: {"topic": "kelp"}\n\n<{"topic": "kelp"}> of kelp']


@dataclass
class Review:
    score: int
    note: str = ""


@dataclass
class Refusal:
    why: str


async def test_a_structured_output_gives_its_fields_too() -> None:
    taken: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .add_agent("review", says('Here it is: ```json\n{"score": 8, "note": "good"}\n```'), output=Review)
        .add_agent("publish", echo(taken), input_key="note")
        .add_agent("revise", echo())
        .from_("review")
        .to("publish", when=greater("score", 7))
        .from_("review")
        .otherwise("revise")
        .build()
    )
    result = await workflow.run("go")
    assert taken == ["good"]
    assert result.values["review"] == Review(8, "good")
    assert result.outcome is not None
    assert result.outcome.skipped == {"revise": "'review' did not lead to it (otherwise)"}


async def test_the_type_of_a_union_output_chooses_the_way() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("judge", says('{"why": "too long"}'), output=[Review, Refusal])
        .add_agent("yes", echo())
        .add_agent("no", echo(), input_key="why")
        .from_("judge")
        .by_type({Review: "yes", Refusal: "no"})
        .build()
    )
    assert (await workflow.run("go")).output == "<too long>"


async def test_an_answer_that_cannot_be_read_is_asked_for_again() -> None:
    heard: list[str] = []

    def script(messages: list[Message]) -> str:
        heard.append(messages[-1].text)
        return "no idea" if len(heard) == 1 else '{"score": 3}'

    once = AgentWorkflow.create().add_agent("a", ScriptedAgent("a", script), output=Review)
    with pytest.raises(OutputRejected, match="could not be read as Review"):
        await once.build().run("go")
    heard.clear()
    twice = AgentWorkflow.create().add_agent("a", ScriptedAgent("a", script), output=Review, retry=Retries(2))
    assert (await twice.build().run("go")).output == Review(3)
    assert "You answered:\nno idea" in heard[1]


async def test_a_router_hands_over_by_a_tool_or_to_its_default() -> None:
    def router(move: Any) -> Any:
        return (
            AgentWorkflow.create()
            .add_router("route", ScriptedAgent("route", [move]), default="general")
            .add_agent("billing", says("billed"))
            .add_agent("general", says("answered"))
            .from_("route")
            .to("billing", "general")
            .build()
        )

    assert (await router(Calls(("handoff_to_billing", {}))).run("go")).output == "billed"
    assert (await router("I do not know").run("go")).output == "answered"


async def test_loops_run_until_they_are_left() -> None:
    texts = iter(["bad", "bad", "good"])
    workflow = (
        AgentWorkflow.create()
        .add_agent("draft", says("text"))
        .add_agent("review", ScriptedAgent("r", lambda messages: next(texts)))
        .add_agent("publish", says("done"))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("draft", when=equals("review", "bad"))
        .from_("review")
        .otherwise("publish")
        .build()
    )
    assert (await workflow.run("go")).output == "done"


async def test_a_loop_that_never_ends_is_an_error_that_says_who_ran() -> None:
    workflow = (
        AgentWorkflow.create()
        .with_max_iterations(3)
        .add_agent("a", says("again"))
        .from_("a")
        .to("a", when=contains("a", "again"))
        .build()
    )
    with pytest.raises(LoopLimit, match="'a' has run 3 times"):
        await workflow.run("go")


async def test_the_loop_limit_counts_the_turns_of_an_agent_in_all_loops_together() -> None:
    asked: list[str] = []

    async def inner(messages: list[Message]) -> str:
        asked.append("inner")
        return "again" if len(asked) == 1 else "enough"

    workflow = (
        AgentWorkflow.create()
        .with_max_iterations(2)
        .add_agent("outer", says("go"))
        .add_agent("inner", inner)
        .from_("outer")
        .to("inner")
        .from_("inner")
        .to("inner", when=equals("inner", "again"))
        .from_("inner")
        .otherwise("outer")
        .build()
    )
    with pytest.raises(LoopLimit, match="'inner' has run 2 times"):
        await workflow.run("go")
    assert len(asked) == 2


async def test_plain_retry_retries_ordinary_exceptions() -> None:
    agent = ScriptedAgent("a", [Fails(ValueError("odd"), times=2), "fine"])
    workflow = AgentWorkflow.create().add_agent("a", agent, retry=Retries(3, initial_delay=0)).build()
    assert (await workflow.run("go")).output == "fine"


async def test_only_errors_worth_it_are_retried() -> None:
    agent = ScriptedAgent("a", [Fails(ValueError("odd")), "fine"])
    retry = Retries(3, initial_delay=0, errors=("OSError",))
    with pytest.raises(HandlerFailed, match="odd"):
        await AgentWorkflow.create().add_agent("a", agent, retry=retry).build().run("go")
    again = ScriptedAgent("a", [Fails(ConnectionError("gone")), "fine"])
    assert (await AgentWorkflow.create().add_agent("a", again, retry=retry).build().run("go")).output == "fine"


async def slow(messages: list[Message]) -> str:
    await asyncio.sleep(60)
    return "never"


async def test_the_timeout_of_a_node_does_not_cancel_the_run() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", slow, timeout=0.01, on_error="isolate")
        .add_agent("b", says("other"))
        .add_agent("join", echo())
        .from_("a", "b")
        .to("join")
        .build()
    )
    result = await workflow.run("go")
    assert result.output == "<other>"
    assert result.outcome is not None
    assert "did not finish within 0.01 s" in result.outcome.failed["a"]
    with pytest.raises(HandlerTimeout, match="did not finish within"):
        await AgentWorkflow.create().add_agent("a", slow, timeout=0.01).build().run("go")


async def test_error_modes() -> None:
    def broken() -> ScriptedAgent:
        return ScriptedAgent("a", lambda messages: Fails(OSError("gone"), times=99))

    def with_mode(**options: Any) -> Any:
        return (
            AgentWorkflow.create()
            .add_agent("a", broken(), output_key="text", **options)
            .add_agent("b", says("b"))
            .add_agent("spare", says("instead"))
            .add_agent("join", echo())
            .from_("a", "b")
            .to("join")
        )

    assert (await with_mode(fallback="spare").build().run("go")).output == "<instead\n\nb>"
    assert (await with_mode(on_error="isolate").build().run("go")).output["join"] == "<b>"
    skipped = await with_mode(on_error="skip").build().run("go")
    assert skipped.outcome is not None
    assert "join" in skipped.outcome.skipped


def approving(approval: Approval | bool, storage: Any = None, **options: Any) -> tuple[Any, list[str]]:
    heard: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .with_name("approving")
        .with_checkpointing()
        .with_workflow_store(storage or InMemoryCheckpointStorage())
        .add_agent("a", says("draft"), approval=approval, **options)
        .add_agent("b", echo(heard))
        .from_("a")
        .to("b")
        .build()
    )
    return workflow, heard


@pytest.mark.parametrize(
    ("decide", "output"),
    [(lambda asked: asked.approve(), "<draft>"), (lambda asked: asked.approve("better"), "<better>")],
)
async def test_what_a_person_approves_or_changes_is_used(decide: Any, output: str) -> None:
    workflow, _ = approving(Approval(message="may it?"))
    result = await workflow.run("go", run_id="r")
    ((id, asked),) = result.requests.items()
    assert asked == NodeApprovalRequest("a", "draft", "may it?")
    assert (await workflow.resume("r", responses={id: decide(asked)})).output == output


async def test_what_a_person_denies_is_skipped_with_the_reason() -> None:
    workflow, heard = approving(True)
    result = await workflow.run("go", run_id="r")
    ((id, asked),) = result.requests.items()
    result = await workflow.resume("r", responses={id: asked.deny("too long")})
    assert result.outcome is not None
    assert result.outcome.skipped == {"a": "denied: too long", "b": "'a' was skipped"}
    assert not heard


async def test_a_person_is_asked_only_if_the_condition_holds() -> None:
    workflow, _ = approving(Approval(when=equals("a", "something else")))
    assert (await workflow.run("go")).output == "<draft>"


@pytest.mark.parametrize(("on_timeout", "skipped"), [("deny", True), ("approve", False)])
async def test_if_nobody_answers_in_time_the_definition_says_what_happens(on_timeout: Any, skipped: bool) -> None:
    workflow, heard = approving(Approval(timeout=60, on_timeout=on_timeout))
    with FakeClock() as clock:
        await workflow.run("go", run_id="r")
        clock(seconds=61)
        result = await workflow.resume("r")
    assert result.outcome is not None
    assert ("a" in result.outcome.skipped) is skipped
    assert heard == ([] if skipped else ["draft"])


async def test_an_approved_output_is_not_asked_of_the_model_again_after_a_restart(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    first, _ = approving(True, storage)
    ((id, asked),) = (await first.run("go", run_id="r")).requests.items()
    second, heard = approving(True, storage)
    assert (await second.resume("r", responses={id: asked.approve()})).output == "<draft>"
    assert heard == ["draft"]


async def test_events_say_what_happened_in_order() -> None:
    workflow = (
        AgentWorkflow.create()
        .with_name("told")
        .add_agent("a", says("x"))
        .add_agent("b", says("y"))
        .add_agent("c", says("z"))
        .from_("a")
        .to("b", when=equals("a", "x"))
        .from_("a")
        .otherwise("c")
        .build()
    )
    told = [event async for event in workflow.run("go", run_id="r") if not isinstance(event, AgentEvent)]
    names = [type(event).__name__.removeprefix("Workflow").removesuffix("Event") for event in told]
    assert names == [
        "Started",
        "LayerStarted",
        "AgentStarted",
        "AgentCompleted",
        "EdgeTraversed",
        "AgentSkipped",
        "LayerCompleted",
        "LayerStarted",
        "AgentStarted",
        "AgentCompleted",
        "LayerCompleted",
        "Completed",
    ]
    assert told[0] == WorkflowStartedEvent("told", "r", 3)
    assert told[4] == WorkflowEdgeTraversedEvent("a", "b", 'a == "x"')
    assert isinstance(told[5], WorkflowAgentSkippedEvent)
    done = [event.progress for event in told if isinstance(event, WorkflowAgentCompletedEvent)]
    assert done == [pytest.approx(1 / 3), pytest.approx(1)]
    over = told[-1]
    assert isinstance(over, WorkflowCompletedEvent)
    assert (over.success, over.succeeded, over.failed, over.skipped, over.output) == (True, 2, 0, 1, "y")


async def test_a_failed_run_says_so() -> None:
    agent = ScriptedAgent("a", lambda messages: Fails(OSError("gone"), times=99))
    workflow = AgentWorkflow.create().with_name("broken").add_agent("a", agent).build()
    told: list[Any] = []
    stream = workflow.run("go")
    with pytest.raises(HandlerFailed, match="gone"):
        await collect(stream, told)
    completed = [event for event in told if isinstance(event, WorkflowAgentCompletedEvent)]
    assert [(event.agent, event.success) for event in completed] == [("a", False)]
    assert "gone" in str(completed[0].error)
    assert isinstance(told[-1], WorkflowCompletedEvent)
    assert not told[-1].success


async def test_what_agents_say_is_told_with_the_chain_it_belongs_to() -> None:
    workflow = AgentWorkflow.create().with_name("w").add_agent("a", says("two words")).build()
    told = [event async for event in workflow.run("go") if isinstance(event, AgentEvent)]
    assert [event.chain for event in told] == [("w", "a")] * 2
    assert "".join(event.update.text for event in told if event.update is not None) == "two words "


async def test_checkpoint_events_are_told_only_if_asked_for() -> None:
    workflow, _ = approving(Approval(when=equals("a", "never")))
    kinds = [getattr(event, "type", None) async for event in workflow.run("go")]
    assert "checkpoint" not in kinds
    kinds = [getattr(event, "type", None) async for event in workflow.run("go", checkpoint_events=True)]
    assert "checkpoint" in kinds


@pytest.mark.parametrize(
    ("policy", "second", "threads"),
    [
        ("none", [], []),
        ("shared", ["a0", "<a0>", "<a0>", "<<a0>>", "a1", "<a1>", "<a1>"], ["s"]),
        ("per-agent", ["<a0>", "<<a0>>", "<a1>"], ["s/a", "s/b"]),
    ],
)
async def test_conversations_are_kept_apart_from_runs(policy: Any, second: list[str], threads: list[str]) -> None:
    heard: list[list[str]] = []

    async def listener(messages: list[Message]) -> str:
        heard.append([message.text for message in messages])
        return f"<{messages[-1].text}>"

    store = InMemoryTranscriptStore()
    workflow = (
        AgentWorkflow.create()
        .with_conversation(policy)
        .with_transcript_store(store)
        .add_agent("a", echo())
        .add_agent("b", listener)
        .from_("a")
        .to("b")
        .build()
    )
    for n in range(2):
        await workflow.run(f"a{n}", session_id="s")
    if policy == "none":
        assert heard == [["<a0>"], ["<a1>"]]
    else:
        assert heard[1] == second
    assert await store.threads() == threads


async def test_a_fork_begins_with_what_everybody_heard() -> None:
    heard: list[list[str]] = []

    async def listener(messages: list[Message]) -> str:
        heard.append([message.text for message in messages])
        return "ok"

    store = InMemoryTranscriptStore()
    await store.append("s", "1", [Message("user", "root")])
    workflow = (
        AgentWorkflow.create().with_conversation("fork").with_transcript_store(store).add_agent("a", listener).build()
    )
    await workflow.run("one", session_id="s")
    await store.append("s", "2", [Message("user", "later")])
    await workflow.run("two", session_id="s")
    assert heard == [["root", "one"], ["root", "one", "ok", "two"]]


async def test_no_more_runs_are_in_a_node_than_it_lets_in() -> None:
    inside = most = 0

    async def agent(messages: list[Message]) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1
        return "ok"

    workflow = AgentWorkflow.create().add_agent("a", agent, concurrency=2).build()
    await asyncio.gather(*(workflow.run("go") for _ in range(8)))
    assert most == 2


async def test_runs_side_by_side_do_not_collide() -> None:
    workflow = (
        AgentWorkflow.create().add_agent("a", echo()).add_agent("b", echo(), input_key="a").from_("a").to("b").build()
    )
    results = await asyncio.gather(*(workflow.run(f"{n}") for n in range(20)))
    assert [result.output for result in results] == [f"<<{n}>>" for n in range(20)]
    assert len({result.run_id for result in results}) == 20


async def test_a_run_may_take_only_so_long() -> None:
    workflow = (
        AgentWorkflow.create()
        .with_timeout(10)
        .add_agent("a", says("x"), approval=True)
        .add_agent("b", says("y"))
        .from_("a")
        .to("b")
        .with_checkpointing()
        .build()
    )
    with FakeClock() as clock:
        ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
        clock(seconds=11)
        with pytest.raises(WorkflowTimeout, match="took longer than 10 s"):
            await workflow.resume("r", responses={id: asked.approve()})


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(DefinitionError) as caught:
        (
            AgentWorkflow.create()
            .add_agent("a", echo())
            .add_agent("a", echo(), input_key="x", input_template="{{y}}")
            .add_agent("b", "somebody", fallback="nobody")
            .from_("a")
            .to("nowhere")
            .build()
        )
    text = str(caught.value)
    for part in ("two agents are called 'a'", "'nowhere'", "'somebody' is not bound", "'nobody'", "set one of them"):
        assert part in text


def everything(storage: Any = None) -> Any:
    """Every option of a node at once."""
    review = ScriptedAgent("review", lambda heard: '{"score": 9}' if "two" in heard[-1].text else '{"score": 2}')
    draft = ScriptedAgent("draft", lambda heard: "two" if "score" in heard[-1].text else "one")
    return (
        AgentWorkflow.create()
        .with_name("everything")
        .add_router("route", ScriptedAgent("route", [Calls(("handoff_to_draft", {}))]), default="other")
        .add_agent("other", says("not this way"))
        .add_agent("draft", draft, output_key="text", timeout=30)
        .add_agent("broken", ScriptedAgent("x", lambda messages: Fails(OSError("gone"), times=999)), fallback="spare")
        .add_agent("spare", says("spare"))
        .add_agent("review", review, output=Review, input_template="{{text}}", concurrency=1)
        .add_agent("publish", says("out"), approval=True, context_keys=["score"])
        .from_("route")
        .to("draft", "other")
        .from_("draft")
        .to("broken", "review")
        .from_("review")
        .to("draft", when=~greater("score", 5))
        .from_("review", "broken")
        .to("publish", when=greater("score", 5))
        .with_checkpointing()
        .build()
    )


@pytest.mark.long
async def test_every_option_of_a_node_comes_to_the_same_wherever_the_run_dies() -> None:
    workflow = everything()
    result = await workflow.run("go", run_id="r")
    ((id, asked),) = result.requests.items()
    assert (await workflow.resume("r", responses={id: asked.approve()})).output
    report = await crash_everywhere(
        workflow.workflow, workflow.make_start_message("go", "s"), answer=lambda event: event.data.approve("edited")
    )
    assert report.crashes > 20


async def test_retention_keeps_only_the_latest(tmp_path: Path) -> None:
    workflow = (
        AgentWorkflow.create()
        .with_name("kept")
        .with_checkpointing()
        .with_json_workflow_store(tmp_path, retention=LatestOnly)
        .add_agent("a", says("x"))
        .add_agent("b", says("y"))
        .from_("a")
        .to("b")
        .build()
    )
    await workflow.run("go", run_id="r")
    assert isinstance(workflow.storage, BuiltInStorage)
    assert len(await workflow.storage.list_checkpoints(run_id="r")) == 1
