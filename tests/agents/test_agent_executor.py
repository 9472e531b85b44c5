"""An agent in a workflow: what it hears, says, calls and asks."""

from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    RetryPolicy,
    RunError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.agents import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Answer,
    Asks,
    Budget,
    BudgetRequest,
    Calls,
    Fails,
    ModelReply,
    ScriptedAgent,
    ToolApprovalRequest,
    ToolOutcomeRequest,
    Turn,
    Usage,
    conversation_key,
    current_tool_call,
    usage_in,
)
from stepwell.agents.scripted import Move
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import crash_everywhere
from stepwell.testing.faults.wrapped_store import WrappedStore


def alone(agent: Any, **options: Any) -> Workflow:
    storage = options.pop("storage", None) or InMemoryCheckpointStorage()
    return WorkflowBuilder(
        name="alone", start_executor=AgentExecutor(agent, **options), checkpoint_storage=storage
    ).build()


async def test_an_agent_answers_and_its_answer_is_an_output() -> None:
    result = await alone(ScriptedAgent("writer", ["a fine text"])).run("write")
    (response,) = result.get_outputs()
    assert isinstance(response, AgentResponse)
    assert (response.text, response.messages[0].author_name) == ("a fine text", "writer")
    assert response.usage == Usage(1, 3, calls=1)


async def test_an_agent_may_stand_where_an_executor_is_expected() -> None:
    writer, critic = ScriptedAgent("writer", ["text"]), ScriptedAgent("critic", ["good"])
    workflow = WorkflowBuilder(start_executor=writer).add_edge(writer, critic).build()
    assert set(workflow.executors) == {"writer", "critic"}
    assert [one.text for one in (await workflow.run("go")).get_outputs()] == ["text", "good"]


async def test_the_next_agent_hears_the_whole_conversation_each_message_once() -> None:
    writer, critic = ScriptedAgent("writer", ["one", "two"]), ScriptedAgent("critic", ["more", "enough"])
    storage = InMemoryCheckpointStorage()

    def wants_more(response: AgentExecutorResponse) -> bool:
        return response.agent_response.text == "more"

    workflow = (
        WorkflowBuilder(start_executor=writer, checkpoint_storage=storage)
        .add_edge(writer, critic)
        .add_edge(critic, writer, condition=wants_more)
        .build()
    )
    result = await workflow.run("write")
    checkpoint = await storage.get_latest(run_id=result.run_id)
    assert checkpoint is not None
    heard = [message.text for message in checkpoint.state[conversation_key("critic")]]
    assert heard == ["write", "one", "more", "two", "enough"]


async def test_with_last_agent_only_the_last_answer_is_heard() -> None:
    heard: list[list[str]] = []

    async def listener(messages: list[Message]) -> str:
        heard.append([message.text for message in messages])
        return "ok"

    last = AgentExecutor(listener, context_mode="last_agent")
    first = AgentExecutor(ScriptedAgent("first", ["answer"]))
    await WorkflowBuilder(start_executor=first).add_edge(first, last).build().run("question")
    assert heard == [["answer"]]


async def test_who_only_listens_answers_when_asked() -> None:
    @executor(id="host")
    async def host(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest([Message("user", "first")], should_respond=False))
        await ctx.send_message(AgentExecutorRequest([Message("user", "second")]))

    async def listener(messages: list[Message]) -> str:
        return " and ".join(message.text for message in messages)

    guest = AgentExecutor(listener)
    result = await WorkflowBuilder(start_executor=host).add_edge(host, guest).build().run("go")
    assert [one.text for one in result.get_outputs()] == ["first and second"]


async def test_full_conversation_is_read_from_the_state_of_the_run() -> None:
    seen: list[list[str]] = []

    @executor(id="reader")
    async def reader(response: AgentExecutorResponse, ctx: WorkflowContext[None]) -> None:
        seen.append([message.text for message in response.full_conversation(ctx)])
        seen.append([message.text for message in response.with_text("B").full_conversation(ctx)])

    agent = AgentExecutor(ScriptedAgent("writer", ["b"]))
    await WorkflowBuilder(start_executor=agent).add_edge(agent, reader).build().run("a")
    assert seen == [["a", "b"], ["a", "B"]]


