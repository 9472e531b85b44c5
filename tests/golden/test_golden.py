"""Every format that was ever released is read, and its runs go on, for ever."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import InMemoryCheckpointStorage, WorkflowCheckpoint, WorkflowRunState
from stepwell.admin import Keep, prune, read_history
from stepwell.storage import clock
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.wire.shapes import READABLE
from tests.support.golden_later import NEXT_CENTURY, build_counting, build_judging, build_nested, build_sleeping
from tests.support.golden_stores import FORMATS, KINDS, STORES, copy_of
from tests.support.golden_workflow import GIVEN, build, build_asking

LOG = ["counted", "left"]
OUTPUTS = ["left was here", {"total": 6, "log": LOG, "parcel": GIVEN}]


@pytest.fixture(params=STORES, ids="-".join)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    name, kind = request.param
    async with copy_of(name, kind, tmp_path) as storage:
        yield storage


def test_there_is_a_golden_store_of_every_format_on_every_back_end() -> None:
    assert [path.name for path in FORMATS] == [f"v{number}" for number in READABLE]
    assert [(format.name, kind) for format in FORMATS for kind in KINDS.values()] == STORES


async def test_a_finished_run_tells_its_outputs_again(storage: Any) -> None:
    result = await build(storage, broken=False).run(GIVEN, run_id="done")
    assert result.get_outputs() == OUTPUTS
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_every_checkpoint_is_read_and_equal_to_what_was_written(storage: Any) -> None:
    checkpoints = await storage.list_checkpoints(run_id="done")
    assert [one.iteration_count for one in checkpoints] == [0, 1, 2, 3, 4]
    assert checkpoints[0].messages["input"][0].data == GIVEN
    assert checkpoints[1].state["parcel"] == GIVEN
    assert dict(checkpoints[1].executor_states)["counter"] == {"labels": ["golden"], "seen": 1}
    assert "scratch" not in checkpoints[2].state
    assert checkpoints[-1].state["log"] == LOG
    history = await storage.message_history(checkpoints[-1].checkpoint_id)
    assert [(m.source_id, m.data) for m in history[2:]] == [("left", 1), ("left", 2), ("right", 3), ("join", 6)]


async def test_a_failed_run_goes_on_and_what_was_remembered_is_recalled(storage: Any) -> None:
    result = await build(storage, broken=False).run(run_id="failed")
    assert result.get_outputs() == OUTPUTS
    assert [event.executor_id for event in result if event.type == "executor_bypassed"] == ["left"]
    assert [event.executor_id for event in result if event.type == "executor_invoked"] == ["right", "join", "last"]


async def test_a_waiting_run_is_answered(storage: Any) -> None:
    pending = [one for one in await storage.pending_requests(workflow_name="asking") if one.run_id == "waiting"]
    assert [(one.request_id, one.run_id, one.response_type) for one in pending] == [
        ("golden question", "waiting", "Verdict")
    ]
    result = await build_asking(storage).run(run_id="waiting", responses={"golden question": {"good": True}})
    assert result.get_outputs() == ["gold is good"]


async def test_a_question_from_two_floors_down_is_answered(storage: Any) -> None:
    pending = await storage.pending_requests(workflow_name="nested")
    assert [(one.request_id, one.run_id, one.executor_id) for one in pending] == [("deal 3", "nested", "market")]
    result = await build_nested(storage).run(run_id="nested", responses={"deal 3": {"done": True}})
    assert result.get_outputs() == ["clerk: offered for 3", "clerk: sold for 3"]


async def test_a_question_from_two_floors_down_is_answered_in_a_fork(storage: Any) -> None:
    head = await storage.get_latest(run_id="nested")
    options = {"checkpoint_id": head.checkpoint_id, "run_id": "fork"}
    forked = await build_nested(storage).run(**options, responses={"deal 3": {"done": False}})
    assert forked.get_outputs() == ["clerk: offered for 3", "clerk: kept for 3"]


async def test_a_run_that_sleeps_is_found_when_it_is_due_and_knows_what_it_tried(storage: Any) -> None:
    assert await storage.ready_runs(workflow_name="sleeping") == []
    (due,) = await storage.ready_runs(by=NEXT_CENTURY, workflow_name="sleeping")
    assert (due.run_id, due.until) == ("asleep", NEXT_CENTURY.isoformat())
    clock.set_source(NEXT_CENTURY.timestamp)
    try:
        result = await build_sleeping(storage, broken=False).run(run_id="asleep")
    finally:
        clock.set_source()
    assert result.get_outputs() == ["good morning, at once", "good morning, at last"]
    assert [event.attempt for event in result if event.type == "executor_invoked"] == [2]
    assert [event.executor_id for event in result if event.type == "executor_bypassed"] == ["sibling"]


async def test_a_handler_that_waits_for_an_answer_continues_and_its_timers_stay_set(storage: Any) -> None:
    (request,) = await storage.pending_requests(workflow_name="judging")
    assert (request.request_id, request.executor_id) == ("second question", "judge")
    workflow = build_judging(storage)
    result = await workflow.run(run_id="judged", responses={"second question": {"done": True}})
    assert result.get_outputs() == ["gold: True, True"]
    events = [timed.event async for timed in read_history(storage, "judged")]
    assert [event.by for event in events if event.type == "request_answered"] == [
        "ada",
        None,
    ]
    clock.set_source((NEXT_CENTURY + timedelta(days=60 * 365)).timestamp)
    try:
        rung = await build_judging(storage).run(run_id="judged")
    finally:
        clock.set_source()
    assert rung.get_outputs() == ["gold: True, True", "time to remind", "time to give up"]


async def test_a_fork_says_what_it_was_forked_from(storage: Any) -> None:
    (forked,) = await storage.list_runs(parent="done")
    assert (forked.run_id, forked.parent.run_id, forked.parent.number) == ("forked", "done", 2)
    assert (await build(storage, broken=False).run(run_id="forked")).get_outputs() == OUTPUTS


async def test_a_run_with_a_priority_comes_first_of_those_that_are_ready(storage: Any) -> None:
    first, *others = await storage.ready_runs(workflow_name="counting")
    assert (first.run_id, first.priority) == ("urgent", 10)
    assert {run.priority for run in others} <= {0}
    assert (await build_counting(storage).run(run_id="urgent")).get_outputs() == [1]


async def test_a_run_that_was_moved_back_stands_where_it_was_moved_to(storage: Any) -> None:
    result = await build_counting(storage).run(run_id="moved back")
    assert result.get_outputs() == [1]
    assert (await storage.get_latest(run_id="moved back")).state["total"] == 1


async def test_letters_that_wait_are_read(storage: Any) -> None:
    assert (await build_counting(storage).run(run_id="sent to")).get_outputs() == [1, 11]
    stopped = await build_asking(storage).run(run_id="stopped")
    assert stopped.get_final_state() is WorkflowRunState.CANCELLED


async def test_runs_are_found_by_their_tags(storage: Any) -> None:
    (found,) = await storage.list_runs(tags={"customer": "ada", "urgent": "yes"})
    assert (found.run_id, found.status) == ("tagged", WorkflowRunState.IDLE)


async def test_a_run_that_keeps_only_its_latest_goes_on_so(storage: Any) -> None:
    assert len(await storage.list_checkpoint_ids(run_id="latest only")) == 1
    responses = {"golden question": {"good": True}}
    result = await build_asking(storage).run(run_id="latest only", responses=responses)
    assert result.get_outputs() == ["gold is good"]
    assert len(await storage.list_checkpoint_ids(run_id="latest only")) == 1


@pytest.mark.parametrize("format", FORMATS, ids=lambda path: path.name)
async def test_checkpoints_written_as_plain_data_are_taken_back(format: Path) -> None:
    storage = InMemoryCheckpointStorage()
    for plain in json.loads((format / "checkpoints.json").read_text()):
        await storage.save(WorkflowCheckpoint.from_dict(plain))
    result = await build(storage, broken=False).run(run_id="failed")
    assert result.get_outputs() == OUTPUTS


async def test_runs_inside_are_not_thinned_out(storage: Any) -> None:
    report = await prune(storage, Keep(last=0))
    touched = {*report.runs, *(one.run_id for one in report.checkpoints)}
    inside = {one.run_id for one in await storage._store.runs(ALL_RUNS) if one.workflow in ("market", "selling")}
    assert len(inside) == 2
    assert not touched & inside
