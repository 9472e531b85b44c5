"""Side by side: what the participants hear, and how their answers are brought together."""

import threading
from collections.abc import Sequence
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
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
)
from stepwell.agents import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Calls,
    Fails,
    ScriptedAgent,
    ToolApprovalRequest,
    Usage,
)
from stepwell.orchestrations import AgentRequestInfoResponse, ConcurrentBuilder, SequentialBuilder
from stepwell.testing import crash_everywhere


def agents(*names: str) -> list[ScriptedAgent]:
    return [ScriptedAgent(name, [f"{name} says so"]) for name in names]


def texts(results: list[Any]) -> list[str]:
    return [result.agent_response.text for result in results]


@pytest.mark.parametrize(
    "given",
    ["q", Message("user", "q"), ["q"], AgentExecutorRequest([Message("user", "q")])],
    ids=lambda given: type(given).__name__,
)
async def test_the_last_words_of_all_are_brought_together_in_their_order(given: Any) -> None:
    workflow = ConcurrentBuilder(participants=agents("b", "a", "c")).build()
    (response,) = (await workflow.run(given)).get_outputs()
    assert isinstance(response, AgentResponse)
    assert [(one.author_name, one.text) for one in response.messages] == [
        ("b", "b says so"),
        ("a", "a says so"),
        ("c", "c says so"),
    ]
    assert response.usage == Usage(3, 9, calls=3)
    assert workflow.name == "Concurrent"


def test_the_way_is_a_plain_graph() -> None:
    workflow = ConcurrentBuilder(participants=agents("a", "b")).build()
    assert [edge.describe() for edge in workflow.edges] == ["dispatcher -> each of a, b", "all of a, b -> aggregator"]


async def test_a_function_makes_the_result_once_and_a_plain_one_in_a_thread() -> None:
    where: list[int] = []

    def longest(results: list[AgentExecutorResponse]) -> str:
        where.append(threading.get_ident())
        return max(texts(results), key=len)

    workflow = ConcurrentBuilder(participants=agents("a", "bbb")).with_aggregator(longest).build()
    assert (await workflow.run("q")).get_outputs() == ["bbb says so"]
    assert "longest" in workflow.executors
    assert where != [threading.get_ident()]


async def test_a_function_may_be_async_and_take_the_context() -> None:
    async def both(results: list[AgentExecutorResponse], ctx: WorkflowContext[Any, Any]) -> None:
        for text in texts(results):
            await ctx.yield_output(text)

    def plain(results: list[AgentExecutorResponse], ctx: WorkflowContext[Any, Any]) -> int:
        ctx.set_state("seen", len(results))
        return len(results)

    team = agents("a", "b")
    result = await ConcurrentBuilder(participants=team).with_aggregator(both).build().run("q")
    assert result.get_outputs() == ["a says so", "b says so"]
    assert (await ConcurrentBuilder(participants=team).with_aggregator(plain).build().run("q")).get_outputs() == [2]
    workflow = ConcurrentBuilder(participants=team).with_aggregator(lambda results: len(results)).build()
    assert (await workflow.run("q")).get_outputs() == [2]
    assert "aggregator" in workflow.executors


async def test_an_executor_brings_the_answers_together() -> None:
    class Count(Executor):
        @handler
        async def count(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[None, int]) -> None:
            await ctx.yield_output(len(results))

    workflow = ConcurrentBuilder(participants=agents("a", "b")).with_aggregator(Count("count")).build()
    assert (await workflow.run("q")).get_outputs() == [2]


class Plain(Executor):
    """Takes messages and sends what it was made with."""

    def __init__(self, id: str, answer: Any) -> None:
        super().__init__(id)
        self.answer = answer

    @handler
    async def hear(self, messages: list[Message], ctx: WorkflowContext[Any]) -> None:
        await ctx.send_message(self.answer)


