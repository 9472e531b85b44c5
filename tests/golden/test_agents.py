"""What agents ever stored is read, and their turns go on where they were, with no call made again, for ever."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage, WorkflowRunState
from stepwell.agents import BudgetRequest, ToolApprovalRequest, ToolOutcomeRequest, Usage, conversation_key, usage_in
from tests.support.golden_agents import Clerk, Sender, build_around, build_booking, build_unlimited

STORES = sorted((Path(__file__).parent / "agents").glob("v*.db"))


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A copy of a golden store: reading must not change what is kept."""
    shutil.copy(request.param, tmp_path / "runs.db")
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        yield storage


def test_there_is_a_golden_store() -> None:
    assert [path.stem for path in STORES] == [f"v{number + 1}" for number in range(len(STORES))]
    assert STORES


async def test_what_agents_know_between_their_calls_is_read(storage: Any) -> None:
    head = await storage.get_latest(run_id="waiting")
    assert head.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert usage_in(head.state) == {"clerk": Usage(50, 10, 5, tool_calls=4), "boss": Usage(calls=1)}
    said = [(one.role, one.text, one.author_name) for one in head.state[conversation_key("clerk")]]
    told = "tea: look done, pay done, pay done (None, [])"
    assert said == [
        ("user", "tea", None),
        ("assistant", told, "clerk"),
        ("user", "milk", None),
        ("user", "sugar", None),
    ]
    assert head.state[conversation_key("clerk")][1].data == {"booked": True}


async def test_a_turn_that_waits_in_its_middle_goes_on_to_its_end(storage: Any) -> None:
    clerk = Clerk()
    workflow = build_booking(storage, clerk)
    (event,) = (await workflow.run(run_id="waiting")).get_request_info_events()
    assert event.data == ToolApprovalRequest("clerk", "pay", {"amount": 2}, "b")
    result = await workflow.run(run_id="waiting", responses={event.request_id: event.data.approve()})
    assert clerk.made == ["pay", "pay"]
    (event,) = result.get_request_info_events()
    assert event.data == BudgetRequest("clerk", "calls", 5, 5, whole_run=False)
    result = await workflow.run(run_id="waiting", responses={event.request_id: {"limit": 100}})
    assert clerk.made == ["pay", "pay", "model", "model", "look", "model"]  # and what was said meanwhile is answered
    assert len(result.get_request_info_events()) == 2
    answers = {
        event.request_id: {"decision": "answer", "result": "put down"} for event in result.get_request_info_events()
    }
    result = await workflow.run(run_id="waiting", responses=answers)
    assert [one.text for one in result.get_outputs()] == [
        "tea: look done, pay done, pay done (None, [])",
        "2 heard, clerk spoke",
        "milk: look done, pay done, pay done ({'turns': 1}, [['heard', 'look done', 'pay done', 'pay done']])",
        "6 heard, clerk spoke",
        "sugar: look done, put down, put down ({'turns': 2}, [['heard', 'look done', 'pay done', 'pay done'], "
        "['heard', 'look done', 'pay done', 'pay done']])",
        "8 heard, clerk spoke",
    ]
    assert len(clerk.made) == 7


async def test_a_turn_that_failed_in_its_middle_recalls_what_it_had_done(storage: Any) -> None:
    clerk = Clerk()
    result = await build_unlimited(storage, clerk).run(run_id="failed")
    assert clerk.made == ["model"]
    asked = result.get_request_info_events()
    assert [event.data.arguments for event in asked] == [{"amount": 1}, {"amount": 2}]


async def test_a_call_that_may_have_been_made_is_made_again_with_its_old_key(storage: Any) -> None:
    sender = Sender()
    workflow = build_unlimited(storage, sender)
    (event,) = (await workflow.run(run_id="lost")).get_request_info_events()
    assert isinstance(event.data, ToolOutcomeRequest)
    result = await workflow.run(run_id="lost", responses={event.request_id: {"happened": "retry"}})
    assert (sender.made, sender.keys) == (["send", "model"], [event.data.idempotency_key])
    assert result.get_outputs()[0].text == "send done"


async def test_a_workflow_that_stands_for_an_agent_goes_on(storage: Any) -> None:
    result = await build_around(storage).run(run_id="nested", responses={"golden colour": "red"})
    assert [one.text for one in result.get_outputs()] == ["one moment\nit is red", "3 heard, guest spoke"]
    assert [one.author_name for one in result.get_outputs()[0].messages] == ["guest", "guest"]
