"""A durable function on the command line: begun, shown, answered, resumed, forked, compared, checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
