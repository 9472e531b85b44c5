"""`stepwell check`: what becomes of stored runs, and the code it ends with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from stepwell import Migration, WorkflowBuilder
from stepwell.admin import report_run
from tests.support.command_line import Place, Say
from tests.support.operating_runs import Desk

CODE = """
from stepwell import Migration, WorkflowBuilder
from tests.support.operating_runs import Desk, asking

same = asking(None)

def renamed(*migrations):
    return WorkflowBuilder(name="refunds", start_executor=Desk("counter"), migrations=migrations).build()

def migrating():
    return renamed(Migration(2).rename_executor("desk", "counter"))

def broken():
    step = Migration(2).rename_executor("desk", "counter").change_state("order", lambda order: order["none"])
    return renamed(step)

other = WorkflowBuilder(name="nobody's", start_executor=Desk("desk")).build()
"""


@pytest.fixture(autouse=True)
def _code(tmp_path: Path) -> None:
    (tmp_path / "checked_code.py").write_text(CODE)


def test_each_kind_of_store_is_checked_and_the_code_says_what_came_of_it(place: Place, say: Say) -> None:
    place.fill()
    fine = say("check", "checked_code:same", "--store", place.address)
    assert (fine.exit_code, fine.stdout.split()[4:7]) == (0, ["refund-7", "waiting", "compatible"])
    stranded = say("check", "checked_code:renamed", "--store", place.address, "--json")
    told = json.loads(stranded.stdout)
    assert (stranded.exit_code, told["schema"], told["workflow"], told["version"]) == (5, 3, "refunds", 1)
    (run,) = told["runs"]
    assert (run["run_id"], run["verdict"], run["status"]) == ("refund-7", "incompatible", "waiting")
    assert run["why"] == ["executor 'desk' was removed, but its request 'refund-7' is open"]
    assert "1 run of 'refunds': 1 incompatible" in stranded.stderr
    # What is missing may have become what is new, and the line says how to declare it.
    became = "executor 'desk' may have become 'counter': Migration(2).rename_executor('desk', 'counter')"
    assert run["suggestions"] == [became]
    assert f"hint: {became}" in stranded.stderr
    resumed = say("resume", "refund-7", "checked_code:renamed", "--store", place.address)
    assert (resumed.exit_code, became in resumed.stderr) == (5, True)
    migrating = say("check", "checked_code:migrating", "--store", place.address)
    assert (migrating.exit_code, "executor 'desk' renamed to 'counter'" in migrating.stdout) == (0, True)


def test_a_migration_that_fails_strands_the_run(sqlite: Place, say: Say) -> None:
    failed = say("check", "checked_code:broken", "--store", sqlite.address)
    assert failed.exit_code == 5
    assert "version 2, state['order'] changed: TypeError" in failed.stdout


def test_no_runs_are_no_failure(sqlite: Place, say: Say) -> None:
    nothing = say("check", "checked_code:other", "--store", sqlite.address)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == 'no run of "nobody\'s" is unfinished\n'
    found = say("check", "checked_code:other", "--store", sqlite.address, "--stored-as", "refunds")
    assert (found.exit_code, "refund-7" in found.stdout) == (0, True)


def test_code_that_is_not_there_is_told(sqlite: Place, say: Say) -> None:
    missing = say("check", "nowhere_at_all:workflow", "--store", sqlite.address)
    assert (missing.exit_code, missing.stdout) == (5, "")
    assert "there is no module 'nowhere_at_all'" in missing.stderr


def test_a_run_that_was_taken_over_shows_it(sqlite: Place, say: Say) -> None:
    asyncio.run(_taken_over(sqlite.storage))
    words = "executor 'desk' renamed to 'counter'"
    lines = [line for line in say("events", "refund-7", "--store", sqlite.address).stdout.splitlines() if words in line]
    assert len(lines) == 1
    assert " migrated " in lines[0]
    shown = say("show", "refund-7", "--store", sqlite.address).stdout
    assert "(migrated)" in shown
    assert "from counter" in shown
    compared = say("diff", "refund-7@1", "refund-7@2", "--store", sqlite.address).stdout
    assert "counter" in compared
    page = asyncio.run(report_run(sqlite.storage, "refund-7"))
    assert words.replace("'", "&#x27;") in page


async def _taken_over(storage: Any) -> None:
    step = Migration(2).rename_executor("desk", "counter")
    known = {"name": "refunds", "checkpoint_storage": storage, "migrations": [step]}
    await WorkflowBuilder(start_executor=Desk("counter"), **known).build().run(run_id="refund-7")
    await storage.close()
