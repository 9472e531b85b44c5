"""One after the other: what each participant hears, says and sends on."""

from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    DefinitionError,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
)
from stepwell.agents import AgentExecutorResponse, AgentResponse, Calls, ScriptedAgent, ToolApprovalRequest
from stepwell.orchestrations import AgentRequestInfoResponse, SequentialBuilder
from stepwell.testing import crash_everywhere


def echo(name: str, heard: list[Any] | None = None) -> ScriptedAgent:
    """Says its name and how many messages it knows of; `heard` gets their texts."""

    def script(messages: list[Message]) -> str:
        if heard is not None:
            heard.append([message.text for message in messages])
        return f"{name} {len(messages)}"

    return ScriptedAgent(name, script)


@pytest.mark.parametrize(
    "given",
    [
        "hello",
        Message("user", "hello"),
        ["hello"],
        [Message("user", "hello")],
        AgentResponse([Message("user", "hello")]),
        AgentExecutorResponse("x", AgentResponse([Message("user", "hello")])),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_each_hears_what_was_said_before_and_the_last_gives_the_output(given: Any) -> None:
    heard: list[Any] = []
    workflow = SequentialBuilder(participants=[echo("writer"), echo("critic"), echo("editor", heard)]).build()
    result = await workflow.run(given)
    assert [output.text for output in result.get_outputs()] == ["editor 3"]
    assert heard == [["hello", "writer 1", "critic 2"]]
    assert workflow.name == "Sequential"


async def test_the_way_is_a_plain_graph() -> None:
    workflow = SequentialBuilder(participants=[echo("a"), echo("b")], name="two", description="words").build()
    assert [edge.describe() for edge in workflow.edges] == ["input-conversation -> a", "a -> b"]
    assert (workflow.start_executor_id, workflow.name, workflow.description) == ("input-conversation", "two", "words")


async def test_with_chain_only_agent_responses_only_the_last_answer_is_heard() -> None:
    heard: list[Any] = []
    second = AgentExecutor(echo("b", heard))
    team = [echo("a"), second, AgentExecutor(echo("c", heard), context_mode="last_agent")]
    await SequentialBuilder(participants=team, chain_only_agent_responses=True).build().run("go")
    assert heard == [["a 1"], ["b 1"]]
    assert second.context_mode == "full"  # what was given is left as it was


async def test_who_filters_for_itself_goes_on_doing_so() -> None:
    heard: list[Any] = []

    def first_only(messages: list[Message]) -> list[Message]:
        return messages[:1]

    last = AgentExecutor(echo("b", heard), context_mode="custom", context_filter=first_only)
    await SequentialBuilder(participants=[echo("a"), last], chain_only_agent_responses=True).build().run("go")
    assert heard == [["go"]]


class Shortener(Executor):
    """Keeps the last message."""

    @handler
    async def shorten(self, conversation: list[Message], ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message([Message("user", f"in short: {conversation[-1].text}")])


async def test_an_executor_between_agents_takes_and_sends_messages() -> None:
    heard: list[Any] = []
    team = [Shortener("before"), echo("a"), Shortener("between"), echo("b", heard)]
    workflow = SequentialBuilder(participants=team).build()
    await workflow.run("a long story")
    assert heard == [["in short: a 1"]]
    assert "to-conversation:between" in workflow.executors


async def test_an_executor_that_takes_answers_of_agents_gets_them_as_they_are() -> None:
    @executor(id="last")
    async def last(answer: AgentExecutorResponse, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(" / ".join(message.text for message in answer.full_conversation(ctx)))

    workflow = SequentialBuilder(participants=[echo("a"), last]).build()
    assert (await workflow.run("go")).get_outputs() == ["go / a 1"]
    assert set(workflow.executors) == {"input-conversation", "a", "last"}


async def test_an_async_function_is_an_agent() -> None:
    async def shout(text: str) -> str:
        return text.upper()

    result = await SequentialBuilder(participants=[echo("a"), shout]).build().run("go")
    assert [(one.text, one.messages[0].author_name) for one in result.get_outputs()] == [("A 1", "shout")]


@pytest.mark.parametrize(
    ("choice", "outputs", "on_the_way"),
    [
        ({"output_from": "all"}, ["a 1", "b 2", "c 3"], []),
        ({"output_from": ["a"]}, ["a 1"], []),
        ({"intermediate_output_from": "all_other"}, ["c 3"], ["a 1", "b 2"]),
        ({"intermediate_output_from": ["b"]}, ["c 3"], ["b 2"]),
        ({"intermediate_output_from": ["b", "c"]}, [], ["b 2", "c 3"]),
        ({"intermediate_output_from": "all"}, [], ["a 1", "b 2", "c 3"]),
        ({"output_from": ["b"], "intermediate_output_from": "all_other"}, ["b 2"], ["a 1", "c 3"]),
    ],
)
async def test_whose_answers_are_outputs_can_be_said(
    choice: dict[str, Any], outputs: list[str], on_the_way: list[str]
) -> None:
    workflow = SequentialBuilder(participants=[echo("a"), echo("b"), echo("c")], **choice).build()
    told = [event async for event in workflow.run("go", stream=True)]
    assert [event.data.text for event in told if event.type == "output"] == outputs
    assert [event.data.text for event in told if event.type == "intermediate"] == on_the_way


async def test_participants_are_named_as_they_were_given() -> None:
    agent, function_executor = echo("a"), AgentExecutor(echo("b"))

    async def shout(text: str) -> str:
        return text.upper()

    team = [agent, function_executor, shout]
    builder = SequentialBuilder(participants=team, output_from=team)
    assert len((await builder.build().run("go")).get_outputs()) == 3


def test_everything_wrong_is_said_at_once() -> None:
    twice = echo("a")
    with pytest.raises(DefinitionError) as caught:
        SequentialBuilder(
            participants=[twice, twice, echo("a"), 7, Shortener("end")], output_from=["b", "b"]
        ).with_request_info(agents=["nobody", "end"]).build()
    words = str(caught.value)
    for problem in (
        "is listed twice among the participants",
        "two participants have the name 'a'",
        "7 cannot be a participant",
        "'b' is listed twice in output_from",
        "names 'nobody', which is not a participant",
        "cannot review the answers of 'end', a Shortener",
        "the last participant, 'end', sends list[Message]",
    ):
        assert problem in words


@pytest.mark.parametrize(
    ("builder", "problem"),
    [
        (SequentialBuilder(), "a team needs at least one participant"),
        (SequentialBuilder(participants="abc"), "participants must be a list"),
        (SequentialBuilder(participants=[echo("a")], output_from=["b"]), "'b' is not an executor of this workflow"),
        (
            SequentialBuilder(participants=[echo("a")], output_from=["a"], intermediate_output_from=["a"]),
            "stands in output_from and in intermediate_output_from",
        ),
        (SequentialBuilder(participants=[echo("a")], output_from=[]), "name no executor"),
        (SequentialBuilder(participants=[echo("a")], max_iterations=0), "max_iterations must be at least 1"),
        (SequentialBuilder(participants=[Executor("bare")]), "'bare', must accept list[Message], but accepts nothing"),
    ],
)
def test_a_team_that_cannot_be_is_refused(builder: SequentialBuilder, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem.replace("[", "\\[")):
        builder.build()


def reviewed(storage: Any = None, **script: Any) -> Workflow:
    writer = ScriptedAgent("writer", ["draft", "better", "best"])
    builder = SequentialBuilder(participants=[writer, echo("critic")], checkpoint_storage=storage)
    return builder.with_request_info(**script).build()


async def test_a_person_lets_answers_pass_or_sends_the_agent_back_to_work() -> None:
    workflow = reviewed(InMemoryCheckpointStorage(), agents=["writer"])
    result = await workflow.run("write", run_id="r")
    for draft in ("draft", "better"):
        (event,) = result.get_request_info_events()
        assert isinstance(event.data, AgentExecutorResponse)
        assert (event.data.executor_id, event.data.agent_response.text) == ("writer", draft)
        said = AgentRequestInfoResponse.from_strings(["shorter!"])
        result = await workflow.run(run_id="r", responses={event.request_id: said})
        assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    (event,) = result.get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: AgentRequestInfoResponse.approve()})
    assert [output.text for output in result.get_outputs()] == ["critic 6"]


async def test_without_names_all_agents_are_reviewed_also_from_a_form() -> None:
    workflow = reviewed(InMemoryCheckpointStorage())
    (event,) = (await workflow.run("write", run_id="r")).get_request_info_events()
    again = {"messages": [{"role": "user", "text": "again"}]}
    (event,) = (await workflow.run(run_id="r", responses={event.request_id: again})).get_request_info_events()
    assert event.data.agent_response.text == "better"
    result = await workflow.run(run_id="r", responses={event.request_id: {}})
    (event,) = result.get_request_info_events()
    assert (event.data.executor_id, result.get_outputs()) == ("critic", [])
    result = await workflow.run(run_id="r", responses={event.request_id: {}})
    assert [output.text for output in result.get_outputs()] == ["critic 4"]


async def test_what_a_class_of_ones_own_does_with_an_answer_it_does_once_that_has_passed() -> None:
    class Loud(AgentExecutor):
        async def send_response(self, response: AgentExecutorResponse, ctx: Any) -> None:
            await super().send_response(response.with_text(response.agent_response.text.upper()), ctx)

    team = [Loud(ScriptedAgent("writer", ["draft", "better"]))]
    builder = SequentialBuilder(participants=team, checkpoint_storage=InMemoryCheckpointStorage())
    workflow = builder.with_request_info().build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    again = {event.request_id: AgentRequestInfoResponse.from_strings(["again"])}
    (event,) = (await workflow.run(run_id="r", responses=again)).get_request_info_events()
    assert event.data.agent_response.text == "better"
    result = await workflow.run(run_id="r", responses={event.request_id: AgentRequestInfoResponse.approve()})
    assert [output.text for output in result.get_outputs()] == ["BETTER"]


def test_saying_nothing_is_not_approving() -> None:
    with pytest.raises(ValueError, match="approve"):
        AgentRequestInfoResponse.from_strings([])
    with pytest.raises(TypeError, match="list of strings"):
        AgentRequestInfoResponse.from_strings("again")
    with pytest.raises(TypeError, match="takes a list of agents"):
        SequentialBuilder(participants=[echo("a")]).with_request_info(agents="a")


async def test_a_run_goes_on_in_a_new_workflow_object_from_sqlite(tmp_path: Path) -> None:
    def build() -> Workflow:
        return reviewed(SQLiteCheckpointStorage(tmp_path / "runs.db"), agents=["writer"])

    (event,) = (await build().run("write", run_id="r")).get_request_info_events()
    revise = AgentRequestInfoResponse.from_messages([Message("user", "again")])
    (event,) = (await build().run(run_id="r", responses={event.request_id: revise})).get_request_info_events()
    assert event.data.agent_response.text == "better"
    approved = {event.request_id: AgentRequestInfoResponse.approve()}
    assert (await build().run(run_id="r", responses=approved)).get_outputs()[0].text == "critic 4"


def payer() -> ScriptedAgent:
    return ScriptedAgent("payer", [Calls(("pay", {"object": 3})), "paid"], tools={"pay": str}, approve=["pay"])


@pytest.mark.long
async def test_it_comes_to_the_same_wherever_it_dies() -> None:
    asked: list[type] = []
    reviews: dict[str, int] = {}

    def answer(event: Any) -> Any:
        asked.append(type(event.data))
        if isinstance(event.data, ToolApprovalRequest):
            return event.data.answer("paid by hand")
        texts = event.data.agent_response.text
        reviews[texts] = reviews.get(texts, 0) + 1
        return AgentRequestInfoResponse.from_strings(["again"]) if texts == "draft" else {}

    writer = ScriptedAgent("writer", ["draft", "better"])
    workflow = SequentialBuilder(participants=[writer, Shortener("short"), payer()]).with_request_info().build()
    report = await crash_everywhere(workflow, "go", answer=answer)
    assert report.crashes > 20
    assert set(asked) == {ToolApprovalRequest, AgentExecutorResponse}
    assert set(reviews) == {"draft", "better", "paid"}


async def test_a_team_is_a_sub_workflow_and_its_questions_are_asked_outside() -> None:
    inner = SequentialBuilder(participants=[echo("a"), payer()], name="inner").build()
    first, last = AgentExecutor(echo("first")), AgentExecutor(echo("last"))
    nested = WorkflowExecutor(inner)
    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(start_executor=first, output_from=[last], checkpoint_storage=storage)
    workflow = builder.add_chain([first, nested, last]).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    assert isinstance(event.data, ToolApprovalRequest)
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.answer(1)})
    assert [output.text for output in result.get_outputs()] == ["last 1"]


