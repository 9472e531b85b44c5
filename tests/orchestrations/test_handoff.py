"""Agents that hand a conversation over to each other."""

from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    DefinitionError,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Message,
    RunError,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
)
from stepwell.agents import Answer, Calls, ScriptedAgent, ToolApprovalRequest, Turn, conversation_key
from stepwell.orchestrations import HandoffAgentUserRequest, HandoffBuilder, HandoffSentEvent
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import ScriptedHuman, crash_everywhere
from stepwell.testing.faults.wrapped_store import WrappedStore

create_response, terminate = HandoffAgentUserRequest.create_response, HandoffAgentUserRequest.terminate


def to(agent: str, text: str = "") -> Calls:
    return Calls((f"handoff_to_{agent}", {}), text=text)


def shop(*, triage: Any = (), refunds: Any = (), orders: Any = (), **options: Any) -> HandoffBuilder:
    agents = [
        ScriptedAgent("triage", list(triage)),
        ScriptedAgent("refunds", list(refunds), description="gives money back"),
        ScriptedAgent("orders", list(orders)),
    ]
    options.setdefault("checkpoint_storage", InMemoryCheckpointStorage())
    return HandoffBuilder(participants=agents, **options).with_start_agent("triage")


async def test_an_agent_hands_over_and_the_other_hears_everything() -> None:
    storage = InMemoryCheckpointStorage()
    scripts = {"triage": [to("refunds", "let me see")], "refunds": ["here is your money"]}
    workflow = shop(**scripts, checkpoint_storage=storage).build()
    result = await workflow.run("my cup is broken", run_id="r")
    assert [(one.text, one.handoff) for one in result.get_outputs()] == [
        ("let me see", "handoff_to_refunds"),
        ("here is your money", None),
    ]
    (event,) = result.get_request_info_events()
    assert event.source_executor_id == "refunds"
    assert event.data.agent_response.text == "here is your money"
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    heard = [(message.author_name, message.text) for message in checkpoint.state[conversation_key("refunds")]]
    assert heard == [(None, "my cup is broken"), ("triage", "let me see"), ("refunds", "here is your money")]


async def test_results_of_tools_are_not_handed_over() -> None:
    async def triage(messages: list[Message], turn: Turn) -> Answer:
        said = [Message("tool", "42"), Message("assistant", ""), Message("assistant", "over to you")]
        return Answer(said, handoff="handoff_to_refunds")

    storage = InMemoryCheckpointStorage()
    team = HandoffBuilder(participants=[triage, ScriptedAgent("refunds", ["done"])], checkpoint_storage=storage)
    await team.with_start_agent("triage").build().run("my cup is broken", run_id="r")
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    heard = [message.text for message in checkpoint.state[conversation_key("refunds")]]
    assert heard == ["my cup is broken", "over to you", "done"]


async def test_the_answer_of_the_user_goes_to_the_start_agent() -> None:
    storage = InMemoryCheckpointStorage()
    scripts = {"triage": [to("refunds"), "anything else?"], "refunds": ["which cup?"]}
    workflow = shop(**scripts, checkpoint_storage=storage).build()
    (event,) = (await workflow.run("my cup is broken", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: create_response("the red one")})
    (event,) = result.get_request_info_events()
    assert event.source_executor_id == "triage"
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    heard = [message.text for message in checkpoint.state[conversation_key("triage")]]
    assert heard == ["my cup is broken", "which cup?", "the red one", "anything else?"]


async def test_with_return_to_previous_it_goes_to_whoever_asked() -> None:
    workflow = shop(triage=[to("refunds")], refunds=["which cup?", "done"]).enable_return_to_previous().build()
    (event,) = (await workflow.run("my cup is broken", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: create_response(["the red one"])})
    (event,) = result.get_request_info_events()
    assert (event.source_executor_id, event.data.agent_response.text) == ("refunds", "done")


async def test_the_user_ends_the_conversation() -> None:
    workflow = shop(triage=["hello"]).build()
    (event,) = (await workflow.run("hi", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: terminate()})
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert [one.text for one in result.get_outputs()] == ["hello"]


def test_what_the_user_says_is_a_text_or_messages_and_not_nothing() -> None:
    assert create_response("hi") == [Message("user", "hi")]
    assert create_response([Message("user", "a"), "b"]) == [Message("user", "a"), Message("user", "b")]
    with pytest.raises(ValueError, match=r"terminate\(\)"):
        create_response([])


