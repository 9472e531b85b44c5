"""A conversation of many: who has the floor, what each hears, and when it is over."""

from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    DefinitionError,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
)
from stepwell.agents import AgentExecutorResponse, AgentResponse, Calls, ScriptedAgent, conversation_key
from stepwell.orchestrations import (
    GroupChatBuilder,
    GroupChatOrchestrator,
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
    SequentialBuilder,
)


def speaker(name: str, heard: list[Any] | None = None, description: str | None = None) -> ScriptedAgent:
    def script(messages: list[Message]) -> str:
        if heard is not None:
            heard.append([message.text for message in messages])
        return f"{name} {len(messages)}"

    return ScriptedAgent(name, script, description=description)


def in_turn(state: GroupChatState) -> str:
    return list(state.participants)[state.current_round % len(state.participants)]


async def said_in(workflow: Workflow, given: Any = "go", **options: Any) -> list[tuple[str | None, str]]:
    """Runs it; who said what in the chat."""
    storage = InMemoryCheckpointStorage()
    result = await workflow.run(given, checkpoint_storage=storage, **options)
    head = await storage.get_latest(run_id=result.run_id)
    assert head is not None
    return [(one.author_name, one.text) for one in head.state[conversation_key("group_chat_orchestrator")]]


@pytest.mark.parametrize("given", ["go", Message("user", "go"), ["go"], AgentResponse([Message("user", "go")])])
async def test_one_after_the_other_has_the_floor_until_the_rounds_are_over(given: Any) -> None:
    workflow = GroupChatBuilder(participants=[speaker("a"), speaker("b")], selection_func=in_turn, max_rounds=3).build()
    assert await said_in(workflow, given) == [
        (None, "go"),
        ("a", "a 1"),
        ("b", "b 2"),
        ("a", "a 3"),
        ("group_chat_orchestrator", "The chat is over: it has reached the limit of 3 rounds."),
    ]
    result = await workflow.run(given)
    assert [output.text for output in result.get_outputs()] == [
        "The chat is over: it has reached the limit of 3 rounds."
    ]
    assert workflow.name == "GroupChat"


def test_the_way_is_a_star() -> None:
    builder = GroupChatBuilder(participants=[speaker("a"), speaker("b")], selection_func=in_turn, max_rounds=1)
    workflow = builder.build()
    lead = workflow.start_executor_id
    assert lead == "group_chat_orchestrator"
    assert [edge.describe() for edge in workflow.edges] == [
        f"{lead} -> a",
        f"a -> {lead}",
        f"{lead} -> b",
        f"b -> {lead}",
    ]
    named = GroupChatBuilder(
        participants=[speaker("a")], selection_func=in_turn, orchestrator_name="chair", max_rounds=1
    )
    assert named.build().start_executor_id == "chair"


async def test_a_selection_function_sees_rounds_participants_and_what_was_said() -> None:
    seen: list[GroupChatState] = []

    async def choose(state: GroupChatState) -> str | None:
        seen.append(state)
        return "b" if state.current_round < 2 else None

    team = [speaker("a", description="knows little"), speaker("b")]
    workflow = GroupChatBuilder(participants=team, selection_func=choose).build()
    assert [text for _, text in await said_in(workflow)][1:] == [
        "b 1",
        "b 2",
        "The chat is over: no next speaker was chosen.",
    ]
    assert [state.current_round for state in seen] == [0, 1, 2]
    assert seen[0].participants == {"a": "knows little", "b": ""}
    assert [message.text for message in seen[-1].conversation] == ["go", "b 1", "b 2"]


async def test_who_is_chosen_and_does_not_take_part_fails_the_run_and_can_be_put_right() -> None:
    choices = ["nobody", "a"]
    asked: list[str] = []

    def choose(state: GroupChatState) -> str:
        asked.append(choices[len(asked)])
        return asked[-1]

    storage = InMemoryCheckpointStorage()
    builder = GroupChatBuilder(participants=[speaker("a")], selection_func=choose, checkpoint_storage=storage)
    workflow = builder.with_max_rounds(1).build()
    with pytest.raises(HandlerFailed, match=r"'nobody' was chosen to speak next .* the participants are 'a'"):
        await workflow.run("go", run_id="r")
    assert len((await workflow.run(run_id="r")).get_outputs()) == 1


async def test_a_chat_ends_when_its_condition_holds_also_for_what_it_is_given() -> None:
    async def thanks(conversation: list[Message]) -> bool:
        return "thanks" in conversation[-1].text

    agent = ScriptedAgent("a", ["well", "thanks"])
    builder = GroupChatBuilder(participants=[agent], selection_func=in_turn).with_termination_condition(thanks)
    workflow = builder.build()
    said = await said_in(workflow)
    assert [text for _, text in said][1:] == ["well", "thanks", "The chat is over: its termination condition is met."]
    assert len(await said_in(workflow, "no, thanks")) == 2
    assert agent.calls == ["model"] * 2


