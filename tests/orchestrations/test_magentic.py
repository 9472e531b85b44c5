"""A team that a manager leads."""

from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    RunError,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
)
from stepwell.agents import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Calls,
    ScriptedAgent,
    conversation_key,
    usage_in,
)
from stepwell.orchestrations import (
    MagenticBuilder,
    MagenticOrchestratorEventType,
    MagenticProgressLedgerItem,
    StandardMagenticManager,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import crash_everywhere
from stepwell.testing.faults.wrapped_store import WrappedStore
from tests.orchestrations.managed import PROMPTS, final, in_turn, ledger, managing, said_by, state_of, team


async def test_a_task_is_planned_worked_on_and_answered() -> None:
    manager, storage = managing(in_turn), InMemoryCheckpointStorage()
    workflow = team(manager, checkpoint_storage=storage).build()
    assert await final(workflow) == "the answer: a text, a fine text"
    assert manager.calls == ["model"] * 6  # facts, plan, progress three times, answer
    state = await state_of(storage)
    assert [message.text for message in state[conversation_key("magentic_orchestrator")]] == [
        "a poem | facts | plan",
        "write it",
        "a text",
        "judge it",
        "a fine text",
        "the answer: a text, a fine text",
    ]
    # a participant hears what was said, but not what others are told to do
    assert [message.text for message in state[conversation_key("critic")]] == [
        "a poem | facts | plan",
        "a text",
        "judge it",
        "a fine text",
    ]
    assert {id: used.calls for id, used in usage_in(state).items()} == {
        "magentic_orchestrator": 6,
        "writer": 1,
        "critic": 1,
    }


async def test_what_the_manager_comes_to_is_told_while_it_happens() -> None:
    events = [event async for event in team().build().run("a poem", stream=True)]
    told = [event.data for event in events if event.type == "magentic_orchestrator"]
    kinds = MagenticOrchestratorEventType
    assert [one.event_type for one in told] == [kinds.PLAN_CREATED, *[kinds.PROGRESS_LEDGER_UPDATED] * 3]
    assert told[0].content.text == "a poem | facts | plan"
    assert told[0].content.data.plan.text == "plan"
    assert told[1].content.next_speaker == MagenticProgressLedgerItem("why next_speaker", "writer")
    updates = [event.data.text for event in events if event.type == "update" and event.executor_id == "writer"]
    assert "".join(updates) == "a text "


@pytest.mark.parametrize("given", [[], "  ", [Message("user", "")]])
async def test_a_task_is_a_text(given: Any) -> None:
    with pytest.raises(HandlerFailed, match="has no task: its input contains no text"):
        await team().build().run(given)


@pytest.mark.parametrize(
    "given",
    [
        ["a poem", Message("user", ""), "about lamps"],
        AgentResponse([Message("assistant", "a poem"), Message("assistant", "about lamps")]),
        AgentExecutorRequest([Message("user", "a poem"), Message("user", "about lamps")], should_respond=False),
        AgentExecutorResponse("other", AgentResponse([Message("assistant", "a poem\n\nabout lamps")])),
    ],
)
async def test_several_messages_are_one_task(given: Any) -> None:
    storage = InMemoryCheckpointStorage()
    await team(checkpoint_storage=storage).build().run(given, run_id="r")
    state = await state_of(storage)
    assert state["magentic/task"].text == "a poem\n\nabout lamps"
    assert state["magentic/stand"].phase == "over"


async def test_another_task_in_the_same_run_begins_anew() -> None:
    heard: list[list[str]] = []

    def script(messages: list[Message]) -> str:
        heard.append([message.text for message in messages])
        return "a text"

    workflow = team(writer=ScriptedAgent("writer", script)).build()
    await workflow.run("a poem", run_id="r")
    handle = workflow.attach("r", drive=True)
    await handle.send("a song")
    result = await handle.result()
    assert [one.text for one in result.get_outputs()] == ["the answer: a text, a fine text"] * 2
    assert heard == [["a poem | facts | plan", "write it"], ["a song | facts | plan", "write it"]]


async def test_another_task_while_one_is_worked_on_is_refused() -> None:
    workflow = team().with_plan_review().build()
    await workflow.run("a poem", run_id="r")
    handle = workflow.attach("r", drive=True)
    await handle.send("a song")
    with pytest.raises(RunError, match="is already working on a task"):
        await handle.result()


def stuck(messages: list[Message]) -> str:
    """There is no progress until another plan is made."""
    if any("another plan" in message.text for message in messages):
        return in_turn(messages)
    return ledger("writer", "try again", progress=False)


async def test_without_progress_another_plan_is_made_and_everybody_begins_anew() -> None:
    heard: list[list[str]] = []

    def script(messages: list[Message]) -> str:
        heard.append([message.text for message in messages])
        return f"try {len(heard)}"

    storage = InMemoryCheckpointStorage()
    writer = ScriptedAgent("writer", script)
    workflow = team(managing(stuck), writer=writer, max_stall_count=1, checkpoint_storage=storage).build()
    told = [
        event.data.event_type
        async for event in workflow.run("a poem", run_id="r", stream=True)
        if event.type == "magentic_orchestrator"
    ]
    assert told.count(MagenticOrchestratorEventType.REPLANNED) == 1
    state = await state_of(storage)
    assert state["magentic/stand"].resets == 1
    # the new plan is made in view of what happened, and the participant knows nothing but the new plan
    plan = "a poem | more facts than facts | another plan, after ['try 1']"
    assert heard == [["a poem | facts | plan", "try again"], [plan, "write it"]]


@pytest.mark.parametrize("word", ["loop", "progress"])
async def test_stalls_are_counted_up_and_down(word: str) -> None:
    storage = InMemoryCheckpointStorage()
    bad = {"loop": {"loop": True}, "progress": {"progress": False}}[word]
    good: list[dict[str, bool]] = [{}]

    def progress(messages: list[Message]) -> str:
        rounds = [*[bad] * 3, *good * 2, *[bad] * 2, {"done": True}]
        return ledger("writer", "on", **rounds[len(said_by(messages, "writer"))])

    workflow = team(managing(progress), max_stall_count=3, checkpoint_storage=storage).build()
    await final(workflow)
    stand = (await state_of(storage))["magentic/stand"]
    assert (stand.stalls, stand.resets, stand.rounds) == (3, 0, 8)


async def test_rounds_are_limited() -> None:
    workflow = team(managing(lambda messages: ledger("writer", "on")), max_round_count=3).build()
    assert await final(workflow) == "The task was given up: it was not done within the limit of 3 rounds."
    assert (await workflow.run(run_id="r")).get_final_state() is WorkflowRunState.IDLE


@pytest.mark.parametrize("most", [0, 2])
async def test_resets_are_limited(most: int) -> None:
    storage = InMemoryCheckpointStorage()
    manager = managing(lambda messages: ledger("writer", "on", progress=False))
    workflow = team(manager, max_stall_count=0, max_reset_count=most, checkpoint_storage=storage).build()
    answer = await final(workflow)
    assert answer == f"The task was given up: the work stalled, and the limit of {most} new plans is reached."
    assert (await state_of(storage))["magentic/stand"].resets == most


async def test_executors_may_take_part() -> None:
    class Printer(Executor):
        @handler
        async def told(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
            said = Message("assistant", f"printed {request.messages[-1].text!r}", self.id)
            await ctx.send_message(AgentExecutorResponse(self.id, AgentResponse([said])))

    def progress(messages: list[Message]) -> str:
        done = bool(said_by(messages, "printer"))
        return ledger("printer", "the poem", done=done)

    workflow = MagenticBuilder(
        participants=[Printer("printer")], manager=StandardMagenticManager(managing(progress), **PROMPTS)
    ).build()
    result = await workflow.run("a poem")
    assert [one.text for one in result.get_outputs()] == ["the answer: "]


async def test_a_participant_that_says_more_than_it_was_asked_for_is_heard() -> None:
    class Talker(Executor):
        @handler
        async def told(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
            for text in ("one", "two"):
                said = Message("assistant", text, self.id)
                await ctx.send_message(AgentExecutorResponse(self.id, AgentResponse([said])))

    def progress(messages: list[Message]) -> str:
        if len(said_by(messages, "writer")) > 0:
            return ledger(done=True)
        return ledger("writer" if said_by(messages, "talker") else "talker", "speak")

    members = [Talker("talker"), ScriptedAgent("writer", lambda messages: messages[-2].text)]
    workflow = MagenticBuilder(participants=members, manager_agent=managing(progress), **PROMPTS).build()
    assert [one.text for one in (await workflow.run("a poem")).get_outputs()] == ["the answer: one"]


async def test_the_answers_of_participants_are_outputs_if_they_are_named() -> None:
    result = (
        await team(output_from=["writer"], intermediate_output_from=["magentic_orchestrator"]).build().run("a poem")
    )
    assert [one.text for one in result.get_outputs()] == ["a text"]
    assert [one.text for one in result.get_intermediate_outputs()] == ["the answer: a text, a fine text"]


@pytest.mark.long
async def test_a_round_costs_what_is_said_in_it_however_long_the_work_takes() -> None:
    sizes: list[int] = []

    class Weighed(WrappedStore):
        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            if name == "append":
                sizes.append(len(args[0].body))
            return await call()

    def progress(messages: list[Message]) -> str:
        return ledger("writer", "on", done=len(said_by(messages, "writer")) == 100)

    storage = BuiltInStorage(Weighed(MemoryStore()))
    await team(managing(progress), checkpoint_storage=storage).build().run("a poem")
    assert len(sizes) > 200
    first, last = sorted(sizes[10:60])[:25], sorted(sizes[150:])[:25]  # without frames, which say everything
    assert sum(last) < 1.2 * sum(first)


async def test_a_team_may_be_a_part_of_a_workflow() -> None:
    inner = WorkflowExecutor(team(checkpoint_storage=None).build(), id="team", allow_direct_output=True)
    result = await WorkflowBuilder(start_executor=inner).build().run("a poem")
    assert [one.text for one in result.get_outputs()] == ["the answer: a text, a fine text"]


@pytest.mark.long
async def test_a_team_comes_to_the_same_wherever_its_run_dies() -> None:
    def script(messages: list[Message]) -> Any:
        return "a text" if messages[-1].role == "tool" else Calls(("look", {}))

    writer = AgentExecutor(ScriptedAgent("writer", script, tools={"look": int}), approve=["look"])
    manager = managing(stuck)
    workflow = team(manager, writer=writer, max_stall_count=1).build()
    report = await crash_everywhere(workflow, "a poem", answer=lambda event: event.data.approve())
    assert report.crashes > 60
    # a call of the model is made again only in a run that died while its result was being noted
    made = manager.calls.count("model") / (report.crashes + 1)
    assert made < 11 + 1
