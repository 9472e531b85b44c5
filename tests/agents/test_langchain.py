"""Agents of LangChain, and other graphs: what is true of them beyond the contract that all libraries share."""

import asyncio
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, PrivateAttr
from typing_extensions import TypedDict

from stepwell import (
    AgentExecutor,
    DefinitionError,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RunError,
    Workflow,
    WorkflowBuilder,
)
from stepwell.agents import AgentInputRequest, Budget, ScriptedAgent, current_tool_call
from stepwell.agents.adapters.langchain import LangChainAgent, StepwellMiddleware

Reply = str | list[tuple[str, dict[str, Any]]]


class Model(BaseChatModel):
    """A chat model that follows a script: texts, and lists of tool calls."""

    script: list[Any]
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self._seen.append(list(messages))
        reply = self.script[len(self._seen) - 1]
        calls = [] if isinstance(reply, str) else reply
        said = [{"name": name, "args": args, "id": f"{len(self._seen)}-{n}"} for n, (name, args) in enumerate(calls)]
        message = AIMessage(reply if isinstance(reply, str) else "", tool_calls=said)
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def calls(self) -> int:
        return len(self._seen)

    @property
    def heard(self) -> list[tuple[str, str]]:
        """What the last request said."""
        return [(message.type, str(message.text)) for message in self._seen[-1]]


def model(*script: Reply) -> Model:
    return Model(script=list(script))


def steady(chat: Model, tools: Any = (), *others: AgentMiddleware[Any, Any, Any], **options: Any) -> Any:
    """An agent with the middleware."""
    return create_agent(chat, list(tools), middleware=[*others, StepwellMiddleware()], name="clerk", **options)


def alone(agent: Any, **options: Any) -> Workflow:
    start = AgentExecutor(agent, id="clerk", **options)
    return WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()


async def answered(workflow: Workflow, decide: Any) -> Any:
    """What the run comes to if each question is answered like this."""
    result = await workflow.run("go", run_id="r")
    while asked := result.get_request_info_events():
        result = await workflow.run(run_id="r", responses={one.request_id: decide(one.data) for one in asked})
    return result.get_outputs()[-1]


def tool_of(paid: list[Any]) -> Any:
    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append((amount, current_tool_call().tool_call_id))
        return f"paid {amount}"

    return pay


async def test_an_agent_may_stand_where_an_executor_is_expected() -> None:
    workflow = WorkflowBuilder(start_executor=steady(model("hello"))).build()
    assert (await workflow.run("go")).get_outputs()[0].messages[0].author_name == "clerk"
    with pytest.raises(DefinitionError, match="has no name"):
        AgentExecutor(create_agent(model("x"), []))
    assert AgentExecutor(LangChainAgent(create_agent(model("x"), []), name="other")).id == "other"


async def test_outside_a_turn_the_middleware_does_nothing() -> None:
    paid: list[Any] = []

    @tool
    def look() -> str:
        """Look."""
        paid.append(1)
        return "seen"

    said = {"messages": [("user", "go")]}
    for ask in (lambda agent: agent.ainvoke(said), lambda agent: asyncio.to_thread(agent.invoke, said)):
        result = await ask(steady(model([("look", {})], "done"), [look]))
        assert result["messages"][-1].text == "done"
        assert "stepwell" not in result
    assert len(paid) == 2


async def test_one_agent_takes_turns_in_many_runs_at_once() -> None:
    class Echo(Model):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(f"you said {messages[-1].text}"))])

    workflow = alone(steady(Echo(script=[])))
    results = await asyncio.gather(*(workflow.run(f"{n}", run_id=f"r{n}") for n in range(5)))
    assert [result.get_outputs()[0].text for result in results] == [f"you said {n}" for n in range(5)]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("decide", "paid", "told"),
    [
        (lambda asked: asked.approve(), [40], "paid 40"),
        (lambda asked: asked.approve({"amount": 5}), [5], "paid 5"),
        (lambda asked: asked.deny("too dear"), [], "too dear"),
        (lambda asked: asked.answer({"by": "hand"}), [], '{"by": "hand"}'),
    ],
    ids=["approve", "edit", "deny", "answer"],
)
async def test_what_the_library_asks_about_is_decided(mode: Any, decide: Any, paid: list[int], told: str) -> None:
    really: list[Any] = []
    chat = model([("look", {}), ("pay", {"amount": 40})], "done")
    review = HumanInTheLoopMiddleware({"pay": True}, interrupt_mode=mode)
    looked: list[int] = []

    @tool
    def look() -> str:
        """Look."""
        looked.append(1)
        return "seen"

    assert (await answered(alone(steady(chat, [look, tool_of(really)], review)), decide)).text == "done"
    assert ([amount for amount, _ in really], len(looked), chat.calls) == (paid, 1, 2)
    assert any(told in text for kind, text in chat.heard if kind == "tool")
    assert {id for _, id in really} <= {"1-1"}


