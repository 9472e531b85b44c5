"""Any agent with Agent Framework's `run`, and keyword arguments of a run for tools and model clients."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import FunctionInvocationContext, tool

from stepwell import InMemoryCheckpointStorage, WorkflowBuilder
from stepwell.orchestrations import SequentialBuilder
from tests.compat.scripted import Echo, agent, call


async def test_any_agent_with_their_run_may_stand_in_a_builder_and_in_a_team() -> None:
    result = await SequentialBuilder(participants=[Echo(name="a"), Echo(name="b")]).build().run("hi")
    assert result.get_outputs()[-1].text == "b:a: a:hi"
    alone = WorkflowBuilder(start_executor=Echo(name="a")).build()
    assert (await alone.run("hi")).get_outputs()[0].messages[0].author_name == "a"


async def test_its_pieces_are_updates_and_its_answer_is_not_asked_for_again() -> None:
    calls = []

    class Counts(Echo):
        def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
            calls.append(session.session_id)
            return super().run(messages, stream=stream, session=session, **kwargs)

    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=Counts(name="a"), checkpoint_storage=storage).build()
    pieces = [event.data.text async for event in workflow.run("hi", run_id="r", stream=True) if event.type == "update"]
    assert pieces == ["a:", "hi"]
    assert (await workflow.run("hi", run_id="r")).get_outputs()[0].text == "a:hi"
    assert calls == ["r/a"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"user": "ann"}, [{"user": "ann"}, {"user": "ann"}]),
        ({"one": {"user": "ann"}, "two": {"user": "bob"}}, [{"user": "ann"}, {"user": "bob"}]),
        ({"__global__": {"user": "all", "more": 1}, "two": {"user": "bob"}}, [{"user": "all", "more": 1},
                                                                               {"user": "bob", "more": 1}]),
    ],
)  # fmt: skip
async def test_keyword_arguments_of_a_run_reach_the_tools_of_its_agents(given: Any, expected: Any) -> None:
    received: list[dict[str, Any]] = []

    def look(ctx: FunctionInvocationContext) -> str:
        """Look."""
        received.append({name: value for name, value in ctx.kwargs.items() if name != "session"})
        return "seen"

    agents = [agent(name, [call("look")], "ok", tools=[tool(look)]) for name in ("one", "two")]
    storage = InMemoryCheckpointStorage()
    workflow = SequentialBuilder(participants=agents, checkpoint_storage=storage).build()
    await workflow.run("go", function_invocation_kwargs=given)
    assert received == expected
    checkpoints = await storage.list_checkpoints(workflow_name=workflow.name)
    assert "ann" not in str([checkpoint.to_dict() for checkpoint in checkpoints])


async def test_keyword_arguments_of_a_run_reach_the_clients_of_its_agents() -> None:
    one = agent("one", "ok")
    workflow = WorkflowBuilder(start_executor=one).build()
    await workflow.run("go", client_kwargs={"extra": 1})
    await workflow.run("go")
    client: Any = one.client
    assert [options.get("extra") for options in client.options] == [1, None]