async def test_a_team_takes_part_as_an_agent_that_remembers() -> None:
    heard: list[Any] = []
    inner = SequentialBuilder(participants=[echo("a"), echo("b", heard)], name="inner").build().as_agent()
    result = await SequentialBuilder(participants=[echo("first"), inner, echo("last")]).build().run("go")
    assert heard == [["go", "first 1", "a 2"]]
    assert [output.text for output in result.get_outputs()] == ["last 3"]
    team = [echo("first"), inner]
    await SequentialBuilder(participants=team, chain_only_agent_responses=True).build().run("go")
    assert heard[1:] == [["first 1", "a 1"]]
    with pytest.raises(DefinitionError, match="the answers of 'inner', a WorkflowAgentExecutor"):
        SequentialBuilder(participants=[echo("first"), inner]).with_request_info().build()


async def test_a_team_takes_part_in_a_team() -> None:
    inner = SequentialBuilder(participants=[echo("a"), echo("b")], name="inner").build()
    team = [echo("first"), WorkflowExecutor(inner), echo("last")]
    result = await SequentialBuilder(participants=team).build().run("go")
    assert [output.text for output in result.get_outputs()] == ["last 1"]


@pytest.mark.long
async def test_a_team_in_a_team_comes_to_the_same_wherever_it_dies() -> None:
    def answer(event: Any) -> Any:
        if isinstance(event.data, ToolApprovalRequest):
            return event.data.approve()
        draft = event.data.agent_response.text == "draft"
        return AgentRequestInfoResponse.from_strings(["again"]) if draft else AgentRequestInfoResponse.approve()

    writer = ScriptedAgent("writer", ["draft", "better"])
    inner = SequentialBuilder(participants=[writer, payer()], name="inner").with_request_info(agents=[writer]).build()
    team = [echo("first"), WorkflowExecutor(inner), echo("last")]
    report = await crash_everywhere(SequentialBuilder(participants=team).build(), "go", answer=answer)
    assert report.crashes > 30
