"""Runs that move while somebody looks, interrupts, kills or cancels: real processes and a real terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell import WorkflowEvent, WorkflowRunState
from stepwell.admin.run_events import TimedEvent
from stepwell.agents.messages import AgentResponseUpdate
from stepwell.cli.views.events import format_event
from stepwell.cli.views.live_view_state import Scene
from stepwell.model.payload import pack_copy
from stepwell.model.request import Request
from stepwell.model.timing import CallSummary, CallTime, HandlerReturn, StepRecord
from tests.support.command_line import Say
from tests.support.driven_runs import DONE, GATE, REACHED
from tests.support.launching import heeding_interrupts
from tests.support.terminal import Terminal

pytestmark = pytest.mark.process

STORE = "sqlite:///runs.db"
COUNTING = "tests.support.driven_runs:counting"
ROOT = str(Path(__file__).parents[3])
BEGIN = ["--store", STORE, "run", COUNTING, "--input", "1", "--run-id", "c-1"]
AT = "2026-11-16T10:00:00+00:00"
RESUME = ["--store", STORE, "resume", "c-1", COUNTING]


@pytest.fixture(autouse=True)
def _code_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command line in a process of its own, which does not outlive the test."""
    command = heeding_interrupts([sys.executable, "-m", "stepwell.cli", *arguments])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def driven(*more: str) -> Iterator[subprocess.Popen[str]]:
    """A process that drives a run and stays inside its third superstep."""
    Path(GATE).touch()
    with program(*BEGIN, *more) as process:
        until(Path(REACHED).exists)
        yield process


def until(there: object) -> None:
    assert callable(there)
    limit = time.monotonic() + 60
    while not there():
        assert time.monotonic() < limit, "it hangs"
        time.sleep(0.01)


def finished(say: Say) -> None:
    """The run goes on, and nothing that was done is done again."""
    Path(GATE).unlink()
    done = say(*RESUME)
    assert (done.exit_code, done.stdout) == (0, "counted\nto 5\n"), done.stderr
    assert Path(DONE).read_text() == "1\n2\n3\n4\n5\n"


def test_a_run_that_is_killed_is_resumed_and_nothing_is_repeated(say: Say) -> None:
    with driven() as process:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    finished(say)


def test_an_interrupt_leaves_the_run_and_says_how_it_goes_on(say: Say) -> None:
    with driven("--follow", "--json") as process:
        process.send_signal(signal.SIGINT)
        told, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines() == [
        "stepwell: interrupted; run 'c-1' is stored up to its last commit [SW514]",
        f"hint: stepwell resume c-1 {COUNTING} --store {STORE}",
    ]
    assert [json.loads(line)["run_id"] for line in told.splitlines()][-1] == "c-1"
    finished(say)


def test_a_run_that_is_driven_is_left_to_its_driver_until_it_is_cancelled(say: Say) -> None:
    with driven() as process:
        busy = say(*RESUME)
        assert busy.exit_code == 1
        assert f"is being driven by process {process.pid} on " in busy.stderr
        assert busy.stderr.splitlines()[-1] == f"hint: stepwell tail c-1 --follow --store {STORE}"
        told = say("--store", STORE, "cancel", "c-1", "--json")
        assert (told.exit_code, json.loads(told.stdout)["status"]) == (0, "cancelled")
        assert told.stderr.startswith(f"process {process.pid} on ")
        _, said = process.communicate(timeout=30)
        assert process.returncode == 1
        assert said.startswith("stepwell: run 'c-1' was cancelled [SW513]\n")
    finished(say)


def test_a_run_is_watched_from_another_process_until_it_rests(say: Say) -> None:
    with driven(), program("--store", STORE, "tail", "c-1", "--follow", "--json", "-n", "1") as watcher:
        assert watcher.stdout is not None
        last = json.loads(watcher.stdout.readline())
        assert (last["type"], last["commit"]) == ("superstep_completed", 2)
        assert say("--store", STORE, "cancel", "c-1").exit_code == 0
        rest, said = watcher.communicate(timeout=30)
    assert (watcher.returncode, said.splitlines()[-1]) == (1, "run 'c-1' is cancelled")
    assert [(one["commit"], one["type"], one["state"]) for one in map(json.loads, rest.splitlines())] == [
        (3, "status", "cancelled")
    ]


