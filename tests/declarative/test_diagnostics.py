"""What workflows of named agents say besides their progress, and where their runs are kept in memory."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import CheckpointMissing, FullHistory, HandlerFailed, LatestOnly, Message, WorkflowRunState
from stepwell.agents import Fails, ScriptedAgent
from stepwell.declarative import AgentWorkflow, Approval, Retries, WorkflowDiagnosticEvent
from stepwell.testing import FakeClock


async def diagnostics(workflow: Any, **options: Any) -> list[WorkflowDiagnosticEvent]:
    events = workflow.run("go", **options)
    return [event async for event in events if isinstance(event, WorkflowDiagnosticEvent)]


async def test_an_attempt_that_failed_and_is_made_again_is_told() -> None:
    agent = ScriptedAgent("draft", [Fails(OSError("away"), 2), "fine"])
    retry = Retries(attempts=3, initial_delay=0)
    workflow = AgentWorkflow.create().add_agent("draft", agent, retry=retry).build()
    assert await diagnostics(workflow) == [
        WorkflowDiagnosticEvent("warning", "draft", "attempt 1 failed, retrying: OSError: away"),
        WorkflowDiagnosticEvent("warning", "draft", "attempt 2 failed, retrying: OSError: away"),
    ]


async def test_an_answer_that_was_not_taken_and_is_asked_for_again_is_told() -> None:
    said = iter(["not a number", "7"])

    async def count(messages: list[Message]) -> str:
        return next(said)

    workflow = AgentWorkflow.create().add_agent("count", count, output=int, retry=Retries(attempts=2)).build()
    (event,) = await diagnostics(workflow)
    assert (event.level, event.source) == ("warning", "count")
    assert event.message.startswith("attempt 1 failed, retrying: OutputRejected: ")


async def test_the_last_attempt_is_not_made_again_and_not_told_so() -> None:
    agent = ScriptedAgent("draft", [Fails(OSError("away"), 9)])
    workflow = AgentWorkflow.create().add_agent("draft", agent, retry=Retries(attempts=2, initial_delay=0)).build()
    told: list[WorkflowDiagnosticEvent] = []

    async def read() -> None:
        async for event in workflow.run("go"):
            if isinstance(event, WorkflowDiagnosticEvent):
                told.append(event)

    with pytest.raises(HandlerFailed):
        await read()
    assert [event.message for event in told] == ["attempt 1 failed, retrying: OSError: away"]


async def test_a_run_that_sleeps_says_until_when() -> None:
    agent = ScriptedAgent("draft", [Fails(OSError("away")), "fine"])
    retry = Retries(attempts=2, initial_delay=3600, max_delay=3600)
    builder = AgentWorkflow.create().with_name("late").with_in_memory_workflow_store().with_checkpointing()
    workflow = builder.add_agent("draft", agent, retry=retry).build()
    with FakeClock() as clock:
        told = await diagnostics(workflow, run_id="r")
        assert [(event.level, event.source) for event in told] == [("warning", "draft"), ("info", "late")]
        assert told[1].message.startswith("sleeping until ")
        clock(hours=2)
        assert (await workflow.resume("r")).output == "fine"


def reviewed(**options: Any) -> Any:
    async def draft(messages: list[Message]) -> str:
        return f"<{messages[-1].text}>"

    builder = AgentWorkflow.create().with_name("memory").with_checkpointing()
    return builder.with_in_memory_workflow_store(**options).add_agent("draft", draft, approval=Approval())


async def test_runs_are_kept_in_memory_as_long_as_the_workflow() -> None:
    workflow = reviewed().build()
    waiting = await workflow.run("kelp", run_id="r")
    assert waiting.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    ((id, asked),) = waiting.requests.items()
    assert (await workflow.resume("r", responses={id: asked.approve()})).output == "<kelp>"
    with pytest.raises(CheckpointMissing):
        await reviewed().build().resume("r")  # another one keeps its own


@pytest.mark.parametrize(("retention", "kept"), [(FullHistory, True), (LatestOnly, False)])
async def test_in_memory_too_a_run_keeps_all_or_its_latest(retention: Any, kept: bool) -> None:
    workflow = reviewed(retention=retention).build()
    await workflow.run("kelp", run_id="r")
    checkpoints = await workflow.workflow.attach("r", drive=True).checkpoints()
    assert (len(checkpoints) > 1) is kept


def test_it_takes_the_place_of_a_store_that_was_named_before(tmp_path: Any) -> None:
    builder = AgentWorkflow.create().with_json_workflow_store(tmp_path / "runs").with_in_memory_workflow_store()

    async def draft(messages: list[Message]) -> str:
        return "x"

    builder.with_checkpointing().add_agent("draft", draft).build()
    assert not (tmp_path / "runs").exists()
