"""`show` answers what people ask first: what a run is, why it stopped, what it needs, and what was done."""

from __future__ import annotations

import asyncio
import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Executor,
    LatestOnly,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    admin,
    executor,
    handler,
    response_handler,
)
from stepwell.storage.lease import this_process
from tests.support.agent_runs import clerking
from tests.support.command_line import Place, Say
from tests.support.live_workers import announce
from tests.support.operating_runs import Order, asking, counting
from tests.surfaces.cli.test_following import program

STORE = ["--store", "runs.db"]
RESUME = "next: stepwell resume {} MODULE:WORKFLOW --store runs.db"


@pytest.fixture
def storage(tmp_path: Path) -> SQLiteCheckpointStorage:
    return SQLiteCheckpointStorage(tmp_path / "runs.db")


def shown(say: Say, *arguments: str) -> list[str]:
    done = say(*STORE, "show", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def section(lines: list[str], title: str) -> list[str]:
    """The lines under a title, without their indentation."""
    following = lines[lines.index(title) + 1 :]
    return [line[2:] for line in following[: following.index("") if "" in following else None]]


def data(say: Say, *arguments: str) -> Any:
    return json.loads(say(*STORE, "show", *arguments, "--json").stdout)


def ran(storage: Any, work: Any) -> None:
    async def main() -> None:
        await work
        await storage.close()

    asyncio.run(main())


def test_a_completed_run_shows_its_input_and_its_output(storage: Any, say: Say) -> None:
    ran(storage, counting(storage).run(1, run_id="count-1"))
    lines = shown(say, "count-1")
    assert lines[0].startswith("Run count-1 of counting is completed; it took ")
    assert lines[1] == "next: stepwell events count-1 --store runs.db"
    assert section(lines, "input") == ["1"]
    assert section(lines, "output") == ["- 1", "- 2", "- 3"]
    assert lines.index("input") < lines.index("output") < lines.index("state")
    found = data(say, "count-1")
    assert (found["input"], found["outputs"], found["error"]) == (1, [[1, 2, 3]], None)
    assert found["sentence"] == lines[0]
    assert found["command"] == ["stepwell", "events", "--", "count-1"]


def test_the_first_commit_shows_the_input(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["tea"]), run_id="refund-7"))
    lines = shown(say, "refund-7@0")
    assert lines[0] == "Run refund-7 of refunds as it was at commit 0 of 1 (input); desk comes next."
    assert lines[1] == "next: stepwell fork refund-7@0 --store runs.db"
    assert section(lines, "input") == ["id: 7", "lines:", "  - tea"]
    assert data(say, "refund-7@0")["input"] == {"id": 7, "lines": ["tea"]}


def test_a_fork_that_has_no_input_of_its_own_says_which_run_has_it(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["tea"]), run_id="refund-7"))
    say(*STORE, "fork", "refund-7", "--as", "fork-7")
    assert section(shown(say, "fork-7"), "input") == ["that of run refund-7, which this one was forked from"]
    document = data(say, "fork-7")
    assert (document["input"], document["input_run"]) == ({"id": 7, "lines": ["tea"]}, "refund-7")
    assert data(say, "refund-7")["input_run"] is None


def test_a_waiting_run_shows_what_is_asked_and_how_to_respond(storage: Any, say: Say) -> None:
    ran(storage, asking(storage, timedelta(hours=2)).run(Order(7, ["tea"]), run_id="refund-7"))
    lines = shown(say, "refund-7")
    assert lines[0].startswith('Run refund-7 of refunds is waiting for a response. desk asks: {"id":7,"lines":["tea"]}')
    assert "The deadline is in 1 h 59 min" in lines[0] or "The deadline is in 2 h" in lines[0]
    assert lines[1] == "next: stepwell respond refund-7 refund-7 --store runs.db"
    (request, *question) = section(lines, "1 open request")
    assert request.startswith("refund-7: from desk, ")
    assert re.search("ago, expects bool, deadline in (2 h|1 h 59 min)$", request)
    assert question == ["  id: 7", "  lines:", "    - tea"]
    assert data(say, "refund-7")["requests"]["refund-7"]["answer"] is None


