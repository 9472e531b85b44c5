"""What a turn takes care of, whoever writes the agent."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    RetryPolicy,
    RunError,
    StepChanged,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)
from stepwell.agents import (
    AgentExecutorRequest,
    AgentResponse,
    Answer,
    Budget,
    BudgetRequest,
    Calls,
    Fails,
    ModelReply,
    ScriptedAgent,
    ToolCall,
    Turn,
    Usage,
    current_tool_call,
    usage_in,
)
from stepwell.workflows import AgentSession


class Written:
    """An agent whose turn is a function."""

    name = "clerk"

    def __init__(self, turn: Callable[[Turn], Awaitable[str]]) -> None:
        self._turn = turn

    async def take_turn(self, turn: Turn) -> Answer:
        return Answer([Message("assistant", await self._turn(turn))])


def alone(agent: Any, **options: Any) -> Workflow:
    start = AgentExecutor(agent, **options)
    return WorkflowBuilder(name="alone", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()


async def says_hello() -> ModelReply:
    await asyncio.sleep(0)
    return ModelReply(None, "hello")


async def test_a_tool_that_no_reply_asked_for_waits_for_approval_too() -> None:
    paid: list[str] = []

    async def pay(arguments: dict[str, Any]) -> str:
        paid.append("paid")
        return "paid"

    async def turn(turn: Turn) -> str:
        return str(await turn.tool(ToolCall("1", "pay"), pay))

    workflow = alone(Written(turn), approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert (event.data.tool, paid) == ("pay", [])
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert (result.get_outputs()[0].text, paid) == ("paid", ["paid"])


async def test_a_step_may_have_any_name() -> None:
    async def three() -> int:
        return 3

    async def turn(turn: Turn) -> str:
        return f"{await turn.step('model', three)} {(await turn.model(says_hello)).text}"

    assert (await alone(Written(turn)).run("go")).get_outputs()[0].text == "3 hello"


async def test_two_calls_at_the_same_time_are_made_by_two_branches_or_parts() -> None:
    async def side_by_side(turn: Turn) -> str:
        replies = await asyncio.gather(turn.model(says_hello), turn.model(says_hello))
        return " ".join(reply.text for reply in replies)

    async def in_parts(turn: Turn, *parts: str) -> str:
        replies = await asyncio.gather(*(turn.model(says_hello, within=part) for part in parts))
        return " ".join(reply.text for reply in replies)

    with pytest.raises(RunError, match="makes the call 'model left 1' twice at the same time"):
        await alone(Written(lambda turn: in_parts(turn, "left", "left"))).run("go")
    for written in (side_by_side, lambda turn: in_parts(turn, "left", "right")):
        assert (await alone(Written(written)).run("go")).get_outputs()[0].text == "hello hello"


async def test_branches_of_a_turn_get_their_own_replies_results_and_keys() -> None:
    """Two models want the same tool under the same id, side by side, in another order when the turn is taken again."""
    made: list[str] = []
    keys: dict[str, set[str]] = {}
    waits, trouble = [(3, 0), (0, 3)], [OSError("late")]

    async def part(turn: Turn, name: str, wait: int, both: asyncio.Barrier) -> str:
        for _ in range(wait):
            await asyncio.sleep(0)

        async def model() -> ModelReply:
            made.append(f"model of {name}")
            return ModelReply(name, name, [ToolCall("call 1", "look up", {"name": name})])

        async def look_up(arguments: dict[str, Any]) -> str:
            made.append(f"tool of {name}")
            keys.setdefault(name, set()).add(current_tool_call().idempotency_key)
            return f"{arguments['name']}'s result"

        async def note() -> str:
            made.append(f"step of {name}")
            return f"{name}'s step"

        reply = await turn.model(model)
        await both.wait()  # both models want their tool before either is called
        return f"{reply.text}: {await turn.tool(reply.calls[0], look_up)}, {await turn.step('note', note)}"

    async def turn(turn: Turn) -> str:
        (left, right), both = waits.pop(), asyncio.Barrier(2)
        texts = await asyncio.gather(part(turn, "left", left, both), part(turn, "right", right, both))
        if trouble:
            raise trouble.pop()
        return "; ".join(texts)

    workflow = alone(Written(turn))
    with pytest.raises(HandlerFailed, match="late"):
        await workflow.run("go", run_id="r")
    (response,) = (await workflow.run(run_id="r")).get_outputs()
    assert response.text == "left: left's result, left's step; right: right's result, right's step"
    assert sorted(made) == sorted(
        f"{what} of {name}" for what in ("model", "tool", "step") for name in ("left", "right")
    )
    assert len(keys["left"] | keys["right"]) == 2


async def test_a_tool_call_that_the_agent_makes_otherwise_than_before_is_refused() -> None:
    amounts, trouble = [31, 30], [OSError("late")]

    async def charge(arguments: dict[str, Any]) -> int:
        return int(arguments["amount"])

    async def turn(turn: Turn) -> str:
        result = await turn.tool(ToolCall("c", "charge", {"amount": amounts.pop()}), charge)
        if trouble:
            raise trouble.pop()
        return str(result)

    workflow = alone(Written(turn))
    with pytest.raises(HandlerFailed, match="late"):
        await workflow.run("go", run_id="r")
    with pytest.raises(StepChanged, match=r"charge\(dict#"):
        await workflow.run(run_id="r")


async def test_a_price_is_for_usage_whose_cost_is_not_known() -> None:
    async def dear() -> ModelReply:
        return ModelReply(None, "dear", usage=Usage(calls=1, cost=7.0))

    async def turn(turn: Turn) -> str:
        await turn.model(dear)
        await turn.model(says_hello)
        return "done"

    (response,) = (await alone(Written(turn), price=lambda usage: 0.5).run("go")).get_outputs()
    assert response.usage.cost == 7.5


async def test_what_a_function_gives_is_kept_whole() -> None:
    async def clerk(messages: list[Message]) -> AgentResponse:
        return AgentResponse((Message("assistant", "yours"),), Usage(5, 6, calls=2), value=3, handoff="boss")

    (response,) = (await alone(clerk).run("go")).get_outputs()
    assert (response.value, response.handoff, response.usage) == (3, "boss", Usage(5, 6, calls=2))


async def test_a_function_that_takes_text_gets_text_also_if_nothing_new_was_said() -> None:
    @executor(id="host")
    async def host(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest([]))
        await ctx.send_message(AgentExecutorRequest([Message("user", "hello")], should_respond=False))
        await ctx.send_message(AgentExecutorRequest([]))
        await ctx.send_message(AgentExecutorRequest([]))

    async def echo(text: str) -> str:
        return f"<{text}>"

    guest = AgentExecutor(echo)
    result = await WorkflowBuilder(start_executor=host).add_edge(host, guest).build().run("go")
    assert [one.text for one in result.get_outputs()] == ["<>", "<hello>", "<<hello>>"]


async def test_a_tool_under_way_ends_before_its_failed_sibling_is_tried_again() -> None:
    begun: list[str] = []

    async def slow() -> str:
        begun.append("slow")
        for _ in range(5):
            await asyncio.sleep(0)
        return "ok"

    def broken() -> str:
        begun.append("broken")
        if begun.count("broken") == 1:
            raise ConnectionError("gone")
        return "ok"

    both = Calls(("slow", {}), ("broken", {}))
    agent = ScriptedAgent("clerk", [both, "done"], tools={"slow": slow, "broken": broken})
    await alone(agent, retry=RetryPolicy(max_attempts=2, initial_interval=0)).run("go")
    assert begun == ["slow", "broken", "broken"]


def team(name: str, script: Any) -> Workflow:
    return WorkflowBuilder(name=name, start_executor=ScriptedAgent("inside", script)).build()


async def test_what_a_workflow_inside_says_is_streamed_once() -> None:
    guest, host = team("guest", lambda messages: "hello there").as_agent(), ScriptedAgent("host", ["first"])
    workflow = WorkflowBuilder(start_executor=host, checkpoint_storage=InMemoryCheckpointStorage())
    agent = workflow.add_edge(host, guest).build().as_agent("all")
    for nested, pieces in ((True, ["first ", "hello ", "there "]), (False, ["first ", "hello there"])):
        assert [update.text async for update in agent.run("go", stream=True, nested=nested)] == pieces


async def test_a_workflow_inside_begins_anew_if_it_is_told_to() -> None:
    @executor(id="host")
    async def host(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        for afresh in (False, False, True):
            await ctx.send_message(AgentExecutorRequest([Message("user", text)], afresh=afresh))

    guest = team("guest", lambda messages: f"heard {len(messages)}").as_agent()
    result = await WorkflowBuilder(start_executor=host).add_edge(host, guest).build().run("go")
    assert [one.text for one in result.get_outputs()] == ["heard 1", "heard 3", "heard 1"]


async def test_a_session_that_goes_on_elsewhere_asks_again_what_is_open() -> None:
    clerk = ScriptedAgent("clerk", [Calls(("pay", {})), "done"], tools={"pay": int})
    agent = alone(clerk, approve=["pay"]).as_agent()
    session = agent.create_session("anna")
    (asked,) = (await agent.run("go", session=session)).user_input_requests
    kept = AgentSession.from_dict(session.to_dict())
    (again,) = (await agent.run(session=kept)).user_input_requests
    assert again == asked
    response = await agent.run(session=kept, responses={again.request_id: again.data.approve()})
    assert (response.text, response.user_input_requests) == ("done", ())


@pytest.mark.long
async def test_a_session_whose_run_failed_gives_its_answer_once_the_run_was_resumed() -> None:
    workflow = alone(ScriptedAgent("clerk", [Fails(OSError("gone")), "done"]))
    agent, session = workflow.as_agent(), AgentSession("anna")
    with pytest.raises(HandlerFailed, match="gone"):
        await agent.run("go", session=session)
    await workflow.run(run_id=session.session_id)
    assert (await agent.run(session=session)).text == "done"


async def test_what_a_workflow_inside_used_up_counts_for_the_whole_run() -> None:
    inside = team("guest", lambda messages: "hello").as_agent()
    last = AgentExecutor(ScriptedAgent("last", ["bye"]), budget=Budget(calls=1, whole_run=True))
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=inside, checkpoint_storage=storage).add_edge(inside, last).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert event.data == BudgetRequest("last", "calls", 1, 1, whole_run=True)
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert usage_in(head.state)["guest"].calls == 1


async def test_an_approval_that_was_wrong_is_taken_back_by_moving_the_run_back() -> None:
    clerk = ScriptedAgent("clerk", [Calls(("pay", {"amount": 1})), "done"], tools={"pay": lambda amount: amount})
    workflow = alone(clerk, approve=["pay"])
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    handle = workflow.attach("r", drive=True)
    waiting = (await handle.checkpoints())[-1]
    with pytest.raises(HandlerFailed, match="unexpected keyword argument"):
        await workflow.run(run_id="r", responses={event.request_id: event.data.approve({"sum": 1})})
    await handle.restore(waiting)
    await handle.respond({event.request_id: event.data.approve()})
    assert (await handle.result()).get_outputs()[0].text == "done"
    assert clerk.calls.count("model") == 2


async def test_what_an_agent_does_to_a_reply_it_got_does_not_change_what_is_kept() -> None:
    class Careless:
        name = "careless"

        async def take_turn(self, turn: Turn) -> Answer:
            reply = await turn.model(self._call)
            seen.append(list(reply.data))
            reply.data.append("scribble")
            return Answer([Message("assistant", await turn.ask("more", "go on?", str))])

        async def _call(self) -> ModelReply:
            return ModelReply(["clean"])

    seen: list[list[str]] = []
    workflow = alone(Careless())
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={event.request_id: event.data.answer("yes")})
    assert seen == [["clean"], ["clean"]]


class Refused(Exception):
    """What the library of an agent knows a tool's failure by."""


