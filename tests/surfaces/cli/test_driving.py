"""Runs begun, resumed and cancelled from the command line, by the code of this house's tests."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage
from stepwell.admin import respond
from stepwell.storage.filters import ALL_RUNS
from tests.support.command_line import Place, Say
from tests.support.driven_runs import READY
from tests.support.nesting import Asker, alone, deep

STORE = "sqlite:///runs.db"
RUNS = "tests.support.driven_runs"


def runs(say: Say, place: str = STORE) -> dict[str, dict[str, Any]]:
    told = say("--store", place, "list", "--json")
    assert told.exit_code == 0, told.stderr
    return {run["run_id"]: run for run in json.loads(told.stdout)["runs"]}


def test_a_run_is_begun_on_a_store_that_is_made_for_it(place: Place, say: Say) -> None:
    told = say(
        "run", f"{RUNS}:counting", "--store", place.address, "--input", "4", "--run-id", "c-1", "--tag", "team=red"
    )
    assert (told.exit_code, told.stdout, told.stderr) == (0, "counted\nto 5\n", "")
    found = runs(say, place.address)["c-1"]
    assert (found["workflow"], found["status"], found["tags"]) == ("counting", "completed", {"team": "red"})


def test_only_run_makes_a_store(say: Say, tmp_path: Path) -> None:
    for command in (["resume", "c-1", f"{RUNS}:counting"], ["tail", "c-1"], ["cancel", "c-1"]):
        assert say("--store", STORE, *command).exit_code == 3
    refused = say("--store", STORE, "run", f"{RUNS}:counting", "--input", "many")
    assert refused.exit_code == 2
    assert not (tmp_path / "runs.db").exists()


def test_no_store_is_made_among_other_files(say: Say, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    told = say("--store", ".", "run", f"{RUNS}:counting", "--input", "4")
    assert (told.exit_code, told.stdout) == (2, "")
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_the_same_command_again_goes_on_with_the_same_run(say: Say) -> None:
    said = ["--store", STORE, "run", f"{RUNS}:counting", "--run-id", "c-1", "--input"]
    assert say(*said, "4").stdout == say(*said, "4").stdout == "counted\nto 5\n"
    assert Path("done.txt").read_text() == "4\n5\n"
    other = say(*said, "3")
    assert (other.exit_code, other.stdout) == (2, "")
    assert "another input" in other.stderr


def test_what_the_code_prints_is_no_data(say: Say) -> None:
    told = say("--store", STORE, "run", f"{RUNS}:orders", "--input", '{"item": "cup", "price": 3}')
    assert (told.exit_code, told.stdout) == (0, '{"item":"cup","price":3}\n')
    assert told.stderr == "an order came in\n"


@pytest.mark.parametrize("name", ["orders", "orders_later"])
def test_a_run_that_waits_says_what_it_asks_and_goes_on_once_it_is_answered(say: Say, name: str) -> None:
    told = say("--store", STORE, "run", f"{RUNS}:{name}", "--input", '{"item": "urn", "price": 300}', "--run-id", "o-1")
    assert (told.exit_code, told.stdout) == (4, "")
    assert told.stderr.splitlines()[1] == "run 'o-1' is waiting: 1 open request"
    assert "    item: urn" in told.stderr.splitlines()
    respond = f"stepwell respond o-1 approve-urn --store {STORE}"
    assert told.stderr.splitlines()[-1] == f"hint: {respond}, then stepwell resume o-1 {RUNS}:{name} --store {STORE}"
    again = json.loads(say("--store", STORE, "resume", "o-1", f"{RUNS}:{name}", "--json").stdout)
    assert (again["status"], again["outputs"]) == ("waiting", [])
    assert [(one["request_id"], one["response_schema"]) for one in again["requests"]] == [
        ("approve-urn", {"type": "boolean"})
    ]
    _answer("o-1", "approve-urn", True)
    done = say("--store", STORE, "resume", "o-1@1", f"{RUNS}:{name}")
    assert (done.exit_code, done.stdout) == (0, '{"item":"urn","price":300}\n')


def _answer(run: str, request: str, value: Any) -> None:
    async def given() -> None:
        storage = SQLiteCheckpointStorage("runs.db")
        await respond(storage, run, request, value)
        await storage.close()

    asyncio.run(given())


def test_an_answer_that_does_not_fit_is_said_and_the_run_still_waits(say: Say) -> None:
    say("--store", STORE, "run", f"{RUNS}:orders", "--input", '{"item": "urn", "price": 300}', "--run-id", "o-1")
    _answer("o-1", "approve-urn", "perhaps")
    told = say("--store", STORE, "resume", "o-1", f"{RUNS}:orders")
    assert told.exit_code == 4
    assert "is not accepted" in told.stderr


def test_a_run_that_fails_is_resumed_where_it_failed(say: Say) -> None:
    failed = say("--store", STORE, "run", f"{RUNS}:letters", "--input", "tea", "--run-id", "l-1")
    assert (failed.exit_code, failed.stdout) == (1, "checked tea\n")
    assert failed.stderr.splitlines() == [
        "stepwell: run 'l-1' failed in 'send': ValueError: no stamps [SW201]",
        f"hint: stepwell resume l-1 {RUNS}:letters --store {STORE}",
    ]
    again = say("--store", STORE, "resume", "l-1", f"{RUNS}:letters", "--json")
    assert again.exit_code == 1
    told = json.loads(again.stdout)
    assert (told["schema"], told["status"], told["outputs"]) == (3, "failed", ["checked tea"])
    assert told["error"] == "run 'l-1' failed in 'send': ValueError: no stamps"
    Path(READY).touch()
    done = say("--store", STORE, "resume", "l-1", f"{RUNS}:letters")
    assert (done.exit_code, done.stdout) == (0, "checked tea\nsent tea\n")


def test_a_step_whose_argument_changed_is_recalled_only_if_that_is_asked_for(say: Say) -> None:
    Path("amount.txt").write_text("30")
    assert say("--store", STORE, "run", f"{RUNS}:charging", "--input", "tea", "--run-id", "c-1").exit_code == 1
    Path("amount.txt").write_text("31")
    Path(READY).touch()
    refused = say("--store", STORE, "resume", "c-1", f"{RUNS}:charging")
    assert refused.exit_code == 1
    assert "charge(str#" in refused.stderr
    done = say("--store", STORE, "resume", "c-1", f"{RUNS}:charging", "--recall-changed-steps")
    assert (done.exit_code, done.stdout) == (0, "charged 30\n")


def test_a_handler_that_ends_the_process_is_not_taken_for_a_run_that_is_done(say: Say) -> None:
    told = say("--store", STORE, "run", f"{RUNS}:quitting", "--input", "tea", "--run-id", "q-1")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "exited the process: SystemExit: 0" in told.stderr
    assert runs(say)["q-1"]["status"] == "stalled"


def test_a_run_that_sleeps_says_until_when(say: Say) -> None:
    told = say("--store", STORE, "run", f"{RUNS}:sleeping", "--input", "tea", "--run-id", "s-1", "--json")
    assert told.exit_code == 4
    assert json.loads(told.stdout)["wakes_at"] is not None
    assert told.stderr.startswith("run 's-1' is sleeping until ")
    assert told.stderr.splitlines()[-1] == f"hint: after that, stepwell resume s-1 {RUNS}:sleeping --store {STORE}"


def test_agents_by_name_run_on_the_store_that_is_meant(say: Say) -> None:
    said = ["--store", STORE, "run", f"{RUNS}:poets", "--run-id", "p-1", "--input"]
    told = say(*said, "kelp")
    assert (told.exit_code, told.stdout) == (0, "An ode to kelp\n")
    assert say(*said, "kelp").stdout == told.stdout
    assert say(*said, "moss").exit_code == 2
    assert say("--store", STORE, "resume", "p-1", f"{RUNS}:poets").stdout == told.stdout
    assert runs(say)["p-1"]["workflow"] == "poets"


OTHER_CLASSES = """
from dataclasses import dataclass
from stepwell import Executor, WorkflowBuilder, WorkflowContext, handler, response_handler