async def test_plain_json_will_do_as_an_answer() -> None:
    workflow = shop(triage=["hello", "bye"]).build()
    (event,) = (await workflow.run("hi", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: [{"role": "user", "text": "thanks"}]})
    assert [one.text for one in result.get_outputs()] == ["hello", "bye"]


async def test_who_hands_over_is_told_while_it_happens() -> None:
    workflow = shop(triage=[to("refunds")], refunds=[to("orders")], orders=["sent"]).build()
    told = [event async for event in workflow.run("go", stream=True) if event.type == "handoff_sent"]
    assert [event.data for event in told] == [
        HandoffSentEvent("triage", "refunds"),
        HandoffSentEvent("refunds", "orders"),
    ]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_conversation_is_over_when_the_condition_says_so(is_async: bool) -> None:
    asked: list[int] = []

    def is_over(conversation: list[Message]) -> bool:
        asked.append(len(conversation))
        return "bye" in conversation[-1].text

    async def is_over_async(conversation: list[Message]) -> bool:
        return is_over(conversation)

    condition = is_over_async if is_async else is_over
    workflow = shop(triage=["hello", "never said"]).with_termination_condition(condition).build()
    (event,) = (await workflow.run("hi", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: create_response("bye")})
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert [one.text for one in result.get_outputs()] == ["hello"]
    assert asked == [1, 2, 3]


async def test_the_condition_is_looked_at_after_a_turn_before_anybody_is_handed_over_to() -> None:
    workflow = shop(triage=[to("refunds", "bye")], termination_condition=lambda said: said[-1].text == "bye").build()
    result = await workflow.run("hi")
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert [one.text for one in result.get_outputs()] == ["bye"]


async def test_agents_go_on_by_themselves_up_to_a_limit() -> None:
    heard: list[str] = []

    def script(messages: list[Message]) -> str:
        heard.append(messages[-1].text)
        return f"step {len(heard)}"

    builder = HandoffBuilder(participants=[ScriptedAgent("alone", script)]).with_start_agent("alone")
    builder.with_autonomous_mode(prompts={"alone": "on you go"}, turn_limits={"alone": 2})
    workflow = builder.with_checkpointing(InMemoryCheckpointStorage()).build()
    result = await workflow.run("go", run_id="r")
    assert len(result.get_outputs()) == 3
    (event,) = result.get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: create_response("more")})
    assert len(result.get_outputs()) == 6
    assert len(result.get_request_info_events()) == 1
    assert heard == ["go", "on you go", "on you go", "more", "on you go", "on you go"]


async def test_each_turn_an_agent_takes_by_itself_is_a_superstep_of_its_own() -> None:
    builder = shop(triage=["a", "b", "c", to("refunds")], refunds=["d"]).with_autonomous_mode(agents=["triage"])
    workflow = builder.build()
    supersteps = [event async for event in workflow.run("go", stream=True) if event.type == "superstep_completed"]
    assert len(supersteps) == 5


async def test_a_limit_of_nothing_means_that_the_user_is_asked_at_once() -> None:
    builder = shop(triage=["hello"]).with_autonomous_mode(turn_limits={"triage": 0})
    result = await builder.build().run("hi")
    assert [event.source_executor_id for event in result.get_request_info_events()] == ["triage"]


async def test_an_agent_is_offered_tools_for_those_it_may_hand_over_to() -> None:
    workflow = shop().build()
    assert workflow.executors["triage"].handoffs == {  # type: ignore[attr-defined]
        "handoff_to_refunds": "Hand the conversation over to refunds: gives money back",
        "handoff_to_orders": "Hand the conversation over to orders.",
    }
    builder = shop().add_handoff("triage", ["refunds"], description="about money").add_handoff("triage", ["orders"])
    executors: Any = builder.add_handoff("refunds", ["triage"]).build().executors
    assert executors["triage"].handoffs["handoff_to_refunds"] == "about money"
    assert list(executors["refunds"].handoffs) == ["handoff_to_triage"]
    assert executors["orders"].handoffs == {}


