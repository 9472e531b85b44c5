"""A person looks at the plans of a managed team, also after a restart."""

from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Message,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
    WorkflowRunState,
)
from stepwell.orchestrations import MagenticPlanReviewRequest, MagenticPlanReviewResponse
from stepwell.testing import ScriptedHuman, crash_everywhere
from tests.orchestrations.managed import ledger, managing, said_by, team

ANSWER = "the answer: a text, a fine text"


async def test_a_run_waits_for_a_person_to_approve_the_plan() -> None:
    workflow = team(enable_plan_review=True).build()
    result = await workflow.run("a poem", run_id="r")
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    (event,) = result.get_request_info_events()
    request = event.data
    assert isinstance(request, MagenticPlanReviewRequest)
    assert (request.request_id, event.source_executor_id) == (event.request_id, "magentic_orchestrator")
    assert (request.plan.text, request.current_progress, request.is_stalled) == ("a poem | facts | plan", None, False)
    result = await workflow.run(run_id="r", responses={request.request_id: request.approve()})
    assert [one.text for one in result.get_outputs()] == [ANSWER]


async def test_a_plan_is_revised_until_it_will_do() -> None:
    manager = managing(lambda messages: ledger(done=True))
    workflow = team(manager).with_plan_review().build()
    (first,) = (await workflow.run("a poem", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={first.request_id: first.data.revise("shorter")})
    (second,) = result.get_request_info_events()
    assert second.request_id != first.request_id
    assert second.data.plan.text == "a poem | more facts than facts | another plan, after ['shorter']"
    assert not second.data.is_stalled
    told = second.data.revise([Message("user", "much shorter"), "please"])
    (third,) = (await workflow.run(run_id="r", responses={second.request_id: told})).get_request_info_events()
    assert third.data.plan.text.endswith("another plan, after ['shorter', 'much shorter', 'please']")
    result = await workflow.run(run_id="r", responses={third.request_id: {}})  # plain JSON: nothing to say
    assert [one.text for one in result.get_outputs()] == ["the answer: "]
    assert manager.calls.count("model") == 3 * 2 + 2


def test_what_is_said_to_a_plan() -> None:
    request = MagenticPlanReviewRequest(Message("assistant", "plan"))
    assert request.approve() == MagenticPlanReviewResponse() == MagenticPlanReviewResponse.approve()
    assert request.revise("no") == MagenticPlanReviewResponse([Message("user", "no")])
    for nothing in ("", [], [Message("user", " ")]):
        with pytest.raises(ValueError, match=r"approve\(\)"):
            request.revise(nothing)


def stuck(messages: list[Message]) -> str:
    if any("another plan" in message.text for message in messages):
        return ledger("writer", "on", done=bool(said_by(messages, "writer")))
    return ledger("writer", "on", progress=False)


async def test_a_plan_that_takes_the_place_of_another_is_looked_at_too() -> None:
    workflow = team(managing(stuck), max_stall_count=1).with_plan_review().build()
    (event,) = (await workflow.run("a poem", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    (event,) = result.get_request_info_events()
    assert event.data.is_stalled
    assert event.data.current_progress.is_progress_being_made.answer is False
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.revise("be bold")})
    (event,) = result.get_request_info_events()
    assert event.data.is_stalled
    assert event.data.plan.text.endswith("another plan, after ['a text', 'be bold']")
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert [one.text for one in result.get_outputs()] == ["the answer: a text"]


async def test_plan_review_can_be_turned_off_again() -> None:
    workflow = team(enable_plan_review=True).with_plan_review(False).build()
    assert [one.text for one in (await workflow.run("a poem")).get_outputs()] == [ANSWER]


@pytest.mark.parametrize("make", [FileCheckpointStorage, SQLiteCheckpointStorage])
async def test_the_plan_is_approved_after_a_restart_from_the_newest_checkpoint(make: Any, tmp_path: Path) -> None:
    def build() -> tuple[Workflow, Any]:
        storage = make(tmp_path / "checkpoints")
        return team(checkpoint_storage=storage, enable_plan_review=True).build(), storage

    workflow, storage = build()
    plan_request: Any = None
    async for ev in workflow.run("a poem", stream=True):
        if ev.type == "request_info" and isinstance(ev.data, MagenticPlanReviewRequest):
            plan_request = ev.data
        if ev.state == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break
    workflow, storage = build()
    checkpoint = await storage.get_latest(workflow_name=workflow.name)
    outputs = []
    async for ev in workflow.run(
        checkpoint_id=checkpoint.checkpoint_id,
        stream=True,
        responses={plan_request.request_id: plan_request.approve()},
    ):
        if ev.type == "output":
            outputs.append(str(ev.data))
    assert outputs == [ANSWER]


async def test_questions_of_different_runs_have_different_ids() -> None:
    workflow = team().with_plan_review().build()
    asked = [(await workflow.run("a poem", run_id=id)).get_request_info_events()[0] for id in "rs"]
    assert asked[0].data.request_id != asked[1].data.request_id


async def test_the_plans_of_a_team_inside_a_workflow_are_answered_by_the_id_they_know() -> None:
    inner = team(checkpoint_storage=None, enable_plan_review=True).build()
    member = WorkflowExecutor(inner, id="team", allow_direct_output=True, propagate_request=True)
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=member, checkpoint_storage=storage).build()
    (event,) = (await workflow.run("a poem", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.data.request_id: event.data.approve()})
    assert [one.text for one in result.get_outputs()] == [ANSWER]


async def test_another_answer_can_be_tried_from_the_same_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = team(checkpoint_storage=storage).with_plan_review().build()
    (event,) = (await workflow.run("a poem", run_id="r")).get_request_info_events()
    asked_at = await storage.get_latest(run_id="r")
    assert asked_at is not None
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert [one.text for one in result.get_outputs()] == [ANSWER]
    said = {event.data.request_id: event.data.revise("shorter")}
    other = await workflow.run(checkpoint_id=asked_at.checkpoint_id, run_id="s", responses=said)
    (again,) = other.get_request_info_events()
    assert again.data.request_id not in (event.request_id, "")
    assert again.data.plan.text.endswith("another plan, after ['shorter']")


@pytest.mark.long
async def test_reviews_come_to_the_same_wherever_a_run_dies() -> None:
    approve, revise = MagenticPlanReviewResponse.approve(), MagenticPlanReviewResponse.revise("shorter")
    human = ScriptedHuman([approve, revise, approve], twice=True)
    workflow = team(managing(stuck), max_stall_count=0).with_plan_review().build()
    report = await crash_everywhere(workflow, "a poem", answer=human)
    assert report.crashes > 50