def payer(paid: list[int], **options: Any) -> ScriptedAgent:
    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    script: list[Move] = [Calls(("rate", {}), ("pay", {"amount": 3})), "all done"]
    return ScriptedAgent("clerk", script, tools={"pay": pay, "rate": lambda: 2}, **options)


@pytest.mark.parametrize(
    ("decide", "paid", "told"),
    [
        (lambda asked: asked.approve(), [3], "paid 3"),
        (lambda asked: asked.approve({"amount": 2}), [2], "paid 2"),
        (lambda asked: asked.deny("too dear"), [], "The call was denied: too dear"),
        (lambda asked: asked.answer("paid by hand"), [], "paid by hand"),
        (lambda asked: {"decision": "approve"}, [3], "paid 3"),
    ],
)
async def test_a_tool_call_waits_for_what_a_person_says(decide: Any, paid: list[int], told: str) -> None:
    really: list[int] = []
    heard: list[str] = []

    def script(messages: list[Message]) -> Any:
        said = [message.text for message in messages if message.role == "tool"]
        heard[:] = said
        return "done" if said else Calls(("pay", {"amount": 3}))

    agent = payer(really, approve=["pay"])
    agent._script = script
    workflow = alone(agent)
    result = await workflow.run("go", run_id="r")
    (event,) = result.get_request_info_events()
    assert event.data == ToolApprovalRequest("clerk", "pay", {"amount": 3}, "call-0")
    assert not really
    result = await workflow.run(run_id="r", responses={event.request_id: decide(event.data)})
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert (really, heard) == (paid, [told])


async def test_an_approval_is_used_once_and_calls_of_one_reply_are_asked_about_together() -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        paid.append(amount)
        return "ok"

    both = Calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    agent = ScriptedAgent("clerk", [both, both, "done"], tools={"pay": pay})
    workflow = alone(agent, approve=["pay"])
    result = await workflow.run("go", run_id="r")
    for _ in range(2):
        first, second = result.get_request_info_events()
        result = await workflow.run(run_id="r", responses={first.request_id: first.data.approve()})
        assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        result = await workflow.run(run_id="r", responses={second.request_id: second.data.deny()})
    assert paid == [1, 1]
    assert result.get_outputs()[-1].text == "done"
    assert agent.calls.count("model") == 3


async def test_a_tool_knows_a_key_that_is_the_same_for_every_attempt() -> None:
    keys: list[str] = []

    def pay() -> str:
        keys.append(current_tool_call().idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("gone")
        return "ok"

    agent = ScriptedAgent("clerk", [Calls(("pay", {})), Calls(("pay", {})), "done"], tools={"pay": pay})
    await alone(agent, retry=RetryPolicy(max_attempts=5, initial_interval=0)).run("go")
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    assert agent.calls.count("model") == 3
    with pytest.raises(RuntimeError, match="outside a tool"):
        current_tool_call()


async def test_a_turn_that_fails_does_not_repeat_what_it_had_done() -> None:
    script: list[Move] = [Calls(("look", {})), Fails(ConnectionError("gone"), times=2), "found"]
    agent = ScriptedAgent("clerk", script, tools={"look": lambda: 5})
    workflow = alone(agent)
    for _ in range(2):
        with pytest.raises(HandlerFailed, match="gone"):
            await workflow.run("go", run_id="r")
    assert (await workflow.run("go", run_id="r")).get_outputs()[0].text == "found"
    assert agent.calls == ["model", "look", "model", "model", "model"]


async def test_pieces_of_text_are_told_live_and_withdrawn_if_they_come_to_nothing() -> None:
    script: list[Move] = [Fails(ConnectionError("gone"), after="half a sent"), "all of it"]
    workflow = alone(ScriptedAgent("clerk", script), retry=RetryPolicy(max_attempts=2, initial_interval=0))
    told = [event async for event in workflow.run("go", stream=True) if event.type in ("update", "withdrawn")]
    assert [(event.type, event.attempt, event.data.text if event.type == "update" else None) for event in told] == [
        ("update", 1, "half a sent"),
        ("withdrawn", 1, None),
        ("withdrawn", 1, None),
        ("update", 2, "all "),
        ("update", 2, "of "),
        ("update", 2, "it "),
    ]
    assert all(event.delivery == "0.0" and not event.durable for event in told)


async def test_what_a_dead_process_told_is_withdrawn_and_told_again() -> None:
    script: list[Move] = [Calls(("look", {}), text="let me see"), Fails(OSError("gone")), "found"]
    agent = ScriptedAgent("clerk", script, tools={"look": int})
    workflow = alone(agent)
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    told = [event async for event in workflow.run(run_id="r", stream=True) if event.type in ("update", "withdrawn")]
    assert told[0].type == "withdrawn"
    assert told[1].data.text == "let me see"
    assert "".join(event.data.text for event in told[1:]) == "let me seefound "


async def test_what_is_unsafe_to_repeat_is_asked_about_if_nobody_knows() -> None:
    sent: list[str] = []

    def send(to: str) -> str:
        sent.append(current_tool_call().idempotency_key)
        if len(sent) == 1:
            raise ConnectionError("no answer")
        return "sent"

    agent = ScriptedAgent("clerk", [Calls(("send", {"to": "a"})), "done"], tools={"send": send})
    workflow = alone(agent, unsafe=["send"])
    with pytest.raises(HandlerFailed, match="no answer"):
        await workflow.run("go", run_id="r")
    result = await workflow.run(run_id="r")
    (event,) = result.get_request_info_events()
    assert event.data == ToolOutcomeRequest("clerk", "send", {"to": "a"}, "call-0", sent[0])
    assert len(sent) == 1
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.retry()})
    assert sent == [sent[0]] * 2
    assert result.get_outputs()[0].text == "done"


