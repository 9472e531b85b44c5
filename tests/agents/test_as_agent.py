"""A workflow where an agent is expected."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    DefinitionError,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    RunError,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.agents import AgentResponse, Calls, Fails, ScriptedAgent, Usage, conversation_key
from stepwell.testing import crash_everywhere
from stepwell.workflows.workflow_agent import AgentSession


def team(storage: Any = None, *, script: Any = None, approve: Any = ()) -> Workflow:
    writer = ScriptedAgent(
        "writer", script or (lambda messages: f"text {len(messages)}"), tools={"pay": lambda: "paid"}
    )
    critic = ScriptedAgent("critic", lambda messages: "good")
    start = AgentExecutor(writer, approve=approve)
    return (
        WorkflowBuilder(name="team", start_executor=start, checkpoint_storage=storage).add_edge(start, critic).build()
    )


async def test_a_workflow_answers_as_an_agent_does() -> None:
    agent = team().as_agent(description="writes")
    response = await agent.run("hello")
    assert isinstance(response, AgentResponse)
    assert [message.text for message in response.messages] == ["text 1", "good"]
    assert response.usage == Usage(4, 3, calls=2)
    assert (agent.name, agent.description) == ("team", "writes")


async def test_a_session_is_one_conversation_and_goes_on_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    agent = team(SQLiteCheckpointStorage(path)).as_agent()
    session = agent.create_session("anna")
    assert (await agent.run("one", session=session)).messages[0].text == "text 1"
    kept = session.to_dict()
    again = team(SQLiteCheckpointStorage(path)).as_agent()
    response = await again.run("two", session=AgentSession.from_dict(kept))
    assert [message.text for message in response.messages] == ["text 3", "good"]


async def test_sessions_do_not_hear_each_other() -> None:
    agent = team(InMemoryCheckpointStorage()).as_agent()
    for name in ("anna", "bert"):
        assert (await agent.run("one", session=agent.create_session(name))).messages[0].text == "text 1"


async def test_what_it_says_is_streamed() -> None:
    agent = team(InMemoryCheckpointStorage()).as_agent()
    stream = agent.run("hello", stream=True)
    pieces = [update.text async for update in stream]
    assert "".join(pieces) == "text 1 good "
    assert (await stream).text == "text 1\ngood"


async def test_what_it_asks_is_carried_through_and_answered() -> None:
    agent = team(InMemoryCheckpointStorage(), script=[Calls(("pay", {})), "done"], approve=["pay"]).as_agent()
    session = agent.create_session()
    response = await agent.run("go", session=session)
    (request,) = response.user_input_requests
    assert request.data.tool == "pay"
    assert not response.messages
    with pytest.raises(RunError, match="waits for responses"):
        await agent.run("hurry", session=session)
    response = await agent.run(responses={request.request_id: request.data.approve()})
    assert response.messages[0].text == "done"
    assert not response.user_input_requests


async def test_a_conversation_that_failed_goes_on_with_what_was_said(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    agent = team(storage, script=[Calls(("pay", {})), Fails(OSError("gone")), "done"]).as_agent()
    session = agent.create_session("anna")
    with pytest.raises(HandlerFailed, match="gone"):
        await agent.run("go", session=session)
    head = await storage.get_latest(run_id="anna")
    assert head is not None
    response = await agent.run(checkpoint_id=head.checkpoint_id, session=session)
    assert response.messages[0].text == "done"


async def test_a_session_that_failed_goes_on_if_it_is_asked_for(tmp_path: Path) -> None:
    script = [Calls(("pay", {})), Fails(OSError("gone")), "done"]
    agent = team(SQLiteCheckpointStorage(tmp_path / "runs.db"), script=script).as_agent()
    session = agent.create_session("anna")
    with pytest.raises(HandlerFailed, match="gone"):
        await agent.run("go", session=session)
    response = await agent.run(session=session)
    assert [message.text for message in response.messages] == ["done", "good"]


async def test_what_was_said_but_not_told_is_told_when_the_session_goes_on(tmp_path: Path) -> None:
    workflow = team(SQLiteCheckpointStorage(tmp_path / "runs.db"))
    await workflow.run([Message("user", "hello")], run_id="anna")  # whoever ran it died before it could tell
    response = await workflow.as_agent().run(session=AgentSession("anna"))
    assert [message.text for message in response.messages] == ["text 1", "good"]


async def test_what_agents_of_a_sub_workflow_say_arrives_whole_unless_it_is_asked_for() -> None:
    agent = around(team(), InMemoryCheckpointStorage()).as_agent()
    stream = agent.run("go", stream=True)
    assert [update.text async for update in stream] == ["question ", "text 2\ngood", "thanks "]
    assert (await stream).text == "question\ntext 2\ngood\nthanks"
    nested = agent.run("go", stream=True, nested=True)
    assert [update.text async for update in nested] == ["question ", "text ", "2 ", "good ", "thanks "]
    assert (await nested).text == (await stream).text


async def test_a_completed_checkpoint_is_answered_with_its_outputs() -> None:
    storage = InMemoryCheckpointStorage()
    agent = team(storage).as_agent()
    session = agent.create_session("anna")
    await agent.run("hello", session=session)
    head = await storage.get_latest(run_id="anna")
    assert head is not None
    response = await agent.run(checkpoint_id=head.checkpoint_id, session=agent.create_session("another"))
    assert [message.text for message in response.messages] == ["text 1", "good"]
    # What a session has returned already is not said again.
    assert not (await agent.run(session=session)).messages


async def test_a_session_that_continues_in_a_fork_misses_nothing_there() -> None:
    storage = InMemoryCheckpointStorage()
    agent = team(storage).as_agent()
    session = agent.create_session("anna")
    await agent.run("hello", session=session)
    await agent.run("more", session=session)
    first = (await storage.list_checkpoints(run_id="anna"))[0]
    response = await agent.run(checkpoint_id=first.checkpoint_id, session=session)
    assert [message.text for message in response.messages] == ["text 1", "good"]
    assert session.session_id != "anna"
    response = await agent.run("more", session=session)
    assert [message.text for message in response.messages] == ["text 3", "good"]


class Asker(Executor):
    @handler
    async def begin(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info("which colour?", str)

    @response_handler
    async def told(self, asked: str, colour: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"it is {colour}")


def asking() -> Workflow:
    return WorkflowBuilder(name="asker", start_executor=Asker("asks")).build()


def around(inner: Workflow, storage: Any = None) -> Workflow:
    guest = inner.as_agent("guest")
    host, last = ScriptedAgent("host", ["question"]), ScriptedAgent("last", ["thanks"])
    return (
        WorkflowBuilder(name="around", start_executor=host, checkpoint_storage=storage)
        .add_edge(host, guest)
        .add_edge(guest, last)
        .build()
    )


async def test_it_takes_part_in_another_workflow_as_an_agent() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = around(team(), storage)
    result = await workflow.run("go", run_id="r")
    assert [one.text for one in result.get_outputs()] == ["question", "text 2\ngood", "thanks"]
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    heard = [message.text for message in checkpoint.state[conversation_key("last")]]
    assert heard == ["go", "question", "text 2", "good", "thanks"]


async def test_inside_another_workflow_its_questions_are_asked_by_the_one_around_it() -> None:
    workflow = around(asking(), InMemoryCheckpointStorage())
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert (event.data, event.executor_id) == ("which colour?", "guest")
    result = await workflow.run(run_id="r", responses={event.request_id: "red"})
    assert [one.text for one in result.get_outputs()] == ["question", "it is red", "thanks"]


@pytest.mark.long
async def test_inside_another_workflow_it_comes_to_the_same_wherever_the_run_dies() -> None:
    await crash_everywhere(around(team()), "go")
    await crash_everywhere(around(asking()), "go", answer=lambda event: "red")


async def test_a_workflow_that_takes_no_messages_is_no_agent() -> None:
    @executor(id="counter")
    async def counter(n: int, ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(n)

    with pytest.raises(DefinitionError, match="'counter' accepts neither list"):
        WorkflowBuilder(name="count", start_executor=counter).build().as_agent()


async def test_other_outputs_are_said_as_text_and_kept_as_data() -> None:
    @executor(id="counter")
    async def counter(text: str, ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(len(text))

    response = await WorkflowBuilder(name="count", start_executor=counter).build().as_agent().run("four")
    assert (response.text, response.value) == ("4", 4)


@pytest.mark.parametrize("options", [{}, {"messages": "a", "responses": {}}, {"messages": "a", "checkpoint_id": "x"}])
async def test_what_is_to_be_done_must_be_clear(options: Any) -> None:
    with pytest.raises(ValueError, match="pass messages"):
        team().as_agent().run(**options)


async def test_inside_another_workflow_it_answers_what_comes_together_one_after_the_other() -> None:
    storage = InMemoryCheckpointStorage()
    answering: list[str] = []

    async def recites(messages: list[Message]) -> str:
        answering.append(messages[-1].text)
        assert len(answering) == 1, "one at a time"
        for _ in range(10 if messages[-1].text == "first" else 1):
            await asyncio.sleep(0)
        answering.clear()
        return " ".join(message.text for message in messages)

    @executor(id="asks")
    async def asks(words: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("first")
        await ctx.send_message("second")

    inner = WorkflowBuilder(name="inner", start_executor=AgentExecutor(recites, id="recites")).build()
    guest = inner.as_agent("guest")
    workflow = WorkflowBuilder(start_executor=asks, checkpoint_storage=storage).add_edge(asks, guest).build()
    result = await workflow.run("go", run_id="r")
    said = ["first", "first", "second", "first first second"]
    assert [one.text for one in result.get_outputs()] == said[1::2]
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    assert [message.text for message in checkpoint.state[conversation_key("guest")]] == said