async def test_each_hears_what_was_said_since_it_last_spoke() -> None:
    heard: list[Any] = []
    order = ["a", "b", "c", "a", "a"]
    team = [speaker("a", heard), speaker("b"), speaker("c")]
    workflow = GroupChatBuilder(
        participants=team, selection_func=lambda state: order[state.current_round], max_rounds=5
    ).build()
    await workflow.run("go")
    assert heard == [["go"], ["go", "a 1", "b 2", "c 3"], ["go", "a 1", "b 2", "c 3", "a 4"]]


async def test_what_happens_is_told_live() -> None:
    workflow = GroupChatBuilder(participants=[speaker("a"), speaker("b")], selection_func=in_turn, max_rounds=2).build()
    told = [event.data async for event in workflow.run("go", stream=True) if event.type == "group_chat"]
    assert told == [
        GroupChatRequestSentEvent(1, "a"),
        GroupChatResponseReceivedEvent(1, "a"),
        GroupChatRequestSentEvent(2, "b"),
        GroupChatResponseReceivedEvent(2, "b"),
    ]


async def test_answers_on_the_way_can_be_told() -> None:
    team = [speaker("a"), speaker("b")]
    builder = GroupChatBuilder(
        participants=team, selection_func=in_turn, max_rounds=2, intermediate_output_from="all_other"
    )
    told = [event async for event in builder.build().run("go", stream=True)]
    assert [event.data.text for event in told if event.type == "intermediate"] == ["a 1", "b 2"]
    assert len([event for event in told if event.type == "output"]) == 1