def test_a_response_that_is_on_its_way_says_by_whom_and_what_applies_it(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["tea"]), run_id="refund-7"))
    say(*STORE, "respond", "refund-7", "--response", "true", "--by", "ada", "--comment", "fine")
    lines = shown(say, "refund-7")
    assert lines[0] == (
        "Run refund-7 of refunds is queued: a response by ada has arrived and is not applied yet. "
        "No live worker drives runs of refunds."
    )
    assert lines[1] == RESUME.format("refund-7")
    assert any(line.strip().startswith("answered by ada at ") for line in lines)
    answer = data(say, "refund-7")["requests"]["refund-7"]["answer"]
    assert (answer["by"], answer["comment"]) == ("ada", "fine")


def test_who_answered_is_shown_after_the_question_is_closed(storage: Any, say: Say) -> None:
    async def work() -> None:
        workflow = asking(storage)
        await workflow.run(Order(7, ["tea"]), run_id="refund-7")
        await admin.respond(storage, "refund-7", "refund-7", True, by="ada", comment="a good customer")
        await workflow.run(run_id="refund-7")

    ran(storage, work())
    answer, asked, comment = section(shown(say, "refund-7"), "answers")
    assert answer.startswith("refund-7: true by ada, ")
    assert answer.endswith(" ago")
    assert (asked, comment) == ('  asked: {"id":7,"lines":["tea"]}', "  comment: a good customer")
    (found,) = data(say, "refund-7")["answers"]
    assert (found["value"], found["by"], found["comment"]) == (True, "ada", "a good customer")


def failing(storage: Any) -> Any:
    @executor(id="deal")
    async def deal(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="good")
    async def good(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.step("look", str.upper, text)

    @executor(id="bad")
    async def bad(text: str, ctx: WorkflowContext[None, str]) -> None:
        await asyncio.sleep(0.05)
        raise ValueError("no stamps")

    builder = WorkflowBuilder(name="letters", start_executor=deal, checkpoint_storage=storage)
    return builder.add_fan_out_edges(deal, [good, bad]).build()


def test_a_failed_run_shows_the_error_with_the_frames_of_the_user_and_what_is_kept(storage: Any, say: Say) -> None:
    async def work() -> None:
        with pytest.raises(Exception, match="no stamps"):
            await failing(storage).run("letter", run_id="letter-1")

    ran(storage, work())
    lines = shown(say, "letter-1")
    assert lines[0] == (
        "Run letter-1 of letters failed in bad: ValueError: no stamps; a resume calls bad, and what good did is kept."
    )
    assert lines[1] == RESUME.format("letter-1")
    error = section(lines, "error in bad")
    assert error[0] == "ValueError: no stamps"
    assert any("test_show.py" in line for line in error)
    assert not any("engine" in line for line in error)
    assert any("engine" in line for line in section(shown(say, "letter-1", "--full"), "error in bad"))
    good, look, bad = section(lines, "superstep 2 (calls that are committed together)")
    assert good.startswith("good: finished, ")
    assert look.strip().startswith("step look, ")
    assert bad == "bad: failed"
    found = data(say, "letter-1")
    assert (found["error"]["type"], found["error"]["executor"]) == ("ValueError", "bad")
    assert "Traceback" in found["error"]["traceback"]
    assert [(branch["executor"], branch["state"]) for branch in found["branches"]] == [
        ("good", "finished"),
        ("bad", "failed"),
    ]
    assert found["branches"][0]["seconds"] >= 0


def test_a_cancelled_run_says_who_cancelled_it_and_why(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["tea"]), run_id="refund-7"))
    say(*STORE, "cancel", "refund-7", "--reason", "the customer called", "--by", "ada")
    lines = shown(say, "refund-7")
    assert lines[0].startswith("Run refund-7 of refunds was cancelled by ada (the customer called); ")
    # Whoever reads it is not told to undo the cancellation.
    assert lines[1] == "next: stepwell events refund-7 --store runs.db"


def test_a_sleeping_run_says_until_when(storage: Any, say: Say) -> None:
    @executor(id="nap")
    async def nap(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=3))

    ran(
        storage,
        WorkflowBuilder(name="naps", start_executor=nap, checkpoint_storage=storage).build().run("x", run_id="nap-1"),
    )
    lines = shown(say, "nap-1")
    assert lines[0].startswith("Run nap-1 of naps is sleeping until 20")
    assert "UTC (in 2 h 59 min" in lines[0] or "UTC (in 3 h)" in lines[0]
    assert lines[0].endswith("; nap comes next then. No live worker drives runs of naps.")
    assert section(lines, "superstep 1 (calls that are committed together)")[0].startswith("nap: sleeping, until 20")


