"""What `build` keeps of a durable function, and a function that asks where an agent is expected."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    HandlerTimeout,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunContext,
    RunError,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowExecutor,
    step,
    workflow,
)
from stepwell.functional import DurableFunction
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.testing import crash_everywhere

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@step
async def lookup(name: str) -> str:
    CALLS.append(name)
    return name.title()


@workflow(name="refunds", description="Refunds an order.", retry=RetryPolicy(max_attempts=3, initial_interval=0))
async def refund(name: str, ctx: RunContext) -> str:
    """Refund it."""
    found = await lookup(name)
    if CALLS.count("tried") < 2:
        CALLS.append("tried")
        raise ConnectionError("again")
    return found


def built_twice(storage: BuiltInStorage) -> DurableFunction[str, str]:
    return refund.build(checkpoint_storage="memory").build(checkpoint_storage=storage)


async def test_it_keeps_what_the_decorator_was_given(every_storage: BuiltInStorage) -> None:
    built = built_twice(every_storage)
    assert (built.name, built.description) == ("refunds", "Refunds an order.")
    assert built.to_dict() == refund.to_dict()
    assert built.graph_signature_hash == refund.graph_signature_hash
    assert (built.max_iterations, built.version) == (refund.max_iterations, refund.version) == (1, 1)
    assert (built.input_types, built.output_types) == (refund.input_types, refund.output_types) == ([str], [str])
    assert (built.function, built.__doc__, built.__module__) == (refund.function, "Refund it.", __name__)
    result = await built.run("ada", run_id="r", tags={"team": "money"})
    assert (result.get_outputs(), CALLS) == (["Ada"], ["ada", "tried", "tried"])
    (run,) = await every_storage.list_runs(tags={"team": "money"})
    assert (run.run_id, run.workflow_name) == ("r", "refunds")


@pytest.mark.parametrize("limit", [0.02, timedelta(milliseconds=20)])
async def test_it_keeps_the_time_limit(limit: float | timedelta, storage: BuiltInStorage) -> None:
    @workflow(timeout=limit)
    async def slow() -> None:
        await asyncio.sleep(60)

    with pytest.raises(HandlerTimeout, match=r"'.*slow' of run 'r' timed out after 0\.02 s"):
        await slow.build(checkpoint_storage=storage).run(None, run_id="r")


async def test_without_a_storage_it_keeps_that_of_the_decorator(storage: BuiltInStorage) -> None:
    @workflow(checkpoint_storage=storage)
    async def stored(name: str) -> str:
        return await lookup(name)

    await stored.build().run("ada", run_id="r")
    assert await storage.get_run("r") is not None
    other = InMemoryCheckpointStorage()
    await stored.build(checkpoint_storage=other).run("bo", run_id="s")
    assert (await storage.get_run("s"), await other.get_run("r")) == (None, None)


async def test_the_function_itself_stays_as_it_is(storage: BuiltInStorage) -> None:
    @workflow
    async def unstored(name: str) -> str:
        return await lookup(name)

    built = unstored.build(checkpoint_storage=storage)
    await unstored.run("ada", run_id="r")
    assert await storage.list_runs() == []
    results = await asyncio.gather(*(built.run(name, run_id=name) for name in ("bo", "cy", "di")))
    assert [result.get_outputs() for result in results] == [["Bo"], ["Cy"], ["Di"]]
    assert len(await storage.list_runs()) == 3


# ---------------------------------------------------------------- as an agent


@workflow
async def clerk(text: str, ctx: RunContext) -> str:
    name = await lookup(text)
    decision = await ctx.ask(f"Refund {name}?", bool)
    reason = "" if decision else f", because: {await ctx.ask('Why not?', str)}"
    return f"{name} {'gets' if decision else 'does not get'} the money{reason}"


async def test_what_it_asks_reaches_the_caller_of_the_agent_and_the_response_continues_it(
    every_storage: BuiltInStorage,
) -> None:
    agent = clerk.build(checkpoint_storage=every_storage).as_agent(description="decides")
    assert (agent.name, agent.description) == ("clerk", "decides")
    response = await agent.run("ada")
    (request,) = response.user_input_requests
    assert (request.data, response.messages) == ("Refund Ada?", ())
    response = await agent.run(responses={request.request_id: False})
    (second,) = response.user_input_requests
    assert second.data == "Why not?"
    response = await agent.run(responses={second.request_id: "late"})
    assert response.text == "Ada does not get the money, because: late"
    assert (list(response.user_input_requests), CALLS) == ([], ["ada"])


async def test_another_process_answers_what_an_agent_has_asked(tmp_path: Path) -> None:
    def agent() -> Any:
        return clerk.build(checkpoint_storage=SQLiteCheckpointStorage(tmp_path / "runs.db")).as_agent()

    first = agent()
    session = first.create_session("ada")
    (request,) = (await first.run("ada", session=session)).user_input_requests
    with pytest.raises(RunError, match="waits for responses"):
        await first.run("hurry", session=session)
    response = await agent().run(responses={request.request_id: True}, session=session)
    assert (response.text, CALLS) == ("Ada gets the money", ["ada"])


async def test_an_agent_that_asks_is_streamed_and_asks_inside_of_a_graph(storage: BuiltInStorage) -> None:
    stream = clerk.build(checkpoint_storage=storage).as_agent().run("ada", stream=True)
    assert [update.text async for update in stream if update.text] == []
    assert [request.data for request in (await stream).user_input_requests] == ["Refund Ada?"]
    node = WorkflowExecutor(clerk, allow_direct_output=True)
    graph = WorkflowBuilder(start_executor=node, checkpoint_storage=storage).build()
    result = await graph.run("bo", run_id="g")
    (request,) = result.get_request_info_events()
    assert request.data == "Refund Bo?"
    assert (await graph.run(run_id="g", responses={request.request_id: True})).get_outputs() == ["Bo gets the money"]


async def test_a_function_that_asks_survives_a_crash_at_every_write() -> None:
    report = await crash_everywhere(clerk, "ada", answer=lambda event: True if "Refund" in str(event.data) else "no")
    assert report.writes > 3


async def test_a_call_that_has_to_wait_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"has no result yet: it is waiting\. Start a function that waits with"):
        await clerk("ada")