async def test_two_calls_are_asked_about_together_and_decided_each_for_itself() -> None:
    paid: list[Any] = []
    chat = model([("pay", {"amount": 1}), ("pay", {"amount": 1}), ("pay", {"amount": 2})], "done")
    workflow = alone(steady(chat, [tool_of(paid)], HumanInTheLoopMiddleware({"pay": True})))
    asked = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert [one.data.tool_call_id for one in asked] == ["1-0", "1-1", "1-2"]
    first, second, third = asked
    await workflow.run(
        run_id="r",
        responses={
            first.request_id: first.data.deny(),
            second.request_id: second.data.approve(),
            third.request_id: third.data.approve({"amount": 3}),
        },
    )
    assert sorted(paid) == [(1, "1-1"), (3, "1-2")]


async def test_what_the_agent_does_not_allow_is_an_error_in_words() -> None:
    review = HumanInTheLoopMiddleware({"pay": {"allowed_decisions": ["approve", "reject"]}})
    workflow = alone(steady(model([("pay", {"amount": 1})]), [tool_of([])], review))
    with pytest.raises(RunError, match="does not allow the decision 'edit' for calls of 'pay', only approve, reject"):
        await answered(workflow, lambda asked: asked.approve({"amount": 2}))


async def test_tools_are_asked_about_by_the_executor_too() -> None:
    paid: list[Any] = []
    chat = model([("pay", {"amount": 40})], "done")
    workflow = alone(steady(chat, [tool_of(paid)]), approve=["pay"])
    await answered(workflow, lambda asked: asked.approve({"amount": asked.arguments["amount"] // 2}))
    assert paid == [(20, "1-0")]
    assert chat.heard[-1] == ("tool", "paid 20")


@pytest.mark.parametrize("ours", [[StepwellMiddleware()], []], ids=["steps", "supersteps"])
async def test_a_tool_can_ask_a_person(ours: list[Any]) -> None:
    done: list[str] = []

    @tool
    async def book() -> str:
        """Book a seat."""
        seat = interrupt({"which": "seat"})
        done.append(seat)
        return f"booked {seat}"

    chat = model([("book", {})], "done")
    agent = create_agent(chat, [book], middleware=ours)

    def answer(asked: AgentInputRequest) -> Any:
        assert asked.data == {"which": "seat"}
        return asked.answer("12A")

    assert (await answered(alone(agent), answer)).text == "done"
    assert (done, chat.heard[-1]) == (["12A"], ("tool", "booked 12A"))


async def test_a_tool_that_fails_fails_the_run_and_the_model_is_not_called_again() -> None:
    called: list[int] = []

    @tool
    async def search() -> str:
        """Search."""
        called.append(1)
        if len(called) == 1:
            raise ValueError("too dark")
        return "found"

    chat = model([("search", {})], "done")
    workflow = alone(steady(chat, [search]))
    with pytest.raises(HandlerFailed, match="too dark"):
        await workflow.run("go", run_id="r")
    assert (await workflow.run(run_id="r")).get_outputs()[0].text == "done"
    assert (len(called), chat.calls) == (2, 2)


@tool
def broken() -> str:
    """Never works."""
    raise ValueError("out of order")


async def test_what_a_middleware_makes_of_a_failure_is_kept_if_it_is_inside() -> None:
    chat = model([("broken", {})], "done")
    lenient = ToolRetryMiddleware(max_retries=0, on_failure="continue")
    agent = create_agent(chat, [broken], middleware=[StepwellMiddleware(), lenient])
    assert (await answered(alone(agent, budget=Budget(calls=1)), lambda asked: asked.raise_to(9))).text == "done"
    assert "out of order" in chat.heard[-1][1]


async def test_what_a_middleware_outside_makes_of_a_failure_is_refused() -> None:
    lenient = ToolRetryMiddleware(max_retries=0, on_failure="continue")
    with pytest.raises(RunError, match="turned the failure into a result; list that middleware after"):
        await alone(steady(model([("broken", {})], "never"), [broken], lenient)).run("go")


async def test_a_middleware_outside_may_call_a_tool_again() -> None:
    called: list[int] = []

    @tool
    def shaky() -> str:
        """Works the second time."""
        called.append(1)
        if len(called) == 1:
            raise ValueError("not yet")
        return "fine"

    chat = model([("shaky", {})], "done")
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0)
    assert (await answered(alone(steady(chat, [shaky], retry)), None)).text == "done"
    assert (len(called), chat.heard[-1]) == (2, ("tool", "fine"))


async def test_a_graph_that_was_compiled_to_stop_somewhere_goes_on() -> None:
    chat = model([("look", {})], "done")
    agent = steady(chat, [look], interrupt_before=["tools"])
    assert (await answered(alone(agent), None)).text == "done"


async def test_an_agent_that_a_tool_calls_is_a_part_of_that_step() -> None:
    inner_model = model("one", "two")
    inner = steady(inner_model)

    @tool
    async def consult() -> str:
        """Ask a colleague."""
        result = await inner.ainvoke({"messages": [("user", "well?")]})
        return str(result["messages"][-1].text)

    chat = model([("consult", {})], [("consult", {})], "done")
    workflow = alone(steady(chat, [consult]), budget=Budget(calls=2))
    assert (await answered(workflow, lambda asked: asked.raise_to(9))).text == "done"
    assert chat.heard[-1] == ("tool", "two")
    assert (chat.calls, inner_model.calls) == (3, 2)


class Noting(AgentMiddleware[Any, Any, Any]):
    class State(AgentState[Any]):
        notes: list[str]

    state_schema = State


@tool
def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Note something."""
    return Command(update={"notes": [text], "messages": [ToolMessage("noted", tool_call_id=tool_call_id)]})


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("ours", [[StepwellMiddleware()], []], ids=["steps", "supersteps"])
async def test_what_tools_write_into_the_state_is_recalled_and_kept_between_turns(ours: list[Any]) -> None:
    seen: list[Any] = []

    class Looking(AgentMiddleware[Any, Any, Any]):
        async def abefore_model(self, state: Any, runtime: Any) -> None:
            seen.append(state.get("notes"))

    chat = model([("note", {"text": "a"})], "one", "two")
    agent = create_agent(chat, [note], middleware=[Noting(), Looking(), *ours])
    workflow = alone(agent, budget=Budget(calls=1))
    assert (await answered(workflow, lambda asked: asked.raise_to(9))).text == "one"
    handle = workflow.attach("r", drive=True)
    await handle.send("more")
    assert (await handle.result()).get_outputs()[-1].text == "two"
    assert seen[-1] == ["a"]
    assert chat.heard == [("human", "go"), ("ai", ""), ("tool", "noted"), ("ai", "one"), ("human", "more")]


async def test_an_agent_may_forget_what_was_said() -> None:
    class Forgetful(AgentMiddleware[Any, Any, Any]):
        async def aafter_agent(self, state: Any, runtime: Any) -> Any:
            return {"messages": [RemoveMessage(id=message.id) for message in state["messages"][:-1]]}

    chat = model("one", "two", "three")
    workflow = alone(steady(chat, [], Forgetful()))
    await workflow.run("first", run_id="r")
    handle = workflow.attach("r", drive=True)
    for said in ("second", "third"):
        await handle.send(said)
        await handle.result()
    assert chat.heard == [("ai", "two"), ("human", "third")]


class Report(BaseModel):
    city: str


async def test_a_parsed_answer_is_recalled_with_the_reply_it_came_from() -> None:
    chat = model([("look", {})], [("Report", {"city": "Rome"})])
    agent = steady(chat, [look], response_format=ToolStrategy(Report))
    answer = await answered(alone(agent, budget=Budget(calls=1)), lambda asked: asked.raise_to(9))
    assert (answer.value, answer.text) == (Report(city="Rome"), '{"city":"Rome"}')
    assert chat.calls == 2


async def test_the_agents_own_checkpointer_is_left_alone() -> None:
    saver = InMemorySaver()
    agent = steady(model("one"), checkpointer=saver)
    await alone(agent).run("go", run_id="r")
    assert list(saver.list(None)) == []
    assert agent.checkpointer is saver


async def test_what_other_agents_said_is_said_by_a_user_with_their_name() -> None:
    chat = model("fine")
    writer, critic = ScriptedAgent("writer", ["a text"]), steady(chat)
    await WorkflowBuilder(start_executor=writer).add_edge(writer, critic).build().run("write")
    assert chat.heard == [("human", "write"), ("human", "writer: a text")]


async def test_any_graph_with_messages_goes_on_with_the_superstep_that_failed() -> None:
    done: list[str] = []

    def node(name: str) -> Any:
        async def work(state: MessagesState) -> Any:
            done.append(name)
            if done.count("second") == 1 and name == "second":
                raise OSError("gone")
            return {"messages": [AIMessage(name)]}

        return work

    graph = StateGraph(MessagesState)
    for name in ("first", "second"):
        graph.add_node(name, node(name))
    graph.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
    workflow = alone(graph.compile())
    with pytest.raises(HandlerFailed, match="gone"):
        await workflow.run("go", run_id="r")
    told = [event async for event in workflow.run(run_id="r", stream=True)]
    (warning,) = [event.data for event in told if event.type == "warning"]
    assert warning.startswith("the calls of the agent 'clerk' are not stored one by one")
    assert [event.data.text for event in told if event.type == "output"] == ["second"]
    assert done == ["first", "second", "second"]


@pytest.mark.parametrize(
    ("options", "word"), [({"approve": ["pay"]}, "approve"), ({"handoffs": {"boss": "x"}}, "handoffs")]
)
async def test_what_needs_the_middleware_is_refused_without_it(options: Any, word: str) -> None:
    with pytest.raises(RunError, match=f"uses {word}, which needs access to its calls: list StepwellMiddleware"):
        await alone(create_agent(model("x"), []), **options).run("go")


async def test_a_graph_without_messages_is_no_agent() -> None:
    class Numbers(TypedDict):
        number: int

    graph = StateGraph(Numbers)
    graph.add_node("one", lambda state: {"number": 1})
    graph.add_edge(START, "one")
    with pytest.raises(DefinitionError, match="its state has no `messages`"):
        AgentExecutor(graph.compile())