@pytest.mark.parametrize(("say", "times"), [("ran", 1), ("did_not_run", 2)])
async def test_a_person_says_whether_it_ran(say: str, times: int) -> None:
    sent: list[int] = []

    def send() -> str:
        sent.append(1)
        if len(sent) == 1:
            raise ConnectionError("no answer")
        return "sent"

    agent = ScriptedAgent("clerk", [Calls(("send", {})), "done"], tools={"send": send})
    workflow = alone(agent, unsafe=["send"])
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    (event,) = (await workflow.run(run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={event.request_id: getattr(event.data, say)()})
    assert len(sent) == times


async def test_a_budget_stops_a_run_until_it_is_raised() -> None:
    agent = ScriptedAgent("clerk", [Calls(("look", {})), Calls(("look", {})), "done"], tools={"look": int})
    workflow = alone(agent, budget=Budget(calls=1))
    result = await workflow.run("go", run_id="r")
    for limit, spent in ((1, 1), (2, 2)):
        (event,) = result.get_request_info_events()
        assert event.data == BudgetRequest("clerk", "calls", limit, spent, whole_run=False)
        assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(limit + 1)})
    assert result.get_outputs()[0].text == "done"
    assert agent.calls == ["model", "look", "model", "look", "model"]


async def test_a_raise_that_is_too_small_is_asked_again() -> None:
    workflow = alone(ScriptedAgent("clerk", [Calls(("look", {})), "done"], tools={"look": int}), budget=Budget(calls=1))
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(1)})
    (again,) = result.get_request_info_events()
    assert again.request_id != event.request_id


async def test_a_budget_of_the_whole_run_counts_everybody_and_prices_count() -> None:
    def price(usage: Usage) -> float:
        return 0.5 * usage.calls

    shared = Budget(cost=0.5, whole_run=True)
    first = AgentExecutor(ScriptedAgent("first", ["one"]), budget=shared, price=price)
    second = AgentExecutor(ScriptedAgent("second", ["two"]), budget=shared, price=price)
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=first, checkpoint_storage=storage).add_edge(first, second).build()
    result = await workflow.run("go", run_id="r")
    (event,) = result.get_request_info_events()
    assert event.data == BudgetRequest("second", "cost", 0.5, 0.5, whole_run=True)
    await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(2)})
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    assert {id: used.cost for id, used in usage_in(checkpoint.state).items()} == {"first": 0.5, "second": 0.5}


async def test_a_budget_of_money_is_refused_if_nobody_knows_what_calls_cost() -> None:
    agent = ScriptedAgent("clerk", [Calls(("look", {})), "done"], tools={"look": int})
    with pytest.raises(RunError, match="the cost of its calls is unknown"):
        await alone(agent, budget=Budget(cost=1)).run("go")


async def test_an_agent_asks_a_question_of_its_own_until_the_answer_will_do() -> None:
    workflow = alone(ScriptedAgent("clerk", [Asks("how many?", int)]))
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert event.data.data == "how many?"
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.answer("many")})
    (again,) = result.get_request_info_events()
    assert again.data.problem
    result = await workflow.run(run_id="r", responses={again.request_id: again.data.answer(7)})
    assert result.get_outputs()[0].text == "7"