@pytest.mark.parametrize("as_error", [None, Refused])
async def test_errors_that_the_agent_is_to_see_are_raised_as_it_knows_them_now_and_after_a_crash(
    as_error: type[Exception] | None,
) -> None:
    known = {} if as_error is None else {"as_error": as_error}
    called: list[str] = []
    seen: list[tuple[type[Exception], str]] = []
    dying = [True]

    async def fails(arguments: dict[str, Any]) -> str:
        called.append("tool")
        raise LookupError(f"no {arguments['city']}")

    async def work(turn: Turn) -> str:
        try:
            await turn.tool(ToolCall("1", "weather", {"city": "Rome"}), fails, errors=(LookupError,), **known)
        except Exception as error:  # noqa: BLE001 - of which class it is is what we ask
            seen.append((type(error), str(error)))
        if dying:
            raise OSError(dying.pop())
        return "done"

    workflow = alone(Written(work))
    with pytest.raises(HandlerFailed):
        await workflow.run("hello", run_id="r")
    await workflow.run(run_id="r")
    assert called == ["tool"]
    assert [error for error, _ in seen] == [as_error or RuntimeError] * 2
    assert all("no Rome" in words for _, words in seen)


async def test_an_error_that_the_agent_is_not_to_see_fails_the_turn() -> None:
    async def fails(arguments: dict[str, Any]) -> str:
        raise ValueError("broken")

    async def work(turn: Turn) -> str:
        await turn.tool(ToolCall("1", "weather", {}), fails, errors=(LookupError,), as_error=Refused)
        return "done"

    with pytest.raises(HandlerFailed, match="ValueError: broken"):
        await alone(Written(work)).run("hello")