@dataclass
class Parcel:
    item: str

class Desk(Executor):
    @handler
    async def order(self, order: Parcel, ctx: WorkflowContext[None, Parcel]) -> None: ...

    @response_handler
    async def decided(self, original_request: Parcel, response: bool, ctx: WorkflowContext[None, Parcel]) -> None: ...

orders = WorkflowBuilder(name="orders", start_executor=Desk("desk"))
"""


@pytest.mark.process
def test_code_that_cannot_go_on_with_a_run_is_told_apart(say: Say, tmp_path: Path) -> None:
    from tests.support.command_line import ran

    say("--store", STORE, "run", f"{RUNS}:letters", "--input", "tea", "--run-id", "l-1")
    say("--store", STORE, "run", f"{RUNS}:orders", "--input", '{"item": "urn", "price": 300}', "--run-id", "o-1")
    before = runs(say)
    changed = say("--store", STORE, "resume", "l-1", f"{RUNS}:another_shape")
    assert changed.exit_code == 5
    assert "'send'" in changed.stderr
    for code in (f"{RUNS}:nothing", "nothing_of_that_name:workflow", f"{RUNS}:READY"):
        assert say("--store", STORE, "resume", "l-1", code).exit_code == 5
    (tmp_path / "others.py").write_text(OTHER_CLASSES)
    unknown = ran("--store", STORE, "resume", "o-1", "others:orders")  # no class of ours is known there
    assert unknown.returncode == 5, unknown.stderr
    assert "driven_runs:Order" in unknown.stderr
    assert runs(say) == before


def test_an_older_checkpoint_is_not_resumed(say: Say) -> None:
    say("--store", STORE, "run", f"{RUNS}:counting", "--input", "4", "--run-id", "c-1")
    told = say("--store", STORE, "resume", "c-1@1", f"{RUNS}:counting")
    assert told.exit_code == 2
    assert told.stderr.splitlines()[-1] == f"hint: stepwell fork c-1@1 --store {STORE}"
    assert say("--store", STORE, "resume", "c-1@2", f"{RUNS}:counting").exit_code == 0


def test_a_run_that_works_for_another_is_left_to_that_one(say: Say) -> None:
    async def made() -> str:
        async with SQLiteCheckpointStorage("runs.db") as storage:
            await deep(alone(Asker()), 2, storage).run("a", run_id="outer")
            return next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "outer")

    inner = asyncio.run(made())
    resumed = say("--store", STORE, "resume", inner, f"{RUNS}:counting")
    assert resumed.exit_code == 2
    assert "resume its caller 'outer'" in resumed.stderr
    cancelled = say("--store", STORE, "cancel", inner)
    assert cancelled.exit_code == 2
    assert "is a sub-workflow run of 'outer'" in cancelled.stderr


def test_a_run_that_nobody_drives_is_cancelled_at_once(place: Place, say: Say) -> None:
    place.fill()
    told = say("--store", place.address, "cancel", "refund-7", "--json")
    assert told.exit_code == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["status"], found["number"], found["changed"], found["driver"]) == ("cancelled", 2, True, None)
    assert runs(say, place.address)["refund-7"]["status"] == "cancelled"
    again = say("--store", place.address, "cancel", "refund-7")
    assert (again.exit_code, again.stderr) == (0, "run 'refund-7' is already cancelled\n")


def test_a_run_that_is_over_stays_as_it_is(sqlite: Place, say: Say) -> None:
    told = say("--store", sqlite.address, "cancel", "count-1")
    assert (told.exit_code, told.stderr) == (0, "run 'count-1' is already completed\n")
    assert runs(say)["count-1"]["number"] == 3
    assert say("--store", sqlite.address, "cancel", "nobody").exit_code == 3


def test_a_cancelled_run_is_resumed_on_purpose(say: Say) -> None:
    say("--store", STORE, "run", f"{RUNS}:letters", "--input", "tea", "--run-id", "l-1")
    assert say("--store", STORE, "cancel", "l-1").exit_code == 0
    Path(READY).touch()
    done = say("--store", STORE, "resume", "l-1", f"{RUNS}:letters")
    assert (done.exit_code, done.stdout) == (0, "checked tea\nsent tea\n")


@pytest.mark.parametrize(("run_id", "code"), [("", 2), ("x" * 10_001, 2), ("\ud800", 2)])
def test_what_is_no_id_is_wrong_usage(say: Say, run_id: str, code: int) -> None:
    told = say("--store", STORE, "run", f"{RUNS}:counting", "--input", "4", "--run-id", run_id)
    assert (told.exit_code, told.stdout) == (code, "")
    assert "foreseen" not in told.stderr


def test_a_completed_run_of_another_workflow_is_left_alone(sqlite: Place, say: Say) -> None:
    fence = "SELECT fence FROM runs WHERE run_id = 'count-1'"
    with closing(sqlite3.connect("runs.db")) as db:
        before = db.execute(fence).fetchone()
    done = say("--store", sqlite.address, "resume", "count-1", "tests.support.driven_runs:letters")
    assert (done.exit_code, "cannot continue run 'count-1'" in done.stderr) == (5, True)
    with closing(sqlite3.connect("runs.db")) as db:
        assert db.execute(fence).fetchone() == before  # nobody took its lease