async def test_what_is_said_to_an_agent_that_waits_is_answered_when_it_goes_on() -> None:
    @executor(id="host")
    async def host(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        for word in ("first", "second"):
            await ctx.send_message(AgentExecutorRequest([Message("user", word)]))

    heard: list[list[str]] = []

    def script(messages: list[Message]) -> Any:
        heard.append([message.text for message in messages])
        return Calls(("pay", {})) if len(heard) == 1 or len(heard) == 2 else f"answer {len(heard)}"

    guest = AgentExecutor(ScriptedAgent("guest", script, tools={"pay": int}), approve=["pay"])
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=host, checkpoint_storage=storage).add_edge(host, guest).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert [one.text for one in result.get_outputs()] == ["answer 3", "answer 4"]
    assert heard[-1] == ["first", "second", "answer 3"]


async def test_a_turn_costs_what_is_said_in_it_however_long_the_conversation_is() -> None:
    sizes: list[int] = []

    class Weighed(WrappedStore):
        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            if name == "append":
                sizes.append(len(args[0].body))
            return await call()

    def forth(response: AgentExecutorResponse) -> bool:
        return response.before < 150

    left = AgentExecutor(ScriptedAgent("left", lambda messages: "x" * 300))
    right = AgentExecutor(ScriptedAgent("right", lambda messages: "y" * 300))
    storage = BuiltInStorage(Weighed(MemoryStore()))
    builder = WorkflowBuilder(max_iterations=500, start_executor=left, checkpoint_storage=storage)
    await builder.add_edge(left, right, forth).add_edge(right, left, forth).build().run("go")
    between = sorted(sizes[10:])[: len(sizes) // 2]  # without frames, which say everything
    assert len(sizes) > 140
    assert between[-1] < 1.2 * between[0]


async def test_no_call_is_repeated_wherever_a_run_dies() -> None:
    """A call whose result is noted is never made again; one that was under way is, with the same key."""
    by_key: dict[str, int] = {}

    def pay(amount: int) -> str:
        key = current_tool_call().idempotency_key
        by_key[key] = by_key.get(key, 0) + 1
        return "paid"

    calls = Calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    agent = ScriptedAgent("clerk", [calls, Calls(("pay", {"amount": 3})), "done"], tools={"pay": pay})
    boss = ScriptedAgent("boss", ["fine"])
    workflow = WorkflowBuilder(start_executor=agent).add_edge(agent, boss).build()
    report = await crash_everywhere(workflow, "go")
    assert report.crashes > 12
    # every run makes each call; one that dies while a call is under way makes it again, and two may be side by side
    assert max(by_key.values()) <= report.runs + 4


async def test_approvals_and_budgets_come_to_the_same_wherever_a_run_dies() -> None:
    def answer(event: Any) -> Any:
        return event.data.raise_to(9) if isinstance(event.data, BudgetRequest) else event.data.approve()

    agent = payer([])
    workflow = WorkflowBuilder(start_executor=AgentExecutor(agent, approve=["pay"], budget=Budget(calls=1))).build()
    await crash_everywhere(workflow, "go", answer=answer)


async def test_a_call_that_failed_and_was_made_in_another_way_has_no_place() -> None:
    """An agent that falls back to a second model recalls the right reply, whichever model had failed."""
    made: list[str] = []
    dead = True

    class Fallback:
        name = "clerk"

        async def take_turn(self, turn: Turn) -> Answer:
            for _ in range(2):
                try:
                    reply = await turn.model(lambda: self._call("first"))
                except ConnectionError:
                    reply = await turn.model(lambda: self._call("second"))
            if dead:
                raise OSError("the process dies")
            return Answer([Message("assistant", reply.text)])

        async def _call(self, model: str) -> ModelReply:
            made.append(model)
            if model == "first" and dead:
                raise ConnectionError("overloaded")
            return ModelReply(None, f"{model} says {len(made)}")

    workflow = alone(Fallback())
    with pytest.raises(HandlerFailed):
        await workflow.run("go", run_id="r")
    dead = False
    assert (await workflow.run(run_id="r")).get_outputs()[0].text == "second says 4"
    assert made == ["first", "second", "first", "second"]