async def test_other_executors_and_teams_take_part() -> None:
    inner = SequentialBuilder(participants=agents("c"), name="inner").build()
    team: list[Any] = [
        *agents("a"),
        Plain("text", "plain text"),
        Plain("message", Message("assistant", "a message")),
        Plain("messages", [Message("assistant", "x"), Message("assistant", "the last"), Message("user", "no")]),
        Plain("silent", [Message("user", "not an answer")]),
        WorkflowExecutor(inner),
    ]
    (response,) = (await ConcurrentBuilder(participants=team).build().run("q")).get_outputs()
    said = [message.text for message in response.messages]
    assert said == ["a says so", "plain text", "a message", "the last", "c says so"]


async def test_if_nobody_says_anything_there_is_no_result() -> None:
    silent = [Plain(name, [Message("user", "?")]) for name in ("a", "b")]
    with pytest.raises(RunError, match="no participant answered"):
        await ConcurrentBuilder(participants=silent).build().run("q")


def test_everything_wrong_is_said_at_once() -> None:
    @executor(id="deaf")
    async def deaf(number: int, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("?")

    def no_parameters() -> None: ...

    builder = ConcurrentBuilder(participants=[deaf])
    with pytest.raises(DefinitionError) as caught:
        builder.with_aggregator(no_parameters).with_aggregator(7).build()  # type: ignore[arg-type]
    words = str(caught.value)
    for problem in (
        "at least two participants, not only 'deaf'",
        "'deaf' accepts neither AgentExecutorRequest nor list[Message]",
        "with_aggregator was called 2 times",
        "'no_parameters' must take (results)",
        "7 cannot be an aggregator",
    ):
        assert problem in words


async def test_what_has_answered_is_not_asked_again_when_another_failed() -> None:
    sound, shaky = ScriptedAgent("sound", ["fine"]), ScriptedAgent("shaky", [Fails(OSError("gone")), "well"])
    workflow = ConcurrentBuilder(participants=[sound, shaky], checkpoint_storage=InMemoryCheckpointStorage()).build()
    with pytest.raises(HandlerFailed, match="gone"):
        await workflow.run("q", run_id="r")
    (response,) = (await workflow.run(run_id="r")).get_outputs()
    assert response.text == "fine\nwell"
    assert sound.calls == ["model"]


def judges(storage: Any = None, asking: Sequence[str] = ("writer", "payer")) -> Workflow:
    payer = ScriptedAgent("payer", [Calls(("pay", {})), "paid"], tools={"pay": int}, approve=["pay"])
    writer = ScriptedAgent("writer", ["draft", "better"])
    team = [one for one in (writer, payer) if one.name in asking]
    builder = ConcurrentBuilder(participants=[*team, *agents("judge")], checkpoint_storage=storage)
    return builder.with_request_info(agents=[writer] if "writer" in asking else []).build()


def decide(event: Any) -> Any:
    if isinstance(event.data, ToolApprovalRequest):
        return event.data.approve()
    if event.data.agent_response.text == "draft":
        return AgentRequestInfoResponse.from_strings(["again"])
    return AgentRequestInfoResponse.approve()


async def test_people_are_asked_side_by_side_and_the_rest_waits_for_them(tmp_path: Path) -> None:
    def build() -> Workflow:
        return judges(SQLiteCheckpointStorage(tmp_path / "runs.db"))

    result = await build().run("q", run_id="r")
    while events := result.get_request_info_events():
        assert result.get_outputs() == []
        result = await build().run(run_id="r", responses={events[-1].request_id: decide(events[-1])})
    assert [output.text for output in result.get_outputs()] == ["better\npaid\njudge says so"]


@pytest.mark.long
@pytest.mark.parametrize("asking", ["writer", "payer"])
async def test_it_comes_to_the_same_wherever_it_dies(asking: str) -> None:
    report = await crash_everywhere(judges(asking=[asking]), "q", answer=decide)
    assert report.crashes > 20


async def test_an_aggregate_whose_result_is_noted_is_not_made_again() -> None:
    made: list[str] = []

    def best(results: list[AgentExecutorResponse]) -> str:
        made.append(texts(results)[0])
        return made[-1]

    team = [AgentExecutor(agent) for agent in agents("a", "b")]
    report = await crash_everywhere(ConcurrentBuilder(participants=team).with_aggregator(best).build(), "q")
    # each run makes it; the one that dies right before the result is noted makes it again
    assert len(made) <= report.runs + 1
