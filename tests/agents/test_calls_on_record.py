"""What an agent's calls came to stays in the history, in a few bytes for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell import InMemoryCheckpointStorage
from stepwell.admin.calls import HandlerCall, calls_of, summarise_calls
from stepwell.admin.transfer.redaction import Redaction
from stepwell.agents import AgentExecutor
from stepwell.agents.call_summaries import summarise_tool
from stepwell.agents.scripted import Calls, ScriptedAgent
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.timing import CallSummary, CallTime, StepRecord
from stepwell.storage.wire.format import read_commit
from stepwell.workflows.builder import WorkflowBuilder
from tests.support.agent_runs import clerking


async def calls_in(storage: Any, run_id: str) -> list[list[HandlerCall]]:
    commits = [read_commit(record, DEFAULT_CODEC)[0] for record in await storage._store.history(run_id)]
    return [calls_of(done.steps) for commit in commits for done in commit.done]


async def test_a_turn_is_on_record_as_its_model_and_tool_calls() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = clerking(storage)
    waiting = await workflow.run("order 7 is broken", run_id="r")
    (request,) = waiting.get_request_info_events()
    await workflow.run(run_id="r", responses={request.request_id: request.data.approve()})
    before, after = await calls_in(storage, "r")
    assert [(call.kind, call.name) for call in before] == [("model", "1"), ("tool", "look_up"), ("model", "2")]
    assert [(call.kind, call.name) for call in after] == [("tool", "refund"), ("model", "3")]
    model, looked, _ = before
    assert (model.summary.input_tokens, model.summary.output_tokens, model.summary.cost) == (4, 3, "0.007")
    assert looked.summary.arguments == '{"order": 7}'
    assert looked.summary.result.startswith('{"order": 7, "price": 900')
    assert after[0].summary.result == "refunded 900"
    assert all(call.time is not None and not call.recalled for call in (*before, *after))
    # However much a tool returns, the record grows by little.
    (first, *_) = [done for commit in await _commits(storage) for done in commit["done"]]
    assert len(json.dumps(first["steps"][1]["summary"])) < 300


async def _commits(storage: Any) -> list[Any]:
    return [json.loads(record.body) for record in await storage._store.history("r") if b'"done"' in record.body]


async def test_a_call_that_a_crash_did_not_lose_is_marked_as_recalled() -> None:
    failing = [OSError("the line is cut")]

    def flaky(order: int) -> str:
        if failing:
            raise failing.pop()
        return "found"

    agent = ScriptedAgent("clerk", [Calls(("flaky", {"order": 7})), "done"], tools={"flaky": flaky})
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=AgentExecutor(agent), checkpoint_storage=storage).build()
    with pytest.raises(Exception, match="the line is cut"):
        await workflow.run("hello", run_id="r")
    await workflow.run(run_id="r")
    (calls,) = await calls_in(storage, "r")
    assert [(call.kind, call.recalled) for call in calls] == [("model", True), ("tool", False), ("model", False)]


async def test_an_unsafe_tool_is_one_call() -> None:
    agent = ScriptedAgent("clerk", [Calls(("pay", {})), "done"], tools={"pay": lambda: None})
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=AgentExecutor(agent, unsafe=["pay"]), checkpoint_storage=storage).build()
    await workflow.run("hello", run_id="r")
    (calls,) = await calls_in(storage, "r")
    assert [call.kind for call in calls] == ["model", "tool", "model"]


def test_a_result_that_is_no_valid_unicode_can_be_recorded() -> None:
    summary = summarise_tool({"name": "\ud800"}, "\udfff", None)
    assert (summary.arguments.isascii(), summary.result) == (True, "\\udfff")
    assert summarise_tool({}, object(), None).result.startswith('"<object object')
    assert summarise_tool({}, "ignored", "no such order") == CallSummary(error="no such order")


def test_arguments_are_recorded_whole_and_results_only_begin() -> None:
    summary = summarise_tool({"text": "é" * 1000}, "y" * 1000, None)
    assert json.loads(summary.arguments) == {"text": "é" * 1000}
    assert summary.result == "y" * 120 + "…"
    (call,) = calls_of([StepRecord("tool 1/call-0 write", summary=summary)])
    assert len(call.describe()) < 300
    assert call.to_dict()["arguments"] == summary.arguments


def test_a_call_reads_as_one_line() -> None:
    time = CallTime("2026-11-16T10:00:00+00:00", 1_200_000)
    model = StepRecord("model 1", time, summary=CallSummary(812, 35, "0.0123"))
    refunded = CallSummary(arguments='{"a": 1}', result="ok")
    tool = StepRecord("+tool 1/call-0 refund", time, 2, recalled=True, summary=refunded)
    failed = StepRecord("tool 1/call-0 refund", summary=CallSummary(error="no such order"))
    own = StepRecord("model 1")  # a user's step may have any name
    assert [call.describe() for call in calls_of([model, tool, failed, own])] == [
        "model 1, 812 tokens in, 35 out, cost 0.0123, 1.2 s",
        'tool refund {"a": 1} → ok, attempt 2, 1.2 s, recalled',
        "tool refund → error: no such order",
        "step model 1",
    ]
    assert summarise_calls([model, model, tool, own]) == "2 model calls, 1 step, 1 tool call, 1,694 tokens"
    assert calls_of([model])[0].to_dict() == {
        "kind": "model",
        "name": "1",
        "attempts": 1,
        "recalled": False,
        "began": time.began,
        "seconds": 1.2,
        "input_tokens": 812,
        "output_tokens": 35,
        "cost": 0.0123,
    }


@pytest.mark.parametrize("path", ["steps", "steps.arguments", "*"])
def test_what_calls_came_to_goes_with_the_results_of_steps(path: str) -> None:
    record = {"name": "tool 1/c refund", "summary": {"result": "the secret"}}
    commit = {"done": [{"delivery": "0.0", "executor": "clerk", "steps": [dict(record)]}]}
    redaction = Redaction([path])
    assert redaction.redact_commit(commit)["done"][0]["steps"] == [{"name": "tool 1/c refund"}]
    outcome = {"delivery": "0.0", "executor": "clerk", "steps": [dict(record)]}
    assert redaction.redact_outcome(outcome)["steps"] == [{"name": "tool 1/c refund"}]
    assert redaction.unused == []
    kept = {"delivery": "0.0", "executor": "clerk", "steps": [dict(record)]}
    assert Redaction(["state.x"]).redact_outcome(kept)["steps"] == [record]
