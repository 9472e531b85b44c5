"""A durable function on the command line: begun, shown, answered, resumed, forked, compared, checked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepwell import SQLiteCheckpointStorage
from stepwell.admin import report_run
from tests.support.command_line import Say

STORE = ("--store", "sqlite:///runs.db")
CODE = """
from stepwell import RunContext, step, workflow

@step
async def lookup(customer: str) -> str:
    with open("calls", "a") as calls:
        calls.write(f"{customer}\\n")
    return customer.title()

@workflow
async def refund(customer: str, ctx: RunContext) -> str:
    name = await lookup(customer)
    ctx.set_state("answer", await ctx.ask(f"Refund {name}?", str))
    return f"{name}: {ctx.get_state('answer')}"

@workflow(name="refund")
async def changed(customer: str, ctx: RunContext) -> str:
    return await ctx.ask("What?", str)
"""


@pytest.fixture(autouse=True)
def _code(tmp_path: Path) -> None:
    (tmp_path / "function_code.py").write_text(CODE)


def begin(say: Say, run_id: str) -> None:
    begun = say("run", "function_code:refund", *STORE, "--input", "ada", "--run-id", run_id)
    assert begun.exit_code == 4, begun.output  # it waits


def answer(say: Say, run_id: str, response: str) -> str:
    answered = say("respond", run_id, *STORE, "--response", json.dumps(response))
    assert answered.exit_code == 0, answered.output
    resumed = say("resume", run_id, "function_code:refund", *STORE)
    assert resumed.exit_code == 0, resumed.output
    return resumed.stdout


def test_it_is_begun_shown_answered_and_resumed(say: Say, tmp_path: Path) -> None:
    begin(say, "r-1")
    shown = say("show", "r-1", *STORE)
    assert shown.exit_code == 0
    assert "Refund Ada?" in shown.stdout
    assert "Ada: yes" in answer(say, "r-1", "yes")
    assert (tmp_path / "calls").read_text() == "ada\n"
    assert "lookup" in say("show", "r-1", *STORE).stdout


def test_it_is_checked_before_a_deploy(say: Say) -> None:
    begin(say, "r-1")
    assert say("check", "function_code:refund", *STORE).exit_code == 0
    checked = say("check", "function_code:changed", *STORE)
    assert checked.exit_code == 5
    assert "r-1" in checked.stdout


def test_it_is_forked_and_the_runs_are_compared(say: Say) -> None:
    begin(say, "r-1")
    forked = say("fork", "r-1", *STORE)
    assert forked.exit_code == 0, forked.output
    copy = forked.stdout.split()[-1]
    answer(say, "r-1", "yes")
    say("resume", copy, "function_code:refund", *STORE)
    answer(say, copy, "no")
    compared = say("diff", "r-1", copy, *STORE)
    assert compared.exit_code == 0, compared.output
    assert '"yes"' in compared.stdout
    assert '"no"' in compared.stdout


def test_what_it_asks_and_did_is_listed_and_followed(say: Say) -> None:
    begin(say, "r-1")
    assert "Refund Ada?" in say("requests", *STORE).stdout
    assert "waiting" in say("list", *STORE).stdout
    followed = say("tail", "r-1", *STORE)
    assert followed.exit_code == 0, followed.output
    assert "Refund Ada?" in followed.stdout
    answer(say, "r-1", "yes")
    events = say("events", "r-1", *STORE)
    assert events.exit_code == 0, events.output
    assert "completed" in say("list", *STORE).stdout
    assert "refund" in events.stdout


def test_it_is_cancelled_retried_and_moved_back(say: Say, tmp_path: Path) -> None:
    begin(say, "r-1")
    cancelled = say("cancel", "r-1", *STORE)
    assert cancelled.exit_code == 0, cancelled.output
    assert "cancelled" in say("list", *STORE).stdout
    # What it did is kept; what it asked is asked again.
    assert say("resume", "r-1", "function_code:refund", *STORE).exit_code == 4
    assert "Ada: yes" in answer(say, "r-1", "yes")
    assert (tmp_path / "calls").read_text() == "ada\n"
    restored = say("restore", "r-1@0", *STORE)
    assert restored.exit_code == 0, restored.output
    assert say("resume", "r-1", "function_code:refund", *STORE).exit_code == 4
    # It starts anew.
    assert (tmp_path / "calls").read_text() == "ada\nada\n"


async def test_a_report_says_what_it_asked_and_which_steps_it_made(say: Say, tmp_path: Path) -> None:
    await asyncio.to_thread(begin, say, "r-1")
    await asyncio.to_thread(answer, say, "r-1", "yes")
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    page = await report_run(storage, "r-1")
    await storage.close()
    for part in ("Refund Ada?", "lookup", "Ada: yes"):
        assert part in page


@pytest.mark.process
def test_a_worker_of_the_command_line_drives_it(say: Say, tmp_path: Path) -> None:
    arguments = ("worker", "function_code:refund", *STORE, "--name", "w-1")
    working = subprocess.Popen([sys.executable, "-m", "stepwell.cli", *arguments], cwd=tmp_path)
    try:
        submitted = say("submit", "function_code:refund", *STORE, "--input", "ada", "--run-id", "r-1")
        assert submitted.exit_code == 0, submitted.output
        _wait_until(say, "waiting")
        assert say("respond", "r-1", *STORE, "--response", '"yes"').exit_code == 0
        _wait_until(say, "completed")
    finally:
        working.terminate()
        working.wait(30)
    assert (tmp_path / "calls").read_text() == "ada\n"


def _wait_until(say: Say, standing: str) -> None:
    give_up = time.monotonic() + 30
    while standing not in (listed := say("list", *STORE).stdout):
        assert time.monotonic() < give_up, listed
        time.sleep(0.1)