class Polite(Executor):
    """Keeps what it hears, and says how much it was."""

    @handler
    async def hear(self, message: GroupChatParticipantMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        ctx.append_state(f"heard by {self.id}", *(one.text for one in message.messages))

    @handler
    async def speak(self, request: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        heard = ctx.get_state(f"heard by {self.id}", [])
        told = f"{self.id} heard {', '.join(heard)}{request.additional_instruction or ''}"
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", told)))


async def test_executors_hear_at_once_and_speak_when_asked() -> None:
    order = ["a", "polite", "a"]
    team = [speaker("a"), Polite("polite")]
    workflow = GroupChatBuilder(
        participants=team, selection_func=lambda state: order[state.current_round], max_rounds=3
    ).build()
    said = await said_in(workflow)
    assert said[1:4] == [("a", "a 1"), ("polite", "polite heard go, a 1"), ("a", "a 3")]


async def test_who_takes_a_list_of_messages_gets_all_of_them_each_time() -> None:
    @executor(id="counter")
    async def counter(conversation: list[Message], ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message([*conversation, Message("assistant", f"{len(conversation)} so far")])

    @executor(id="texter")
    async def texter(conversation: list[Message], ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("just text")

    inner = SequentialBuilder(participants=[speaker("x"), speaker("y")], name="inner").build()
    team = [counter, texter, WorkflowExecutor(inner)]
    said = await said_in(GroupChatBuilder(participants=team, selection_func=in_turn, max_rounds=4).build())
    assert said[:-1] == [
        (None, "go"),
        ("counter", "1 so far"),
        ("texter", "just text"),
        ("inner", "y 4"),
        ("counter", "4 so far"),
    ]


async def test_a_team_as_an_agent_remembers_and_is_told_what_is_new() -> None:
    heard: list[Any] = []
    inner = SequentialBuilder(participants=[speaker("x", heard)], name="inner").build().as_agent()
    workflow = GroupChatBuilder(participants=[inner, speaker("b")], selection_func=in_turn, max_rounds=3).build()
    assert await said_in(workflow) == [
        (None, "go"),
        ("inner", "x 1"),
        ("b", "b 2"),
        ("inner", "x 3"),
        ("group_chat_orchestrator", "The chat is over: it has reached the limit of 3 rounds."),
    ]
    assert heard == [["go"], ["go", "x 1", "b 2"]]


async def test_what_tools_gave_and_silence_do_not_belong_into_the_chat() -> None:
    async def talker(messages: list[Message]) -> list[Message]:
        return [Message("tool", "secret"), Message("assistant", ""), Message("assistant", "out loud")]

    said = await said_in(GroupChatBuilder(participants=[talker], selection_func=in_turn, max_rounds=1).build())
    assert said[1:-1] == [("talker", "out loud")]


async def test_an_orchestrator_of_ones_own_chooses_and_says_more() -> None:
    class Twice(GroupChatOrchestrator):
        async def choose(self, state: GroupChatState, ctx: Any) -> str | None:
            return "polite" if state.current_round < 2 else None

        def request_for(self, name: str) -> GroupChatRequestMessage:
            return GroupChatRequestMessage(additional_instruction=" (briefly)")

    workflow = GroupChatBuilder(participants=[Polite("polite")], orchestrator=Twice()).build()
    said = await said_in(workflow)
    assert said[1:-1] == [
        ("polite", "polite heard go (briefly)"),
        ("polite", "polite heard go (briefly)"),
    ]


async def test_a_new_message_opens_the_chat_again_with_all_its_rounds() -> None:
    heard: list[Any] = []
    storage = InMemoryCheckpointStorage()
    builder = GroupChatBuilder(participants=[speaker("a", heard)], selection_func=in_turn, checkpoint_storage=storage)
    workflow = builder.with_max_rounds(2).build()
    handle = workflow.start("go", run_id="r")
    await handle.result()
    await handle.send("and now?")
    assert len((await handle.result()).get_outputs()) == 2
    over = "The chat is over: it has reached the limit of 2 rounds."
    assert heard[2:] == [
        ["go", "a 1", "a 2", over, "and now?"],
        ["go", "a 1", "a 2", over, "and now?", "a 5"],
    ]


async def test_what_is_said_from_outside_while_somebody_has_the_floor_is_heard_by_the_next() -> None:
    heard: list[Any] = []
    clerk = ScriptedAgent("clerk", [Calls(("pay", {})), "paid"], tools={"pay": int}, approve=["pay"])
    builder = GroupChatBuilder(participants=[clerk, speaker("b", heard)], selection_func=in_turn, max_rounds=2)
    workflow = builder.with_checkpointing(InMemoryCheckpointStorage()).build()
    handle = workflow.start("go", run_id="r")
    (event,) = (await handle.result()).get_request_info_events()
    await handle.send("hurry up")
    assert len((await handle.result()).get_request_info_events()) == 1
    await handle.respond({event.request_id: event.data.approve()})
    assert len((await handle.result()).get_outputs()) == 1
    assert heard == [["go", "hurry up", "paid"]]


async def test_who_says_more_than_it_was_asked_for_is_heard_and_has_no_second_turn() -> None:
    @executor(id="eager")
    async def eager(conversation: list[Message], ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("one")
        await ctx.send_message("two")

    order = ["eager", "b", None]
    heard: list[Any] = []
    workflow = GroupChatBuilder(
        participants=[eager, speaker("b", heard)], selection_func=lambda state: order[state.current_round]
    ).build()
    assert [text for _, text in await said_in(workflow)][:4] == ["go", "one", "two", "b 2"]
    assert heard == [["go", "one"]]


async def test_participants_come_from_factories_too() -> None:
    builder = GroupChatBuilder(
        participant_factories=[lambda: speaker("a"), lambda: Polite("polite")], selection_func=in_turn, max_rounds=2
    )
    assert {"a", "polite"} < set(builder.build().executors)


async def test_a_chat_is_a_sub_workflow() -> None:
    inner = GroupChatBuilder(
        participants=[speaker("a"), speaker("b")], selection_func=in_turn, max_rounds=2, name="chat"
    ).build()
    first, last = AgentExecutor(speaker("first")), AgentExecutor(speaker("last"))
    builder = WorkflowBuilder(start_executor=first, output_from=[last])
    result = await builder.add_chain([first, WorkflowExecutor(inner), last]).build().run("go")
    assert [output.text for output in result.get_outputs()] == ["last 1"]


def test_everything_wrong_is_said_at_once() -> None:
    @executor(id="deaf")
    async def deaf(number: int, ctx: WorkflowContext[AgentExecutorResponse]) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        GroupChatBuilder(
            participants=[deaf],
            selection_func="a",  # type: ignore[arg-type]
            orchestrator=7,  # type: ignore[arg-type]
            orchestrator_agent="x",
            termination_condition=3,  # type: ignore[arg-type]
            max_rounds=0,
            retry_attempts=-1,
        ).build()
    words = str(caught.value)
    for problem in (
        "'deaf' accepts neither GroupChatRequestMessage nor list[Message]",
        "selection_func, orchestrator_agent and orchestrator, but 3 are set",
        "selection_func must be callable, not 'a'",
        "termination_condition must be callable, not 3",
        "orchestrator must be an instance of GroupChatOrchestrator, not 7",
        "max_rounds must be at least 1, not 0",
        "retry_attempts must be at least 0, not -1",
        "'x' cannot be a participant",
    ):
        assert problem in words
    with pytest.raises(DefinitionError, match="but 0 are set"):
        GroupChatBuilder(participants=[speaker("a")]).build()
