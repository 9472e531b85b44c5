"""Agents of Agent Framework: what is true of them beyond the contract that all libraries share."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
    tool,
)
from agent_framework.exceptions import UserInputRequiredException

from stepwell import (
    AgentExecutor,
    DefinitionError,
    InMemoryCheckpointStorage,
    RunError,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
)
from stepwell.agents import Budget, ScriptedAgent, current_tool_call
from stepwell.agents.adapters.agent_framework import AgentFrameworkAgent
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing.faults.wrapped_store import WrappedStore

Reply = str | list[Content]


class Bare(BaseChatClient[Any]):
    """A client that follows a script; `seen` is what each request said."""

    def __init__(self, *, script: Sequence[Reply], **options: Any) -> None:
        super().__init__(**options)
        self.script, self.seen = script, list[list[Message]]()
        self.instructions, self.known_as = list[Any](), list[Any]()

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        self.instructions.append(options.get("instructions"))
        reply = self.script[len(self.seen) - 1]
        contents = [Content.from_text(reply)] if isinstance(reply, str) else reply

        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            yield self._update(contents)

        async def whole() -> ChatResponse[Any]:
            return ChatResponse(messages=[Message("assistant", contents)])

        return self._build_response_stream(pieces()) if stream else whole()

    def _update(self, contents: list[Content]) -> ChatResponseUpdate:
        return ChatResponseUpdate(contents=contents, role="assistant")

    @property
    def heard(self) -> list[tuple[str, str]]:
        """What the last request said."""
        return [(message.role, _text(message)) for message in self.seen[-1]]


class Client(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], Bare):
    def __init__(self, *script: Reply, **options: Any) -> None:
        super().__init__(script=script, **options)


def _text(message: Message) -> str:
    return "".join(str(one.text if one.type == "text" else one.result or one.name) for one in message.contents)


def call(name: str, id: str = "1", **arguments: Any) -> Content:
    return Content.from_function_call(id, name, arguments=arguments)


def alone(agent: Any, **options: Any) -> Workflow:
    storage = options.pop("storage", None) or InMemoryCheckpointStorage()
    start = AgentExecutor(agent, id="clerk", **options)
    return WorkflowBuilder(name="alone", start_executor=start, checkpoint_storage=storage).build()


async def answer_of(workflow: Workflow, said: str = "go") -> str:
    found: str = (await workflow.run(said, run_id="r")).get_outputs()[-1].text
    return found


async def test_an_agent_may_stand_where_an_executor_is_expected() -> None:
    clerk = Agent(Client("hello"), name="clerk", description="Answers.")
    workflow = WorkflowBuilder(start_executor=clerk).build()
    assert (await workflow.run("go")).get_outputs()[0].messages[0].author_name == "clerk"
    assert AgentExecutor(clerk).description == "Answers."
    assert AgentExecutor(AgentFrameworkAgent(clerk, name="other")).id == "other"


async def test_the_agent_itself_is_left_as_it_is() -> None:
    pay = tool(lambda: "paid", name="pay", approval_mode="always_require")
    agent = Agent(Client([call("pay")], "done"), name="clerk", tools=[pay])
    workflow = alone(agent)
    (asked,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={asked.request_id: asked.data.approve()})
    assert agent.context_providers == []
    assert agent.default_options["tools"] == [pay]
    assert pay.approval_mode == "always_require"


async def test_every_call_is_asked_about_however_often_the_model_was_called() -> None:
    paid: list[int] = []
    pay = tool(lambda: paid.append(1), name="pay", approval_mode="always_require")
    workflow = alone(Agent(Client([call("pay", "1")], [call("pay", "1")], "done"), name="clerk", tools=[pay]))
    (asked,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={asked.request_id: asked.data.approve()})
    (asked,) = result.get_request_info_events()
    assert len(paid) == 1
    result = await workflow.run(run_id="r", responses={asked.request_id: asked.data.deny()})
    assert (len(paid), result.get_outputs()[0].text) == (1, "done")


async def test_the_model_is_told_that_a_tool_failed_and_the_tool_is_not_called_again() -> None:
    called = []

    def look() -> str:
        called.append(1)
        raise ValueError("no such place")

    client = Client([call("look")], "I see", function_invocation_configuration={"include_detailed_errors": True})
    workflow = alone(Agent(client, name="clerk", tools=[look]), budget=Budget(calls=1))
    (asked,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={asked.request_id: asked.data.raise_to(9)})
    assert result.get_outputs()[0].text == "I see"
    assert client.heard[-1] == ("tool", "Error: Function failed. Exception: no such place")
    assert len(called) == 1


async def test_a_store_that_fails_fails_the_run_and_is_no_news_for_the_model() -> None:
    class Failing(WrappedStore):
        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            if name == "write_log" and client.seen:
                raise StoreUnavailable("the disk is gone")
            return await call()

    client = Client([call("look")], "never")
    workflow = alone(Agent(client, name="clerk", tools=[tool(lambda: "x", name="look")]), storage=_stored(Failing))
    with pytest.raises(StoreUnavailable, match="the disk is gone"):
        await workflow.run("go", run_id="r")
    assert len(client.seen) == 1


def _stored(kind: Any) -> BuiltInStorage:
    return BuiltInStorage(kind(MemoryStore()))


async def test_what_tools_give_besides_text_is_recalled_as_it_was() -> None:
    def look() -> Any:
        return [Content.from_text("a picture"), Content.from_uri("data:image/png;base64,AAAA", media_type="image/png")]

    client = Client([call("look")], "nice")
    workflow = alone(Agent(client, name="clerk", tools=[look]), budget=Budget(calls=1))
    (asked,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={asked.request_id: asked.data.raise_to(9)})
    (result,) = client.seen[-1][-1].contents
    assert result.items is not None
    assert [item.type for item in result.items] == ["text", "data"]


async def test_tools_know_which_call_they_are_and_middleware_of_the_agent_is_called() -> None:
    keys, passed = [], []

    def look() -> str:
        keys.append(current_tool_call().tool_call_id)
        return "x"

    class Watching(FunctionMiddleware):
        async def process(self, context: FunctionInvocationContext, call_next: Any) -> None:
            await call_next()
            passed.append(context.result)

    agent = Agent(Client([call("look", "7")], "done"), name="clerk", tools=[look], middleware=[Watching()])
    assert await answer_of(alone(agent)) == "done"
    assert keys == ["7"]
    assert len(passed) == 1


async def test_what_other_agents_said_is_said_by_a_user_with_their_name() -> None:
    client = Client("fine")
    writer, critic = ScriptedAgent("writer", ["a text"]), Agent(client, name="critic")
    await WorkflowBuilder(start_executor=writer).add_edge(writer, critic).build().run("write")
    assert client.heard == [("user", "write"), ("user", "writer: a text")]


class Counting(ContextProvider):
    """Remembers in the session how often it was asked."""

    async def before_run(self, *, agent: Any, session: AgentSession, context: Any, state: dict[str, Any]) -> None:
        state["times"] = state.get("times", 0) + 1
        context.extend_instructions(self.source_id, f"This is time {state['times']}.")


@pytest.mark.parametrize("own", [[], [InMemoryHistoryProvider()]], ids=["ours", "its own"])
async def test_what_context_providers_keep_is_there_in_the_next_turn(own: list[Any]) -> None:
    client = Client("one", "two")
    agent = Agent(client, name="clerk", context_providers=[Counting("counting"), *own])
    workflow = alone(agent)
    await workflow.run("first", run_id="r")
    handle = workflow.attach("r", drive=True)
    await handle.send("second")
    assert [one.text for one in (await handle.result()).get_outputs()] == ["one", "two"]
    assert client.heard[-3:] == [("user", "first"), ("assistant", "one"), ("user", "second")]
    assert client.instructions == ["This is time 1.", "This is time 2."]


class Storing(Client):
    """A service that keeps the conversation: each reply says where it goes on."""

    STORES_BY_DEFAULT = True

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any) -> Any:
        self.known_as.append(options.get("conversation_id"))
        return super()._inner_get_response(messages=messages, stream=stream, options=options, **kwargs)

    def _update(self, contents: list[Content]) -> ChatResponseUpdate:
        return ChatResponseUpdate(contents=contents, role="assistant", conversation_id=f"c{len(self.seen)}")


async def test_what_a_service_keeps_is_not_sent_again_but_after_a_hand_off() -> None:
    client = Storing([call("look")], "one", "two", [call("boss", "2")], "three")
    agent = Agent(client, name="clerk", tools=[tool(lambda: "seen", name="look")])
    workflow = alone(agent, handoffs={"boss": "Decides."}, budget=Budget(calls=1))
    (asked,) = (await workflow.run("first", run_id="r")).get_request_info_events()
    await workflow.run(run_id="r", responses={asked.request_id: asked.data.raise_to(9)})
    handle = workflow.attach("r", drive=True)
    for said in ("second", "third", "fourth"):
        await handle.send(said)
        await handle.result()
    assert client.known_as == [None, "c1", "c2", "c3", None]
    assert [[message.role for message in messages] for messages in client.seen[:4]] == [
        ["user"],
        ["tool"],
        ["user"],
        ["user"],
    ]
    assert [text for role, text in client.heard if role == "user"] == ["first", "second", "third", "fourth"]


async def test_calls_beside_a_hand_off_are_not_made_and_the_next_request_is_whole() -> None:
    client = Client("hm", [call("boss", "1"), call("look", "2")], "back")
    agent = Agent(client, name="clerk", tools=[tool(lambda: pytest.fail("it is called"), name="look")])
    workflow = alone(agent, handoffs={"boss": "Decides."})
    await workflow.run("first", run_id="r")
    handle = workflow.attach("r", drive=True)
    await handle.send("second")
    assert (await handle.result()).get_outputs()[-1].handoff == "boss"
    await handle.send("third")
    assert (await handle.result()).get_outputs()[-1].text == "back"
    assert [role for role, _ in client.heard] == ["user", "assistant", "user", "assistant", "tool", "user"]
    assert [one.call_id for one in client.seen[-1][-2].contents] == ["1", "2"]


def test_a_client_that_calls_no_middleware_is_refused() -> None:
    with pytest.raises(
        DefinitionError,
        match="Bare, does not call middleware, so its calls cannot be stored: derive it from ChatMiddlewareLayer",
    ):
        AgentExecutor(Agent(Bare(script=["x"]), name="clerk"))


async def test_somebody_is_asked_what_came_of_a_tool_without_a_function() -> None:
    looked: list[int] = []
    declared = FunctionTool(name="elsewhere", description="Done by somebody else.")
    client = Client([call("elsewhere", "1", what="x"), call("look", "2")], "done")
    workflow = alone(Agent(client, name="clerk", tools=[declared, tool(lambda: looked.append(1), name="look")]))
    (asked,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert asked.data.data == {"tool": "elsewhere", "arguments": {"what": "x"}, "tool_call_id": "1"}
    assert not looked
    result = await workflow.run(run_id="r", responses={asked.request_id: asked.data.answer({"found": 3})})
    assert result.get_outputs()[0].text == "done"
    assert client.heard[-1] == ("tool", '{"found": 3}None')
    assert declared.declaration_only


async def test_a_question_of_the_library_that_cannot_be_asked_fails_the_run() -> None:
    def look() -> str:
        raise UserInputRequiredException([Content.from_function_approval_request("1", call("other"))])

    agent = Agent(Client([call("look")]), name="clerk", tools=[look])
    with pytest.raises(RunError, match=r"\(function_approval_request\) that is not supported"):
        await alone(agent).run("go")