def test_timers_are_listed_with_the_time_at_which_they_are_due(storage: Any, say: Say) -> None:
    @executor(id="alarm")
    async def alarm(text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_timer("late", timedelta(hours=5))
        ctx.set_timer("early", timedelta(hours=3))

    @alarm.timer_handler
    async def ring(name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(name)

    workflow = WorkflowBuilder(name="alarms", start_executor=alarm, checkpoint_storage=storage).build()
    ran(storage, workflow.run("x", run_id="alarm-1"))
    lines = shown(say, "alarm-1")
    assert "; timer 'early' of alarm fires next then. " in lines[0]
    first, second = section(lines, "timers")
    assert first.startswith("timer 'early' of alarm, due 20")
    assert second.startswith("timer 'late' of alarm, due 20")
    assert sorted(data(say, "alarm-1")["timers"]["alarm"]) == ["early", "late"]


def test_runs_that_nobody_or_somebody_drives_say_so(sqlite: Place, say: Say) -> None:
    async def work(storage: Any) -> None:
        for run_id in ("left-1", "driven-1"):
            async with counting(storage).run(1, run_id=run_id, stream=True) as stream:
                async for event in stream:
                    if event.type == "superstep_completed":
                        break
        await storage._store.acquire("driven-1", this_process("drive"), seconds=600)
        await counting(storage).submit(1, run_id="queued-1")

    storage = sqlite.storage
    ran(storage, work(storage))
    queued, left, driven = shown(say, "queued-1"), shown(say, "left-1"), shown(say, "driven-1")
    assert queued[0] == (
        "Run queued-1 of counting is queued: no process drives it; count comes next. "
        "No live worker drives runs of counting."
    )
    assert queued[1] == RESUME.format("queued-1")
    assert left[0].startswith(f"Run left-1 of counting is stalled: process {os.getpid()} on ")
    assert " stopped driving it, and its last commit was " in left[0]
    assert left[0].endswith(" ago; a resume calls count. No live worker drives runs of counting.")
    assert left[1] == RESUME.format("left-1")
    assert driven[0].startswith("Run driven-1 of counting is running, driven by process ")
    assert driven[0].endswith(": count is working.")
    assert driven[1] == "next: stepwell tail driven-1 --follow --store runs.db"


def test_a_request_is_shown_while_other_branches_still_work(storage: Any, say: Say) -> None:
    class Asks(Executor):
        @handler
        async def ask(self, text: str, ctx: WorkflowContext) -> None:
            await ctx.request_info("Ship it?", bool, request_id="ship")

        @response_handler
        async def decided(self, original_request: str, response: bool, ctx: WorkflowContext) -> None:
            """Nothing comes of it."""

    @executor(id="deal")
    async def deal(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="slow")
    async def slow(text: str, ctx: WorkflowContext) -> None:
        await asyncio.to_thread(looked.append, await asyncio.to_thread(wait_for_question))

    def wait_for_question() -> list[str]:
        for _ in range(500):
            lines = shown(say, "deal-1")
            if "1 open request" in lines:
                break
        return lines

    looked: list[list[str]] = []
    builder = WorkflowBuilder(name="dealing", start_executor=deal, checkpoint_storage=storage)
    ran(storage, builder.add_fan_out_edges(deal, [Asks("asks"), slow]).build().run("x", run_id="deal-1"))
    state, _, wait = looked[0][0].partition(". Meanwhile ")
    assert state.endswith(": asks is finished; slow is working")
    assert wait == "it is waiting for a response. asks asks: Ship it?"
    assert section(looked[0], "1 open request")[1] == "  Ship it?"


def test_a_turn_of_an_agent_is_listed_as_its_calls(storage: Any, say: Say) -> None:
    ran(storage, clerking(storage).run("order 7 is broken", run_id="clerk-1"))
    lines = shown(say, "clerk-1")
    assert lines[0].endswith("clerk asks: May clerk call refund(order=7, amount=900)?")
    first, *calls, asked = section(lines, "calls")
    assert first.startswith("clerk (commit 1), ")
    assert asked == "  asked: May clerk call refund(order=7, amount=900)? → no answer yet"
    assert [call.strip().partition(",")[0].partition(" {")[0] for call in calls] == [
        "model 1",
        "tool look_up",
        "model 2",
    ]
    assert calls[0].startswith("  model 1, 4 tokens in, 3 out, cost 0.007, ")
    # What its executor needs to continue the turn is shown only with everything else.
    assert not any("OpenTurn" in line or "AgentProgress" in line for line in lines)
    assert any("OpenTurn" in line for line in shown(say, "clerk-1", "--full"))
    assert section(lines, "state")[-2:] == ["agents/clerk/conversation:", "  - user: order 7 is broken"]
    assert [call["kind"] for call in data(say, "clerk-1")["calls"]] == ["model", "tool", "model"]
    assert '"$"' not in json.dumps(data(say, "clerk-1"))


def test_a_tool_that_has_not_returned_is_named_with_its_arguments(storage: Any, say: Say) -> None:
    def down(order: int) -> str:
        raise ConnectionError("the order system is down")

    async def work() -> None:
        with pytest.raises(Exception, match="is down"):
            await clerking(storage, tools={"look_up": down}).run("order 7 is broken", run_id="clerk-1")

    ran(storage, work())
    clerk, model, tool = section(shown(say, "clerk-1"), "superstep 1 (calls that are committed together)")
    assert clerk == "clerk: failed"
    assert model.startswith("  model 1, 4 tokens in, 3 out, cost 0.007")
    assert tool == '  tool look_up {"order": 7} → no result'
    calls = data(say, "clerk-1")["branches"][0]["calls"]
    assert [(call["kind"], call.get("has_result", True)) for call in calls] == [("model", True), ("tool", False)]


def test_the_run_of_a_sub_workflow_points_to_its_caller(storage: Any, say: Say) -> None:
    inner = WorkflowExecutor(asking(None), id="inner", allow_direct_output=True)
    outer = WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage).build()
    ran(storage, outer.run(Order(7, ["tea"]), run_id="outer-1"))
    (child,) = data(say, "outer-1")["children"].values()
    lines = shown(say, child["run_id"])
    assert " is waiting for a response. desk asks: " in lines[0]
    assert lines[1] == "next: stepwell show outer-1 --store runs.db"


def test_a_run_that_keeps_its_latest_checkpoint_only_shows_what_is_left(tmp_path: Path, say: Say) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db", retention=LatestOnly)
    ran(storage, counting(storage).run(1, run_id="count-1"))
    lines = shown(say, "count-1")
    assert lines[0].startswith("Run count-1 of counting is completed; it took ")
    assert "input" not in lines
    assert section(lines, "output") == ["- 1", "- 2", "- 3"]


@pytest.mark.process
def test_list_and_tail_say_until_when_a_run_sleeps_and_that_nobody_drives_one(sqlite: Place, say: Say) -> None:
    @executor(id="nap")
    async def nap(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=3))

    async def work(storage: Any) -> None:
        naps = WorkflowBuilder(name="naps", start_executor=nap, checkpoint_storage=storage).build()
        await naps.run("x", run_id="nap-1")
        await counting(storage).submit(1, run_id="queued-1")
        async with counting(storage).run(1, run_id="left-1", stream=True) as stream:
            async for event in stream:
                if event.type == "superstep_completed":
                    break

    ran(sqlite.storage, work(sqlite.storage))
    listed = say(*STORE, "list").stdout.splitlines()
    (napping,) = [line for line in listed if line.startswith("nap-1")]
    assert re.search(r"sleeping until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC ", napping)
    assert re.search(r"UTC  +\d+ s ago", napping)
    for run_id, note in (
        ("nap-1", "run 'nap-1' is sleeping: until 20"),
        ("queued-1", "run 'queued-1' is queued: no process drives it; `stepwell show queued-1` says how"),
        ("left-1", f"run 'left-1' is stalled: process {os.getpid()} on "),
    ):
        with program(*STORE, "tail", run_id, "--follow") as follower:
            assert follower.stderr is not None
            assert follower.stderr.readline().startswith(note)


def test_people_hear_which_worker_moves_a_run(storage: Any, say: Say) -> None:
    async def work() -> None:
        await asking(storage).run(Order(7, ["tea"]), run_id="refund-7")
        await announce(storage, "one", "refunds")

    ran(storage, work())
    answered = say(*STORE, "respond", "refund-7", "--response", "true")
    assert answered.stderr == "worker one applies it\n"
    assert shown(say, "refund-7")[:2] == [
        "Run refund-7 of refunds is queued: a response has arrived and is not applied yet. Worker one takes it.",
        "next: nothing to do",
    ]
    assert say(*STORE, "fork", "refund-7@0", "--as", "refund-8").stderr == "worker one takes it\n"
    again = say(*STORE, "respond", "refund-7", "--response", "true")
    assert "hint: stepwell show refund-7 --store runs.db says what applies it" in again.stderr
