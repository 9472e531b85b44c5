"""Somebody who knows only the command line finds out what happened to a run and what to do, in two commands.

The first command is `show`; the second is the one that it suggests.
"""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest

from stepwell.cli.app import COMMANDS
from tests.support.command_line import Say
from tests.support.driven_runs import GATE, REACHED, READY
from tests.support.terminal import Terminal
from tests.surfaces.cli.test_following import ROOT, program, until

pytestmark = pytest.mark.process

STORE = ["--store", "runs.db"]
DEALING, CLERKS = "tests.support.driven_runs:dealing", "tests.support.driven_runs:clerks"
ORDERS = "tests.support.driven_runs:orders"


@pytest.fixture(autouse=True)
def _code_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)


def look(say: Say, run_id: str) -> tuple[list[str], list[str]]:
    """What `show` prints, and the command that it suggests, which can be copied as it is."""
    done = say(*STORE, "show", run_id)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    prompt, *words = shlex.split(lines[1])
    assert (prompt, words[0]) == ("next:", "stepwell")
    assert words[1] in COMMANDS
    return lines, words[1:]


def test_a_run_that_crashed(say: Say) -> None:
    Path(GATE).touch()
    with program(*STORE, "run", DEALING, "--input", "cards", "--run-id", "deal-1") as process:
        until(Path(REACHED).exists)
        until(lambda: "quick: finished" in say(*STORE, "show", "deal-1").stdout)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    lines, command = look(say, "deal-1")
    assert f"is stalled: process {process.pid} on " in lines[0]
    assert lines[0].endswith(
        "; a resume calls slow, and what quick did is kept. No live worker drives runs of dealing."
    )
    assert command[:3] == ["resume", "deal-1", DEALING]
    quick, step, slow = lines[lines.index("superstep 2 (calls that are committed together)") + 1 :][:3]
    assert quick.startswith("  quick: finished, ")
    assert step.startswith("    step look, ")
    assert slow == "  slow: next"
    Path(GATE).unlink()
    done = say(*command)
    assert (done.exit_code, done.stdout) == (0, "quick cards\nslow cards\n"), done.stderr


def test_a_run_that_waits(say: Say) -> None:
    order = '{"item": "samovar", "price": 900}'
    assert say(*STORE, "run", ORDERS, "--input", order, "--run-id", "order-1").exit_code == 4
    lines, command = look(say, "order-1")
    assert lines[0] == ('Run order-1 of orders is waiting for a response. desk asks: {"item":"samovar","price":900}')
    assert say(*command, "--response", "true", "--by", "ada").exit_code == 0
    lines, command = look(say, "order-1")
    assert "a response by ada has arrived and is not applied yet" in lines[0]
    assert say(*command).exit_code == 0


def test_a_run_that_failed_in_a_tool(say: Say) -> None:
    assert say(*STORE, "run", CLERKS, "--input", "what is order 7?", "--run-id", "clerk-1").exit_code == 1
    lines, command = look(say, "clerk-1")
    assert lines[0] == (
        "Run clerk-1 of clerks failed in clerk: ConnectionError: the order system is down; a resume calls clerk."
    )
    assert '    tool look_up {"order": 7} → no result' in lines
    assert any('raise ConnectionError("the order system is down")' in line for line in lines)
    Path(READY).touch()
    done = say(*command)
    assert (done.exit_code, done.stdout) == (0, "it costs 900\n"), done.stderr
    shown = say(*STORE, "show", "clerk-1").stdout
    assert ", recalled" in shown  # the first model call was not made again


def test_a_run_with_a_slow_branch(say: Say) -> None:
    Path(GATE).touch()
    with program(*STORE, "run", DEALING, "--input", "cards", "--run-id", "deal-1") as process:
        until(Path(REACHED).exists)
        until(lambda: "quick: finished" in say(*STORE, "show", "deal-1").stdout)
        lines, command = look(say, "deal-1")
        assert f"is running, driven by process {process.pid} on " in lines[0]
        assert lines[0].endswith(": quick is finished; slow is working.")
        assert any(re.fullmatch(r"  slow: working, \d.* since the last commit", line) for line in lines)
        assert not any(line.startswith("not called") for line in lines)
        with program(*command) as watcher:
            Path(GATE).unlink()
            told, _ = watcher.communicate(timeout=60)
        assert watcher.returncode == 0
        assert "executor_completed  executor=slow" in told
        assert process.wait(timeout=60) == 0


def test_an_agent_over_its_budget(say: Say) -> None:
    Path(READY).touch()
    Path("poor").touch()
    assert say(*STORE, "run", CLERKS, "--input", "what is order 7?", "--run-id", "clerk-1").exit_code == 4
    lines, command = look(say, "clerk-1")
    assert lines[0] == (
        "Run clerk-1 of clerks is waiting for a response. clerk asks: clerk has stopped: clerk has spent 1 of 1 calls. "
        "What is the new limit?"
    )
    assert command[0] == "respond"
    assert say(*command, "--response", '{"limit": 5}').exit_code == 0
    _, command = look(say, "clerk-1")
    done = say(*command)
    assert (done.exit_code, done.stdout) == (0, "it costs 900\n"), done.stderr


def test_after_an_interrupt_the_branches_that_had_finished_are_shown_as_finished(say: Say) -> None:
    Path(GATE).touch()
    with Terminal(*STORE, "run", DEALING, "--input", "cards", "--run-id", "deal-1", "--follow") as terminal:
        terminal.answer('{"outputs":["str"]}', "\x03")
        assert terminal.end() == 130
        drawn = terminal.seen.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in drawn if line.startswith("  ") and len(line.split()) > 1}
    assert rows["quick"][0] == "finished"
    assert rows["slow"][0] == "stopped"
    lines, _ = look(say, "deal-1")
    assert re.match(r"Run deal-1 of dealing is stalled: process \d+ on \S+ stopped driving it, and its last", lines[0])
    assert lines[0].endswith(
        "; a resume calls slow, and what quick did is kept. No live worker drives runs of dealing."
    )