def test_a_tool_has_a_name_that_every_model_accepts() -> None:
    first, second = ScriptedAgent("first", []), ScriptedAgent("the second & " + "x" * 60, [])
    executors: Any = HandoffBuilder(participants=[first, second]).with_start_agent(first).build().executors
    (tool,) = executors["first"].handoffs
    assert tool == "handoff_to_the_second___" + "x" * 40
    assert len(tool) == 64


def test_the_edges_are_the_handoffs_and_the_way_back_to_the_start() -> None:
    builder = shop().add_handoff("triage", ["refunds"]).add_handoff("refunds", ["orders"])
    assert {edge.describe() for edge in builder.build().edges} == {
        "triage -> refunds",
        "refunds -> orders",
        "refunds -> triage",
        "orders -> triage",
    }
    builder.enable_return_to_previous().with_autonomous_mode(agents=["orders"])
    assert {edge.describe() for edge in builder.build().edges} == {
        "triage -> refunds",
        "refunds -> orders",
        "orders -> orders",
    }


def problems(builder: HandoffBuilder) -> str:
    with pytest.raises(DefinitionError) as raised:
        builder.build()
    return "\n".join(raised.value.problems)


def test_everything_wrong_with_a_team_is_said_at_once() -> None:
    @executor(id="plain")
    async def plain(text: str, ctx: WorkflowContext[str]) -> None: ...

    deaf = AgentExecutor(ScriptedAgent("deaf", []), context_mode="last_agent")
    builder = HandoffBuilder(participants=[ScriptedAgent("one", []), plain, deaf, ScriptedAgent("lonely", [])])
    builder.add_handoff("one", ["one", "nobody", "plain", "deaf"])
    found = problems(builder.with_autonomous_mode(agents=["ghost"], turn_limits={"one": -1}))
    for part in (
        "'plain' is a FunctionExecutor, but only agents",
        "'deaf' has context_mode='last_agent'",
        "call with_start_agent(...)",
        "'one' cannot hand over to itself",
        "add_handoff names 'nobody'",
        "with_autonomous_mode names 'ghost'",
        "turn limit of 'one' must be an integer of at least 0, not -1",
        "a prompt or a turn limit for 'one', which is not among its agents",
    ):
        assert part in found
    assert "no agent may hand over to 'lonely'" in problems(builder.with_start_agent("one"))
    assert "at least one participant" in problems(HandoffBuilder().with_start_agent("one"))
    alike = [ScriptedAgent("a b", []), ScriptedAgent("a_b", []), ScriptedAgent("c", [])]
    assert "would both be called 'handoff_to_a_b'" in problems(HandoffBuilder(participants=alike).with_start_agent("c"))


async def test_a_handoff_that_was_not_offered_fails_the_run() -> None:
    class Rogue:
        name = "rogue"

        async def take_turn(self, turn: Turn) -> Answer:
            return Answer(handoff="handoff_to_mars")

    workflow = HandoffBuilder(participants=[Rogue()]).with_start_agent("rogue").build()
    with pytest.raises(RunError, match="'handoff_to_mars', which it does not have"):
        await workflow.run("go")


async def test_what_is_asked_about_before_a_tool_is_called_is_asked_in_a_team_too() -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        paid.append(amount)
        return "ok"

    refunds = ScriptedAgent("refunds", [Calls(("pay", {"amount": 3})), "paid"], tools={"pay": pay})
    agents = [ScriptedAgent("triage", [to("refunds")]), AgentExecutor(refunds, approve=["pay"])]
    builder = HandoffBuilder(participants=agents).with_start_agent(agents[0])
    workflow = builder.with_checkpointing(InMemoryCheckpointStorage()).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert isinstance(event.data, ToolApprovalRequest)
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert paid == [3]
    assert result.get_outputs()[-1].text == "paid"


@pytest.mark.parametrize("make", [FileCheckpointStorage, SQLiteCheckpointStorage])
async def test_a_pause_is_stored_and_another_workflow_object_goes_on(make: Any, tmp_path: Any) -> None:
    def build() -> tuple[Workflow, Any]:
        storage = make(tmp_path / "runs")
        return shop(triage=[to("refunds"), "bye"], refunds=["which cup?"], checkpoint_storage=storage).build(), storage

    workflow, _ = build()
    (event,) = (await workflow.run("my cup is broken")).get_request_info_events()
    workflow, storage = build()
    latest = await storage.get_latest(workflow_name="Handoff")
    answers = {event.request_id: event.data.create_response("the red one")}
    result = await workflow.run(checkpoint_id=latest.checkpoint_id, responses=answers)
    assert [one.text for one in result.get_outputs()][-1] == "bye"


