"""What an agent did is seen: its model calls, its tool calls, and what people decided."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stepwell import Message, SQLiteCheckpointStorage, WorkflowBuilder, admin
from stepwell.agents import AgentExecutor, Answer, Turn
from tests.support.agent_runs import clerking
from tests.support.command_line import Say

STORE = ["--store", "sqlite:///runs.db"]


@pytest.fixture
def clerk_run(tmp_path: Any) -> str:
    """A run whose agent asked for approval, got it, and answered."""
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def work() -> None:
        workflow = clerking(storage)
        await workflow.run("order 7 is broken", run_id="clerk-1")
        (request,) = await admin.open_requests(storage, "clerk-1")
        response = {"decision": "approve"}
        await admin.respond(storage, "clerk-1", request.request_id, response, by="ada", comment="fine")
        await workflow.run(run_id="clerk-1")
        await storage.close()

    asyncio.run(work())
    return "clerk-1"


def test_events_list_the_calls_of_a_turn(clerk_run: str, say: Say) -> None:
    shown = say(*STORE, "events", clerk_run).stdout
    calls = [line.strip() for line in shown.splitlines() if line.startswith("        ")]
    assert [call.partition(",")[0].partition(" {")[0] for call in calls] == [
        "model 1",
        "tool look_up",
        "model 2",
        "tool refund",
        "model 3",
    ]
    assert calls[0].startswith("model 1, 4 tokens in, 3 out, cost 0.007, ")
    assert 'tool refund {"order": 7, "amount": 900} → refunded 900, ' in shown
    assert "request_answered  executor=clerk" in shown
    assert "by=ada  comment=fine" in shown
    assert '"$"' not in shown
    assert "May clerk call refund(order=7, amount=900)?" in shown


def test_requests_ask_in_a_sentence_and_say_who_has_answered(tmp_path: Any, say: Say) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def work() -> None:
        await clerking(storage).run("order 7 is broken", run_id="clerk-1")
        await storage.close()

    asyncio.run(work())
    listed = say(*STORE, "requests").stdout
    assert "May clerk call refund(order=7, amount=900)?" in listed
    assert "parameters" not in listed
    (request,) = json.loads(say(*STORE, "requests", "--json").stdout)["requests"]
    assert request["question"] == "May clerk call refund(order=7, amount=900)?"
    assert (request["data"]["tool"], request["data"]["arguments"]) == ("refund", {"order": 7, "amount": 900})
    assert say(*STORE, "respond", "--response", '{"decision": "deny"}', "--by", "ada").exit_code == 0
    assert say(*STORE, "requests").stdout.rstrip().endswith("  by ada")
    (request,) = json.loads(say(*STORE, "requests", "--json").stdout)["requests"]
    assert (request["answered"], request["answered_by"]) == (True, "ada")


def test_a_run_that_is_followed_lists_the_calls_as_they_are_committed(say: Say, tmp_path: Any) -> None:
    (tmp_path / "ready").touch()
    run = ["run", "tests.support.driven_runs:clerks", "--input", "what is order 7?", "--follow"]
    lines = say(*STORE, *run).stderr.splitlines()
    calls = [line.strip() for line in lines if line.startswith("        ")]
    assert [call.split(",")[0].split(" {")[0] for call in calls] == ["model 1", "tool look_up", "model 2"]
    assert calls[1].startswith('tool look_up {"order": 7} → 900 for a samovar, ')
    printed = say(*STORE, *run, "--json").stdout.splitlines()
    (completed,) = [event for event in map(json.loads, printed) if event["type"] == "executor_completed"]
    assert [call["kind"] for call in completed["calls"]] == ["model", "tool", "model"]


def test_fields_of_a_provider_that_are_null_are_not_printed(say: Say, tmp_path: Any) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def speak(messages: list[Message], turn: Turn) -> Answer:
        raw = {"content": "hi", "refusal": None, "usage": {"cached": None, "input": 3}}
        return Answer([Message("assistant", "hi")], history=[raw])

    async def work() -> None:
        speaker = AgentExecutor(speak, id="speaker")
        await WorkflowBuilder(start_executor=speaker, checkpoint_storage=storage).build().run("x", run_id="speak-1")
        await storage.close()

    asyncio.run(work())
    shown = say(*STORE, "show", "speak-1").stdout
    assert "content: hi" in shown
    assert "null" not in shown
    state = json.loads(say(*STORE, "show", "speak-1", "--json").stdout)["state"]
    assert state["agents/speaker/history"][0]["refusal"] is None  # programs get all of it


def test_events_as_json_hold_the_calls_as_data(clerk_run: str, say: Say) -> None:
    events = [json.loads(line) for line in say(*STORE, "events", clerk_run, "--json").stdout.splitlines()]
    first, second = [event for event in events if event["type"] == "executor_completed"]
    assert [(call["kind"], call["name"]) for call in first["calls"]] == [
        ("model", "1"),
        ("tool", "look_up"),
        ("model", "2"),
    ]
    assert second["calls"][0]["result"] == "refunded 900"
    assert second["calls"][0]["seconds"] >= 0
    assert first["seconds"] >= 0
    (answered,) = [event for event in events if event["type"] == "request_answered"]
    assert (answered["by"], answered["comment"], answered["data"]["decision"]) == ("ada", "fine", "approve")
