"""`stepwell prune`: what is old goes, what is named goes, and what must stay stays and says why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stepwell import Seal, SQLiteCheckpointStorage
from stepwell.admin import fork
from stepwell.storage.integrity import VerifiedStore
from tests.support.command_line import Place, Say, damage
from tests.support.operating_runs import counting
from tests.support.terminal import Terminal


def runs(say: Say, place: Place) -> list[str]:
    told = say("--store", place.address, "list", "--json")
    return [run["run_id"] for run in json.loads(told.stdout)["runs"]]


def test_old_checkpoints_go_and_what_stays_says_why(place: Place, say: Say) -> None:
    place.fill()
    asked = ["--store", place.address, "prune", "--keep-last", "1"]
    said = say(*asked, "--dry-run", "--json")
    told = json.loads(said.stdout)
    assert (told["runs"], told["checkpoints"], told["dry_run"], told["schema"]) == ([], {"count-1": [2, 1, 0]}, True, 3)
    assert told["stays"] == {"count-1": "its last checkpoints are kept", "refund-7": "it waits for an answer"}
    assert say("--store", place.address, "show", "count-1@1").exit_code == 0
    done = say(*asked, "--yes")
    assert done.exit_code == 0, done.stderr
    first = f"deleted: 3 checkpoints of 1 run, {told['bytes']:,} bytes"
    assert done.stdout.splitlines()[:2] == [first, "  count-1: 3 checkpoints"]
    assert "  it waits for an answer: refund-7" in done.stdout.splitlines()
    assert say("--store", place.address, "show", "count-1@1").exit_code == 3
    left = json.loads(say("--store", place.address, "show", "count-1", "--json").stdout)
    assert left["state"]["numbers"] == [1, 2, 3]
    assert say(*asked, "--yes").stdout.startswith("nothing to prune\n")


def test_runs_go_by_age_status_and_name(place: Place, say: Say) -> None:
    place.fill()
    prune = ["--store", place.address, "prune", "--yes", "--json"]
    for kept in (["--keep-for", "1h"], ["--keep-last", "0", "--status", "failed"], ["--keep-last", "9"]):
        told = json.loads(say(*prune, *kept).stdout)
        assert (told["runs"], told["checkpoints"], told["given_back"]) == ([], {}, 0)
    told = json.loads(say(*prune, "--keep-last", "0", "refund").stdout)
    assert (told["runs"], told["checkpoints"]) == ([], {"refund-7": [0]})  # it has not ended, and was named
    told = json.loads(say(*prune, "--keep-for", "0s", "--status", "completed", "--status", "failed").stdout)
    assert (told["runs"], told["stays"]) == (["count-1"], {})  # the other stands otherwise, and was not meant
    assert runs(say, place) == ["refund-7"]


def test_a_run_is_deleted_by_name_whatever_it_is(place: Place, say: Say) -> None:
    place.fill()
    done = say("--store", place.address, "prune", "refund-7", "--all", "--yes")
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, "  refund-7: the entire run"), done.stderr
    assert runs(say, place) == ["count-1"]
    assert json.loads(say("--store", place.address, "requests", "--json").stdout)["requests"] == []


def test_what_a_fork_was_begun_from_is_not_deleted_alone(sqlite: Place, say: Say) -> None:
    async def forked() -> None:
        await fork(sqlite.storage, "count-1@1", run_id="other")
        await sqlite.storage.close()

    asyncio.run(forked())
    done = say("--store", sqlite.address, "prune", "count-1", "--all", "--yes")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "nothing to prune")
    assert "run 'other' was forked from it, and stays: count-1" in done.stdout
    done = say("--store", sqlite.address, "prune", "count-1", "other", "--all", "--yes")
    assert done.stdout.splitlines()[1:] == ["  other: the entire run", "  count-1: the entire run"]


def test_a_damaged_run_is_left_alone_and_can_be_deleted(place: Place, say: Say, tmp_path: Path) -> None:
    place.fill()
    damage(place, "count-1", 0)
    done = say("--store", place.address, "prune", "--keep-last", "0", "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["runs"], told["checkpoints"]) == ([], {})
    assert told["stays"]["count-1"].startswith("it cannot be read: ")
    done = say("--store", place.address, "prune", "count-1", "--all", "--yes")
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, "  count-1: the entire run"), done.stderr
    assert runs(say, place) == ["refund-7"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--keep-last", "-1"],
        ["--keep-last", "many"],
        ["--keep-for", "soon"],
        ["--keep-last", "1", "--status", "odd"],
        ["--all"],
        ["count-1", "--all", "--keep-last", "1"],
        ["--keep-last", "1"],  # nobody is there to be asked
        ["count-1", "--all"],
        ["--keep-last", "1", "--no-input"],
    ],
)
def test_wrong_usage_takes_nothing_away(sqlite: Place, say: Say, arguments: list[str], tmp_path: Path) -> None:
    before = (tmp_path / "runs.db").read_bytes()
    done = say("--store", sqlite.address, "prune", *arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert (tmp_path / "runs.db").read_bytes() == before


def test_a_run_that_is_not_there_is_not_found(sqlite: Place, say: Say) -> None:
    assert say("--store", sqlite.address, "prune", "nobody", "--all", "--yes").exit_code == 3
    assert say("--store", "sqlite:///nothing.db", "prune", "--keep-last", "1", "--yes").exit_code == 3


def test_a_sealed_store_is_pruned_with_its_key_and_stays_sealed(place: Place, say: Say) -> None:
    place.storage._store = VerifiedStore(place.storage._store.inner, Seal({"first": bytes(32)}, "first"))
    place.fill()
    prune = ["--store", place.address, "prune", "--keep-last", "1", "--yes"]
    for refused in (say(*prune), say("--store", place.address, "prune", "count-1", "--all", "--yes")):
        assert (refused.exit_code, refused.stdout) == (5, "")
    key = {"STEPWELL_KEYS": f"first={'A' * 43}="}
    assert say(*prune, env=key).stdout.startswith("deleted: 3 checkpoints of 1 run, ")
    assert say("--store", place.address, "show", "count-1").exit_code == 5
    assert say("--store", place.address, "doctor", env=key).exit_code == 0


@pytest.mark.process
@pytest.mark.parametrize(("way", "code", "left"), [("y", 0, 1), ("n", 130, 2), ("ctrl-c", 130, 2)])
def test_a_person_is_asked_first(sqlite: Place, say: Say, way: str, code: int, left: int) -> None:
    with Terminal("--store", sqlite.address, "prune", "--keep-last", "0") as terminal:
        if way == "ctrl-c":
            terminal.interrupt("Delete this permanently? [y/N]:")
        else:
            terminal.answer("Delete this permanently? [y/N]:", f"{way}\n")
        assert terminal.end() == code, terminal.seen
        assert "would delete: 1 run" in terminal.seen
        assert ("\ndeleted: 1 run" in terminal.seen) is (code == 0)
        assert ("nothing was deleted" in terminal.seen) is (way == "n")
    assert len(runs(say, sqlite)) == left


def test_the_disk_space_is_given_back(say: Say, tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def made() -> None:
        await counting(storage, upto=90).run(1, run_id="long")
        await storage.close()

    asyncio.run(made())
    before = (tmp_path / "runs.db").stat().st_size
    done = say("--store", "sqlite:///runs.db", "prune", "--keep-last", "1", "--yes", "--json")
    assert json.loads(done.stdout)["given_back"] > 0
    assert (tmp_path / "runs.db").stat().st_size < before