async def test_a_conversation_may_be_long() -> None:
    scripts = {"triage": [to("refunds")] * 150, "refunds": [to("triage")] * 149 + ["done"]}
    result = await shop(**scripts).build().run("go")
    assert len(result.get_outputs()) == 300


async def test_what_an_agent_outside_the_team_says_opens_it() -> None:
    outside = AgentExecutor(ScriptedAgent("refunds", ["a broken cup"]), id="refunds")
    team = WorkflowExecutor(
        shop(triage=[to("refunds")], refunds=["sorry"]).build(), id="team", allow_direct_output=True
    )
    result = await WorkflowBuilder(start_executor=outside).add_edge(outside, team).build().run("hello")
    (event,) = result.get_request_info_events()
    assert event.data.agent_response.text == "sorry"


@pytest.mark.long
async def test_a_turn_costs_what_is_said_in_it_however_long_the_conversation_is() -> None:
    sizes: list[int] = []

    class Weighed(WrappedStore):
        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            if name == "append":
                sizes.append(len(args[0].body))
            return await call()

    scripts = {"triage": [to("refunds", "x" * 300)] * 100, "refunds": [to("triage", "y" * 300)] * 99 + ["done"]}
    await shop(**scripts, checkpoint_storage=BuiltInStorage(Weighed(MemoryStore()))).build().run("go")
    between = sorted(sizes[10:])[: len(sizes) // 2]  # without frames, which say everything
    assert len(sizes) > 190
    assert between[-1] < 1.2 * between[0]


async def test_a_team_may_be_a_part_of_a_workflow() -> None:
    inner = shop(triage=[to("refunds"), "bye"], refunds=["which cup?"], checkpoint_storage=None).build()
    team = WorkflowExecutor(inner, id="team", allow_direct_output=True, propagate_request=True)
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=team, checkpoint_storage=storage).build()
    (event,) = (await workflow.run("my cup is broken", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: create_response("the red one")})
    assert result.get_outputs()[-1].text == "bye"


@pytest.mark.long
async def test_a_team_comes_to_the_same_wherever_its_run_dies() -> None:
    def answer(event: Any) -> Any:
        return event.data.approve() if isinstance(event.data, ToolApprovalRequest) else next_said(event)

    next_said = ScriptedHuman([create_response("the red one"), terminate()])
    refunds = ScriptedAgent("refunds", ["which cup?", "hm", Calls(("pay", {})), to("triage")], tools={"pay": int})
    agents = [ScriptedAgent("triage", [to("refunds", "one moment"), to("refunds"), "bye"])]
    builder = HandoffBuilder(participants=[*agents, AgentExecutor(refunds, approve=["pay"])])
    builder.with_start_agent("triage").with_termination_condition(lambda said: len(said) > 50)
    builder.with_autonomous_mode(agents=["refunds"], turn_limits={"refunds": 1})
    report = await crash_everywhere(builder.build(), "my cup is broken", answer=answer)
    assert report.crashes > 40


async def test_what_is_said_while_an_agent_waits_is_answered_by_whoever_it_hands_over_to() -> None:
    def serve(messages: list[Message]) -> Calls:
        return Calls(("handoff_to_returns" if messages[-1].role == "tool" else "look", {}))

    desk = AgentExecutor(ScriptedAgent("desk", serve, tools={"look": int}), approve=["look"])
    returns = ScriptedAgent("returns", lambda messages: f"heard {[message.text for message in messages]}")
    builder = HandoffBuilder(participants=[desk, returns], checkpoint_storage=InMemoryCheckpointStorage())
    handle = builder.with_start_agent("desk").build().start("My lamp is broken.", run_id="r")
    (event,) = (await handle.result()).get_request_info_events()
    await handle.send("Hurry up!")
    await handle.respond({event.request_id: event.data.approve()})
    (event,) = (await handle.result()).get_request_info_events()
    assert (event.source_executor_id, event.request_type) == ("returns", "HandoffAgentUserRequest")
    assert event.data.agent_response.text == "heard ['My lamp is broken.', 'Hurry up!']"
