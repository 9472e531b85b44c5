"""`fork` and `diff`: a run goes on elsewhere with changes, and what is different is told to people and programs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from stepwell import Retention, SQLiteCheckpointStorage
from stepwell.admin import apply_patch, find_run
from stepwell.admin.diffs.checkpoints import load_document
from stepwell.admin.lookup import find_checkpoint
from tests.support.command_line import Place, Say
from tests.support.operating_runs import asking, counting
from tests.support.terminal import Terminal


def gone_on(place: Place, flow: Any, run_id: str) -> Any:
    async def run() -> Any:
        async with place.storage as storage:
            return (await flow(storage).run(run_id=run_id)).get_outputs()

    return asyncio.run(run())


def document_of(place: Place, name: str) -> Any:
    async def read() -> Any:
        async with place.storage as storage:
            return await load_document(storage, await find_checkpoint(storage, name))

    return asyncio.run(read())


def runs_of(place: Place) -> set[str]:
    async def read() -> set[str]:
        async with place.storage as storage:
            return {run.run_id for run in await storage.list_runs()}

    return asyncio.run(read())


def test_a_fork_has_its_changes_and_goes_on_with_them(place: Place, say: Say) -> None:
    place.fill()
    asked = ["fork", "count-1@2", "--as", "count-2", "--set", "numbers.0=100", "--add", "upto=5", "--add", "by=ada"]
    made = say("--store", place.address, *asked, "--delete", "about.odd", "--tag", "team=green")
    assert (made.exit_code, made.stdout) == (0, "count-2\n"), made.stderr
    assert made.stderr.splitlines()[:3] == ["numbers.0 = 100 (number)", "upto = 5 (number)", "by = ada (text)"]
    assert "stepwell resume count-2 MODULE:WORKFLOW" in made.stderr
    assert say("--store", place.address, "diff", "count-2").stdout.splitlines() == [
        "count-1@2 → count-2@0",
        "- state.about.odd: [1]",
        "~ state.numbers[0]: 1 → 100",
        "+ state.upto: 5",
        '+ state.by: "ada"',
    ]
    forks = json.loads(say("--store", place.address, "list", "--parent", "count-1", "--json").stdout)["runs"]
    assert [(run["run_id"], run["parent_run"], run["parent_number"]) for run in forks] == [("count-2", "count-1", 2)]
    none = say("--store", place.address, "list", "--parent", "count-2")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no run matches\n")
    assert gone_on(place, counting, "count-2") == [[100, 2, 3, 4, 5]]
    assert "count-1@2 → count-2@3" in say("--store", place.address, "diff", "count-2").stdout

    async def tags() -> Any:
        async with place.storage as storage:
            return (await find_run(storage, "count-2")).tags

    assert asyncio.run(tags()) == {"team": "green"}


def test_a_fork_without_a_name_gets_one(sqlite: Place, say: Say) -> None:
    made = say("--store", sqlite.address, "fork", "count-1@1", "--json")
    told = json.loads(made.stdout)
    assert (told["schema"], told["number"]) == (3, 0)
    assert told["run_id"] in runs_of(sqlite)
    assert gone_on(sqlite, counting, told["run_id"]) == [[1, 2, 3]]


def test_a_question_is_answered_in_the_fork_alone(sqlite: Place, say: Say) -> None:
    forked = say("--store", sqlite.address, "fork", "refund-7", "--as", "refund-7b", "--response", "refund-7=true")
    assert forked.exit_code == 0, forked.stderr
    assert "response to refund-7, which a resume applies: true (boolean)" in forked.stderr.splitlines()
    assert gone_on(sqlite, asking, "refund-7b") == ["tea: refunded"]
    shown = say("--store", sqlite.address, "show", "refund-7b").stdout.splitlines()
    assert [line.endswith(") since the fork") for line in shown if line.startswith("called ")] == [True]
    assert gone_on(sqlite, asking, "refund-7") == []


@pytest.mark.parametrize(
    ("asked", "code", "why"),
    [
        (["nobody@1"], 3, "no run 'nobody'"),
        (["count-1@77"], 3, "has no checkpoint 77"),
        (["count-1", "--as", "refund-7"], 2, "already exists"),
        (["count-1", "--as", ""], 2, "run_id must be a non-empty string"),
        (["count-1", "--set", "numbers.7=1"], 2, "numbers.7"),
        (["count-1", "--set", "numbers"], 2, "not of the form PATH=VALUE"),
        (["count-1", "--set", "a=1", "--set", "a=2"], 2, "passed twice"),
        (["count-1", "--add", "numbers=1"], 2, "already exists"),
        (["count-1", "--add", "x=NaN"], 2, "not JSON that can be stored"),
        (["count-1", "--delete", "nothing"], 2, "'nothing' does not exist"),
        (["count-1", "--tag", "team"], 2, "not of the form NAME=VALUE"),
        (["count-1", "--response", "refund-7=true"], 3, "has no open request 'refund-7'"),
        (["refund-7", "--response", "refund-7=maybe"], 2, '"maybe" is not a boolean'),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["made", "dry"])
def test_what_does_not_fit_makes_no_run(
    sqlite: Place, say: Say, asked: list[str], code: int, why: str, dry: list[str]
) -> None:
    done = say("--store", sqlite.address, "fork", *asked, *dry)
    assert (done.exit_code, done.stdout) == (code, "")
    assert why in done.stderr
    assert runs_of(sqlite) == {"count-1", "refund-7"}


def test_a_dry_run_tells_what_the_fork_then_changes(sqlite: Place, say: Say) -> None:
    asked = ["--store", sqlite.address, "fork", "count-1@2", "--as", "count-2", "--set", "numbers=[]", "--add", "x.y=1"]
    refused = say(*asked, "--dry-run")
    assert refused.exit_code == 2
    asked[-1] = 'x={"y": 1}'
    dry = say(*asked, "--dry-run")
    assert runs_of(sqlite) == {"count-1", "refund-7"}
    assert say(*asked).exit_code == 0
    assert dry.stdout == say("--store", sqlite.address, "diff", "count-1@2", "count-2").stdout


def test_a_difference_is_told_as_data_and_as_a_patch(place: Place, say: Say) -> None:
    place.fill()
    between = ["--store", place.address, "diff", "count-1@1", "count-1@3"]
    told = json.loads(say(*between, "--json").stdout)
    assert (told["schema"], told["one"]["number"], told["other"]["number"]) == (3, 1, 3)
    assert {"path": "/state/numbers/1", "kind": "added", "before": None, "after": 2} in told["changes"]
    patch = json.loads(say(*between, "--patch").stdout)
    assert apply_patch(document_of(place, "count-1@1"), patch) == document_of(place, "count-1@3")
    same = say("--store", place.address, "diff", "count-1", "count-1@3")
    assert (same.exit_code, same.stdout) == (0, "count-1@3 → count-1@3\nno difference\n")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (["count-1"], 2),
        (["count-1", "nobody"], 3),
        (["count-1@1", "count-1@9"], 3),
        (["count-1", "count-1", "--json", "--patch"], 2),
        ([], 2),
    ],
)
def test_what_cannot_be_compared_says_so(sqlite: Place, say: Say, asked: list[str], code: int) -> None:
    done = say("--store", sqlite.address, "diff", *asked)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("stepwell: ")


@pytest.mark.long
def test_a_fork_whose_beginning_is_gone_says_so(say: Say, tmp_path: Path) -> None:
    here = Place("sqlite:///runs.db", SQLiteCheckpointStorage(tmp_path / "runs.db", retention=Retention.LatestOnly))
    here.fill()
    assert say("--store", here.address, "fork", "refund-7", "--as", "refund-7b").exit_code == 0

    async def answered() -> None:
        async with here.storage as storage:
            await asking(storage).run(run_id="refund-7", responses={"refund-7": True})

    asyncio.run(answered())
    done = say("--store", here.address, "diff", "refund-7b")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "refund-7" in done.stderr


def test_long_values_are_cut_unless_in_full_and_give_no_orders(sqlite: Place, say: Say) -> None:
    large = json.dumps("x" * 300)
    say("--store", sqlite.address, "fork", "count-1", "--as", "c-2", "--add", f"a={large}", "--add", "b=\x9b31m")
    cut = say("--store", sqlite.address, "diff", "c-2").stdout
    full = say("--store", sqlite.address, "diff", "c-2", "--full").stdout
    assert "…" in cut
    assert "x" * 300 in full
    assert not {c for c in full if c != "\n" and not c.isprintable()}


@pytest.mark.process
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colours", "none"])
def test_a_terminal_gets_colours_if_it_wants_them(sqlite: Place, env: dict[str, str]) -> None:
    with Terminal("--store", sqlite.address, "diff", "count-1@1", "count-1@2", **env) as terminal:
        assert terminal.end() == 0
        assert "+ state.numbers[1]: 2" in terminal.seen
        assert ("\x1b[32m+ state.numbers[1]" in terminal.shown) == (not env)
