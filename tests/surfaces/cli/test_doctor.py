"""`stepwell doctor` and `stepwell migrate`: what is wrong with a store is told, and only `migrate` changes one."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import FileCheckpointStorage, Seal
from stepwell.storage.integrity import VerifiedStore
from tests.support.command_line import Place, Say, damage, postgres_address, schema_of
from tests.support.next_format import know_the_next_format
from tests.support.postgres_server import ask, fresh_schema


def content(place: Place, folder: Path) -> object:
    """Everything that is in a store, and its format."""
    if place.address.startswith("sqlite"):
        db = sqlite3.connect(folder / "runs.db")
        try:
            return [*db.iterdump(), db.execute("PRAGMA user_version").fetchone()]
        finally:
            db.close()
    if place.address == "runs":
        return {path: path.read_bytes() for path in (folder / "runs").rglob("*") if path.is_file()}
    schema = schema_of(place)
    tables = ask(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}' ORDER BY 1")
    return {name: ask(f'SELECT t::text FROM "{schema}"."{name}" AS t ORDER BY 1') for (name,) in tables}


def test_a_healthy_store_is_said_to_be_so_with_the_rate_and_left_as_it_is(
    place: Place, say: Say, tmp_path: Path
) -> None:
    place.fill()
    before = content(place, tmp_path)
    done = say("--store", place.address, "doctor")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("healthy: 2 runs, 6 records, ")
    assert done.stdout.endswith(" (1 completed, 1 waiting)\n")
    assert done.stderr.endswith(" records/s\n")
    told = json.loads(say("--store", place.address, "doctor", "--json").stdout)
    assert (told["schema"], told["healthy"], told["findings"]) == (3, True, [])
    assert told["format"]["found"] == told["format"]["known"]
    assert (told["looked_at"]["records"], told["looked_at"]["requests"]) == (6, 1)
    assert told["looked_at"]["records_per_second"] > 0
    assert content(place, tmp_path) == before


def test_a_damaged_record_is_found_and_the_rest_is_looked_at(place: Place, say: Say, tmp_path: Path) -> None:
    place.fill()
    damage(place, "count-1", 3)
    done = say("--store", place.address, "doctor")
    assert done.exit_code == 1
    assert done.stdout.startswith("error: run count-1@3: ")
    assert done.stdout.splitlines()[-1].startswith("1 finding: 2 runs, 5 records, ")
    told = json.loads(say("--store", place.address, "doctor", "--json").stdout)
    (finding,) = told["findings"]
    assert (told["healthy"], finding["severity"], finding["run_id"], finding["number"]) == (
        False,
        "error",
        "count-1",
        3,
    )
    for command in (["show", "count-1"], ["export", "count-1"], ["export", "count-1", "--html"]):
        refused = say("--store", place.address, *command)
        assert (refused.exit_code, refused.stdout) == (1, ""), command
        assert "count-1" in refused.stderr
    assert not list(tmp_path.glob("count-1.*"))


@pytest.mark.parametrize(
    "command",
    [["export", "nobody"], ["export", "nobody@3", "--html"], ["prune", "nobody", "--all", "--yes"], ["show", "co"]],
)
def test_an_id_that_is_not_there_is_not_found(place: Place, say: Say, command: list[str]) -> None:
    place.fill()
    done = say("--store", place.address, *command)
    assert (done.exit_code, done.stdout) == (3, ""), done.stderr
    assert "in this store" in done.stderr


def test_a_newest_record_that_cannot_be_read_is_found_and_the_rest_is_looked_at(say: Say, tmp_path: Path) -> None:
    Place("runs", FileCheckpointStorage(tmp_path / "runs")).fill()
    (file,) = (tmp_path / "runs").rglob("*count-1*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"status":"IDLE"', b'"status":"XXXX"'))
    told = say("--store", "runs", "doctor", "--json")
    assert told.exit_code == 1
    document = json.loads(told.stdout)
    assert [finding["run_id"] for finding in document["findings"]] == ["count-1"]
    assert all(file.name in finding["what"] for finding in document["findings"])
    assert (document["looked_at"]["runs"], document["looked_at"]["records"]) == (2, 2)


CODE = """
from stepwell import WorkflowBuilder, WorkflowContext, executor

@executor(id="other")
async def other(number: int, ctx: WorkflowContext[int, list]) -> None: ...

workflow = WorkflowBuilder(name="refunds", start_executor=other).build()
"""


def test_code_that_cannot_go_on_with_a_run_is_found(sqlite: Place, say: Say, tmp_path: Path) -> None:
    (tmp_path / "code_of_today.py").write_text(CODE)
    done = say("--store", sqlite.address, "doctor", "code_of_today:workflow")
    assert done.exit_code == 1
    assert "error: run refund-7@1: " in done.stdout
    assert "'desk'" in done.stdout
    assert say("--store", sqlite.address, "doctor", "no_such_module:workflow").exit_code == 5
    assert say("--store", sqlite.address, "doctor", "nonsense").exit_code == 2


@pytest.mark.process
def test_a_terminal_is_told_how_far_it_is(sqlite: Place) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stepwell.cli", "--store", sqlite.address, "doctor"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}, text=True
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while more := os.read(ours, 65536):
                seen += more
        except OSError:  # the other end is closed
            pass
        assert process.stdout is not None
        assert process.stdout.read().startswith("healthy: ")
    os.close(ours)
    assert b"records/s\r" in seen


@pytest.fixture
def old(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A store that is older than this program, of each kind."""
    place.fill()
    know_the_next_format(monkeypatch)
    return place


