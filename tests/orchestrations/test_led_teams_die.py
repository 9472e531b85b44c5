"""Teams that hand over and teams under a manager, with people in the middle, wherever and however their runs die."""

from typing import Any

import pytest

from stepwell import AgentExecutor, LatestOnly, Message, Workflow, WorkflowBuilder, WorkflowExecutor
from stepwell.agents import Calls, ScriptedAgent
from stepwell.orchestrations import HandoffAgentUserRequest, HandoffBuilder
from stepwell.testing import FailingStore, crash_everywhere
from tests.orchestrations.managed import ledger, managing, said_by, team


def progress(messages: list[Message]) -> str:
    """The first plan leads nowhere."""
    if any("another plan" in message.text for message in messages):
        return ledger("writer", "on", done=bool(said_by(messages, "writer")))
    return ledger("writer", "on", progress=False)


def managed() -> Workflow:
    def script(messages: list[Message]) -> Any:
        return "a text" if messages[-1].role == "tool" else Calls(("look", {}))

    writer = AgentExecutor(ScriptedAgent("writer", script, tools={"look": int}), approve=["look"])
    return team(managing(progress), writer=writer, max_stall_count=0, enable_plan_review=True).build()


def handing_over() -> Workflow:
    first, there, back = Calls(("handoff_to_back", {}), text="so"), Calls(("handoff_to_back", {})), "and?"
    office = ScriptedAgent("back", ["a", "b", Calls(("pay", {})), Calls(("handoff_to_front", {}))], tools={"pay": int})
    team = [ScriptedAgent("front", [first, there, back]), AgentExecutor(office, approve=["pay"])]
    builder = HandoffBuilder(participants=team, termination_condition=lambda said: len(said) > 50)
    builder.with_autonomous_mode(agents=["back"], turn_limits={"back": 1})
    return builder.with_start_agent("front").build()


def answer(event: Any) -> Any:
    if not isinstance(event.data, HandoffAgentUserRequest):
        return event.data.approve()
    asked_by_the_front = event.data.agent_response.text == "and?"
    return event.data.terminate() if asked_by_the_front else event.data.create_response("go on")


def nested(workflow: Workflow) -> Workflow:
    inside = WorkflowExecutor(workflow, id="team", allow_direct_output=True, propagate_request=True)
    return WorkflowBuilder(start_executor=inside).build()


@pytest.mark.long
@pytest.mark.parametrize(
    ("build", "options"), [(managed, {"fault": FailingStore}), (handing_over, {"retention": LatestOnly})]
)
async def test_a_team_comes_to_the_same(build: Any, options: Any) -> None:
    report = await crash_everywhere(build(), "a poem", answer=answer, **options)
    assert report.crashes > 50


@pytest.mark.long
@pytest.mark.parametrize("build", [managed, handing_over])
async def test_a_team_inside_a_workflow_comes_to_the_same(build: Any) -> None:
    report = await crash_everywhere(nested(build()), "a poem", answer=answer)
    assert report.crashes > 70