def test_a_reader_who_leaves_ends_it_quietly() -> None:
    program = " ".join([sys.executable, "-m", "stepwell.cli", *BEGIN, "--follow", "--json"])
    done = subprocess.run(
        ["bash", "-c", f"{program} | head -1"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["type"] == "started"
    assert done.stderr == ""


def test_a_terminal_shows_a_picture_and_then_the_outputs() -> None:
    with Terminal(*BEGIN, "--follow", NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        lines = [line.rstrip() for line in terminal.seen.splitlines()]
        assert not re.search(r"\x1b\[3\dm", terminal.shown)
    *_, heading, executor, last, first_output, second_output = lines
    assert re.fullmatch(r"c-1  counting  completed  superstep 5  \d+\.\d s", heading)
    assert re.fullmatch(r"  count +completed +5 calls +\d+\.\d s", executor)
    assert last == "  status  completed"
    assert [first_output, second_output] == ["counted", "to 5"]


def test_a_terminal_that_cannot_draw_gets_lines() -> None:
    with Terminal(*BEGIN, "--follow", TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.shown
        assert re.search(r"executor_completed  executor=count  [\d.]+ ms  \[2\]", terminal.seen)


def test_a_picture_is_left_as_it_was_when_somebody_interrupts() -> None:
    Path(GATE).touch()
    with Terminal(*BEGIN, "--follow") as terminal:
        terminal.answer("executor_invoked  executor=count  3", "\x03")
        assert terminal.end() == 130
        *_, heading, executor, _, said, _ = terminal.seen.splitlines()
    assert heading.startswith("c-1  counting  interrupted  superstep 3  ")
    assert re.match(r"  count +stopped +2 calls ", executor)
    assert said == "stepwell: interrupted; run 'c-1' is stored up to its last commit [SW514]"
    with Terminal("--store", STORE, "tail", "c-1", "-n", "2", "--follow") as terminal:  # nobody drives it
        terminal.answer("superstep_completed  iteration=2", "\x03")
        assert terminal.end() == 130
        assert "   2  20" in terminal.seen
        assert re.search(r"c-1  counting  stalled  superstep 2  .*\n  count +next +2 calls ", terminal.seen)


def test_tail_tells_the_last_and_only_follows_if_told(say: Say) -> None:
    assert say(*BEGIN).exit_code == 0
    every = say("--store", STORE, "events", "c-1").stdout.splitlines()
    for count in (0, 1, 3, len(every), len(every) + 7):
        told = say("--store", STORE, "tail", "c-1", "-n", str(count))
        assert (told.exit_code, told.stdout.splitlines()) == (
            0,
            every[len(every) - count :] if count < len(every) else every,
        )
    assert say("--store", STORE, "tail", "c-1", "--follow").exit_code == 0
    assert say("--store", STORE, "tail", "c-1", "--wait").exit_code == 2


# ------------------------------------------------------------------------------------------------- what is drawn


def heard(type: str, executor: str | None = None, **known: object) -> TimedEvent:
    if type == "request_info":
        known["request"] = Request(
            "q", executor or "", pack_copy(None, "$"), "None", "bool", "{}", "2026-11-16T10:00:00+00:00"
        )
    return TimedEvent(WorkflowEvent(type, executor_id=executor, run_id="r", **known), "2026-11-16T10:00:00+00:00")  # type: ignore[arg-type]


def drawn(scene: Scene, now: float, room: int = 10) -> list[tuple[str, ...]]:
    return [row[:4] for row in scene.rows(now, room)]


def test_each_executor_has_a_row_that_says_what_it_does() -> None:
    scene = Scene("r", "w", ["a", "b", "c", "d"], began=100.0)
    assert drawn(scene, 100.0) == [(name, "-", "", "") for name in "abcd"]
    scene.apply(heard("superstep_started", iteration=1), 100.0)
    scene.apply(heard("executor_invoked", "a"), 101.0)
    scene.apply(heard("executor_invoked", "b"), 101.0)
    scene.apply(heard("executor_retrying", "b"), 102.0)
    assert drawn(scene, 103.5)[:2] == [("a", "running", "", "2.5 s"), ("b", "retrying", "", "2.5 s")]
    scene.apply(heard("request_info", "a", commit=1), 104.0)
    scene.apply(heard("executor_completed", "a", commit=1), 104.0)
    scene.apply(heard("executor_failed", "b", commit=1), 104.0)
    scene.apply(heard("executor_invoked", "inner", path=("c",)), 104.0)
    assert drawn(scene, 170.0) == [
        ("a", "waiting", "1 call", "3.0 s"),
        ("b", "failed", "1 call", "3.0 s"),
        ("c", "-", "", ""),
        ("c/inner", "running", "", "1:06"),
        ("d", "-", "", ""),
    ]
    scene.apply(heard("executor_completed", "a", commit=2), 171.0)  # the answer came
    scene.apply(heard("status", state=WorkflowRunState.FAILED, commit=2), 171.0)
    scene.end("failed", 172.0)
    assert [row[:3] for row in drawn(scene, 300.0)][0::3] == [("a", "completed", "2 calls"), ("c/inner", "stopped", "")]
    assert scene.heading(300.0) == "r  w  failed  superstep 1  1:12"


def test_a_branch_that_has_finished_is_shown_as_finished_when_the_others_are_stopped() -> None:
    scene = Scene("r", "w", ["a", "b", "c"], began=100.0)
    for name in ("a", "b"):
        scene.apply(heard("executor_invoked", name), 101.0)
    model = StepRecord("model 1", summary=CallSummary(3, 4))
    scene.apply(heard("executor_returned", "a", data=HandlerReturn((), (), (), (model,))), 103.0)
    scene.apply(heard("executor_bypassed", "c"), 103.0)
    scene.end("interrupted", 104.0)
    assert [row[:2] for row in scene.rows(105.0, 10)] == [("a", "finished"), ("b", "stopped"), ("c", "finished")]
    assert next(iter(scene.rows(105.0, 10)))[3:] == ("2.0 s", "1 model call, 7 tokens")


def test_the_row_of_an_agent_says_which_call_it_makes() -> None:
    scene = Scene("r", "w", ["clerk"], began=100.0)
    seen = []
    for type, data in (
        ("executor_invoked", None),
        ("update", AgentResponseUpdate("He", call=1)),
        ("update", AgentResponseUpdate(call=1, kind="tool_called", tool="refund")),
        ("update", AgentResponseUpdate(call=1, kind="tool_returned", tool="refund")),
        ("update", AgentResponseUpdate("Done", call=2)),
    ):
        scene.apply(heard(type, "clerk", data=data), 101.0)
        seen.append(next(iter(scene.rows(101.0, 10)))[4])
    assert seen == ["", "model 1", "tool refund", "", "model 2"]
    steps = (StepRecord("model 1", summary=CallSummary(3, 4)), StepRecord("tool 1/c refund", summary=CallSummary()))
    time = CallTime("2026-11-16T10:00:00+00:00", 2_500_000)
    scene.apply(heard("executor_completed", "clerk", commit=1, steps=steps, time=time), 109.0)
    assert next(iter(scene.rows(110.0, 10))) == (
        "clerk",
        "completed",
        "1 call",
        "2.5 s",
        "1 model call, 1 tool call, 7 tokens",
    )


def test_what_a_handler_did_is_told_before_its_superstep_is_committed() -> None:
    model = StepRecord("model 1", summary=CallSummary(3, 4))
    told = heard("executor_returned", "a", data=HandlerReturn(("str",), (), (), (model,)))
    assert told.to_dict()["data"] == {"sent": ["str"]}
    assert [call["kind"] for call in told.to_dict()["calls"]] == ["model"]
    assert list(format_event(told))[1].strip() == "model 1, 3 tokens in, 4 out"


def test_where_there_is_no_room_those_who_do_something_are_shown() -> None:
    scene = Scene("r", "w", [f"e{n}" for n in range(100)], began=0.0)
    scene.apply(heard("executor_invoked", "e70"), 1.0)
    scene.expect(["e90"])
    assert [row[0] for row in drawn(scene, 2.0, room=4)] == ["e0", "e70", "e90", "... and 97 others"]


def test_what_is_drawn_obeys_nothing_that_was_stored() -> None:
    scene = Scene("r\x1b[2J", "w", ["\x1b]0;owned\x07"], began=0.0)
    scene.apply(heard("warning", data="\x1b[31mred"), 1.0)
    texts = [scene.heading(1.0), scene.last, *(cell for row in drawn(scene, 1.0) for cell in row)]
    assert not [text for text in texts if "\x1b" in text or "\x07" in text]


def test_live_data_of_any_kind_can_be_told() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "odd"

    told = heard("data", "a", data={1: Odd(), "when": os}).to_dict()
    assert told["data"]["1"] == "odd"