def test_an_older_store_is_only_brought_up_to_date_if_that_is_said(old: Place, say: Say, tmp_path: Path) -> None:
    before = content(old, tmp_path)
    done = say("--store", old.address, "doctor")
    assert done.exit_code == 1
    assert done.stdout.startswith("warning: the store has format 1, and this Stepwell uses ")
    assert "stepwell migrate" in done.stdout
    told = json.loads(say("--store", old.address, "migrate", "--dry-run", "--json").stdout)
    assert (told["from"], told["needed"], told["dry_run"]) == (1, True, True)
    assert told["commits"] == 6
    assert content(old, tmp_path) == before
    done = say("--store", old.address, "migrate")
    words = f"the store was upgraded from format 1 to {told['to']}; it holds {told['commits']} commits\n"
    assert (done.exit_code, done.stdout) == (0, words), done.stderr
    assert content(old, tmp_path) != before
    again = say("--store", old.address, "migrate")
    assert again.stdout == f"nothing to do: the store has format {told['to']}, the newest that this Stepwell supports\n"
    looked = json.loads(say("--store", old.address, "doctor", "--json").stdout)["looked_at"]
    assert looked["records"] == told["commits"]


def test_a_store_that_is_brought_up_to_date_is_healthy(old: Place, say: Say) -> None:
    assert say("--store", old.address, "migrate").exit_code == 0
    done = say("--store", old.address, "doctor")
    assert done.exit_code == 0, done.stdout


def test_a_store_is_created_by_migrate(place: Place, say: Say, tmp_path: Path) -> None:
    told = json.loads(say("--store", place.address, "migrate", "--dry-run", "--json").stdout)
    assert (told["from"], told["to"], told["needed"], told["commits"]) == (None, 1, True, 0)
    assert say("--store", place.address, "list").exit_code == 3
    done = say("--store", place.address, "migrate")
    assert (done.exit_code, done.stdout) == (0, "the store was created with format 1\n"), done.stderr
    assert say("--store", place.address, "list").exit_code == 0
    again = say("--store", place.address, "migrate")
    assert again.stdout == "nothing to do: the store has format 1, the newest that this Stepwell supports\n"
    assert say("--store", place.address, "doctor").exit_code == 0


@pytest.mark.process
@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_nothing_is_created_among_the_tables_of_another_program(say: Say, dry_run: list[str]) -> None:
    with fresh_schema() as schema:
        ask(f"CREATE SCHEMA {schema}")
        ask(f"CREATE TABLE {schema}.orders (id integer)")
        done = say("--store", postgres_address(schema), "migrate", *dry_run)
        assert done.exit_code != 0
        assert "holds tables of another program" in done.stderr


def newer(place: Place, folder: Path) -> None:
    if place.address.startswith("sqlite"):
        db = sqlite3.connect(folder / "runs.db")
        db.execute("PRAGMA user_version = 99")
        db.close()
    elif place.address == "runs":
        (folder / "runs" / "stepwell.json").write_text('{"format": 99}\n')
    else:
        ask(f'UPDATE "{schema_of(place)}".stepwell SET format = 99 RETURNING 1')


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"],
        ["migrate"],
        ["migrate", "--dry-run"],
        ["prune", "--keep-last", "1", "--yes"],
        ["prune", "count-1", "--all", "--yes"],
        ["export", "count-1"],
        ["import", "run.stepwell"],
        ["list"],
    ],
)
def test_a_store_of_a_newer_stepwell_is_left_as_it_is(
    place: Place, say: Say, tmp_path: Path, command: list[str]
) -> None:
    place.fill()
    assert say("--store", place.address, "export", "count-1", "-o", "run.stepwell").exit_code == 0
    newer(place, tmp_path)
    before = content(place, tmp_path)
    done = say("--store", place.address, *command)
    assert done.exit_code == 5, done.output
    assert "a newer Stepwell" in done.stderr
    assert "hint: pip install --upgrade stepwell" in done.stderr
    assert content(place, tmp_path) == before
    assert not (tmp_path / "count-1.stepwell").exists()


@pytest.mark.parametrize("command", [["doctor"], ["prune", "--keep-last", "1", "--yes"], ["export", "r"]])
@pytest.mark.parametrize(("store", "code"), [("sqlite:///no.db", 3), ("no", 3), ("sqlite:///text", 1), ("odd://x", 2)])
def test_a_wrong_store_is_an_error(say: Say, tmp_path: Path, command: list[str], store: str, code: int) -> None:
    (tmp_path / "text").write_text("This is a text, and longer than any header would be." * 40)
    done = say("--store", store, *command)
    assert done.exit_code == code, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]


def test_missing_keys_are_an_error_and_no_findings(place: Place, say: Say) -> None:
    place.storage._store = VerifiedStore(place.storage._store.inner, Seal({"first": bytes(32)}, "first"))
    place.fill()
    done = say("--store", place.address, "doctor")
    assert (done.exit_code, done.stdout) == (5, "")
    assert say("--store", place.address, "doctor", env={"STEPWELL_KEYS": f"first={'A' * 43}="}).exit_code == 0
