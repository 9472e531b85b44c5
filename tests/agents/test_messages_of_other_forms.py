"""Messages and responses in the forms that programs of Agent Framework write."""

from types import SimpleNamespace
from typing import Any, Never

import pytest

from stepwell import Executor, Message, WorkflowBuilder, WorkflowContext, WorkflowEvent, handler
from stepwell.agents import AgentResponse, AgentResponseUpdate, ScriptedAgent
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.workflows.workflow_agent import AgentSession


@pytest.mark.parametrize(
    "message",
    [
        Message("user", ["hi", "there"]),
        Message("user", contents=["hi", "there"]),
        Message(role="user", contents=("hi there",)),
        Message("user", [SimpleNamespace(type="text", text="hi"), "there"]),
    ],
)
def test_contents_that_are_texts_are_the_text_of_a_message(message: Message) -> None:
    assert message == Message("user", "hi there")
    assert message.contents == ["hi there"]
    assert Message("user").contents == []


@pytest.mark.parametrize("contents", [[5], 5, b"hi", {"a": 1}, ["hi", None], [SimpleNamespace(text=None)]])
def test_other_contents_are_refused_where_the_message_is_made(contents: Any) -> None:
    with pytest.raises(TypeError, match="made of text"):
        Message("user", contents)


def test_a_role_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(TypeError, match="role"):
        Message(["hi"])  # type: ignore[arg-type]


def test_a_message_comes_back_from_the_store_as_it_was() -> None:
    message = Message("assistant", ["hi"], author_name="a", data={"x": 1}, id="7")
    read = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(message))
    assert (read, read.id) == (message, "7")


def test_a_response_says_what_its_value_is() -> None:
    response: AgentResponse[int] = AgentResponse(value=5)
    assert AgentResponse[int](value=5) == response
    assert DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(response)) == response


def test_a_session_needs_no_id_and_keeps_what_a_program_puts_into_it() -> None:
    one, other = AgentSession(), AgentSession()
    assert one.session_id != other.session_id
    one.state["user"] = "Ann"
    assert AgentSession.from_dict(one.to_dict()) == one


async def test_handlers_may_be_annotated_with_what_a_response_or_an_event_holds() -> None:
    class Reads(Executor):
        @handler
        async def read(self, response: AgentResponse[int], ctx: WorkflowContext[Never, AgentResponse[int]]) -> None:
            await ctx.yield_output(response)

    workflow = WorkflowBuilder(start_executor=Reads("reads"), checkpoint_storage="memory").build()
    assert (await workflow.run(AgentResponse(value=5))).get_outputs() == [AgentResponse(value=5)]
    event: WorkflowEvent[str] = WorkflowEvent[str]("data", "x")
    assert (event.data, AgentResponseUpdate[str]("x").text) == ("x", "x")


async def test_streams_have_a_final_response() -> None:
    workflow = WorkflowBuilder(start_executor=ScriptedAgent("poet", ["a poem"])).build()
    assert (await workflow.run("go", stream=True).get_final_response()).get_outputs()[0].text == "a poem"
    agent = WorkflowBuilder(start_executor=ScriptedAgent("poet", ["a poem"])).build().as_agent()
    assert (await agent.run("go", stream=True).get_final_response()).text == "a poem"


async def test_intermediate_outputs_are_part_of_the_answer_of_a_workflow() -> None:
    one, two = ScriptedAgent("one", ["first"]), ScriptedAgent("two", ["second"])
    builder = WorkflowBuilder(start_executor=one, output_from=[two], intermediate_output_from=[one])
    agent = builder.add_edge(one, two).build().as_agent()
    assert [message.text for message in (await agent.run("go")).messages] == ["first", "second"]


async def test_a_start_executor_that_takes_messages_gets_the_history_of_the_session() -> None:
    class Counts(Executor):
        @handler
        async def count(self, messages: list[Message], ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(" ".join(message.text for message in messages))

    agent = WorkflowBuilder(start_executor=Counts("counts")).build().as_agent()
    session = agent.create_session()
    assert (await agent.run("a", session=session)).text == "a"
    assert (await agent.run("b", session=session)).text == "a a b"
    again = AgentSession.from_dict(session.to_dict())
    assert [message.role for message in again.history] == ["user", "assistant", "user", "assistant"]
    assert (await agent.run("c", session=again)).text == "a a b a a b c"


async def test_an_agent_that_keeps_its_conversation_gets_only_what_is_new() -> None:
    seen: list[list[str]] = []

    def answer(messages: list[Message]) -> str:
        seen.append([message.text for message in messages])
        return "yes"

    agent = WorkflowBuilder(start_executor=ScriptedAgent("poet", answer)).build().as_agent()
    session = agent.create_session()
    for word in ("a", "b"):
        await agent.run(word, session=session)
    assert seen[-1] == ["a", "yes", "b"]
    assert session.state == {}
