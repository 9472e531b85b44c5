"""Which store is meant, and what is said if it cannot be read. Reading leaves everything as it was."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from stepwell import FileCheckpointStorage, Seal, SQLiteCheckpointStorage
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.stored_values import Record
from tests.support.command_line import Place, Say, damage, postgres_address
from tests.support.operating_runs import counting
from tests.support.postgres_server import ask, fresh_database, fresh_schema

RUNS = ["refund-7", "count-1"]


def names(result: object) -> list[str]:
    assert result.exit_code == 0, result.stderr  # type: ignore[attr-defined]
    return [run["run_id"] for run in json.loads(result.stdout)["runs"]]  # type: ignore[attr-defined]


def test_the_option_goes_before_the_environment_and_that_before_the_project(
    sqlite: Place, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.stepwell]\nstore = "sqlite:///runs.db"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert names(say("list", "--json")) == RUNS  # from where the file is, not from here
    monkeypatch.setenv("STEPWELL_STORE", "nowhere")
    assert "nowhere does not exist" in say("list").stderr
    assert names(say("list", "--json", "--store", f"sqlite:///{tmp_path}/runs.db")) == RUNS
    assert names(say("--store", f"sqlite:///{tmp_path}/runs.db", "list", "--json")) == RUNS


def test_a_project_may_name_a_directory(say: Say, tmp_path: Path) -> None:
    Place("runs", FileCheckpointStorage(tmp_path / "runs")).fill()
    (tmp_path / "pyproject.toml").write_text('[tool.stepwell]\nstore = "runs"\n')
    assert names(say("list", "--json")) == RUNS


def test_without_a_word_it_is_the_default_store(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_HOME", str(tmp_path / "home"))
    missing = say("list")
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert str(tmp_path / "home" / "runs.db") in missing.stderr
    assert not (tmp_path / "home").exists()
    Place("", SQLiteCheckpointStorage(tmp_path / "home" / "runs.db")).fill()
    assert names(say("list", "--json")) == RUNS


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("sqlite:///nothing.db", 3, "nothing.db does not exist"),
        ("sqlite:///empty.db", 3, "empty.db is empty"),
        ("sqlite:///folder", 2, "is a directory"),
        ("sqlite:///text.txt", 1, "is not a SQLite database"),
        ("sqlite:///other.db", 1, "is a database of another program"),
        ("sqlite://runs.db", 2, "three slashes"),
        ("sqlite:///", 2, "three slashes"),
        ("sqlite:///:memory:", 2, "a SQLite store needs a file"),
        ("nothing", 3, "nothing does not exist"),
        ("folder", 3, "without runs"),
        ("text.txt", 1, "is not a SQLite database"),
        ("nothing.db", 3, "nothing.db does not exist"),
        ("folder.db", 3, "without runs"),
        ("mysql://host/db", 2, "unknown scheme"),
        ("host=db user=ada dbname=runs", 2, "the address of a PostgreSQL store is a URL"),
        ("postgresql://a:b@c@host/db", 2, "more than one @"),
        ("postgresql://host/db?nonsense=1", 2, "not a PostgreSQL dsn"),
    ],
)
@pytest.mark.parametrize("command", [["list"], ["requests"], ["show", "count-1"], ["events", "count-1"]])
def test_a_store_that_is_not_there_is_an_error_and_nothing_is_made(
    say: Say, tmp_path: Path, address: str, code: int, said: str, command: list[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.txt").write_text("This is a text, and longer than any header would be." * 40)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    before = sorted(tmp_path.rglob("*"))
    told = say("--store", address, *command)
    assert (told.exit_code, told.stdout) == (code, "")
    assert said in told.stderr
    assert told.stderr.startswith("stepwell: ")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "empty.db").stat().st_size == 0


@pytest.mark.process
def test_a_schema_that_is_not_there_is_not_made(say: Say) -> None:
    with fresh_schema() as schema:
        told = say("--store", postgres_address(schema), "list")
        assert (told.exit_code, told.stdout) == (3, "")
        assert f"no Stepwell schema {schema!r}" in told.stderr
        assert ask("SELECT 1 FROM pg_namespace WHERE nspname = %s".replace("%s", "$$" + schema + "$$")) == []


def test_a_server_that_is_not_there_is_said_soon(say: Say, tmp_path: Path) -> None:
    told = say("--store", f"postgresql:///db?host={tmp_path}", "list")
    assert told.exit_code == 1
    assert "the PostgreSQL server cannot be used" in told.stderr
    assert "hint: check the address" in told.stderr


@pytest.mark.process
def test_a_database_without_a_store_is_left_as_it_is(say: Say) -> None:
    with fresh_database() as dsn:
        name = dsn.split("dbname=")[1].split()[0]
        address = postgres_address("stepwell").replace("/postgres?", f"/{name}?")
        assert say("--store", address, "list").exit_code == 3
        assert ask("SELECT 1 FROM pg_namespace WHERE nspname = 'stepwell'", where=dsn) == []


def test_a_store_of_a_newer_stepwell_is_refused(sqlite: Place, say: Say, tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "runs.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    told = say("--store", sqlite.address, "list")
    assert (told.exit_code, told.stdout) == (5, "")
    assert "written by a newer Stepwell" in told.stderr


def test_a_record_of_a_newer_format_is_said_to_be_so(sqlite: Place, say: Say, tmp_path: Path) -> None:
    async def change() -> None:
        store = sqlite.storage._store
        records = await store.history("count-1")
        newer = [Record(each.entry, each.body.replace(b'"format":', b'"format":9', 1)) for each in records]
        await store.rewrite("count-1", replace=newer)
        await sqlite.storage.close()

    asyncio.run(change())
    for asked in (["show", "count-1"], ["events", "count-1"]):
        told = say("--store", sqlite.address, *asked)
        assert told.exit_code == 5
        assert told.stderr.startswith("stepwell: ")
        assert "Traceback" not in told.stderr


def test_a_damaged_record_is_said_to_be_so_and_others_are_shown(sqlite: Place, say: Say, tmp_path: Path) -> None:
    damage(sqlite, "refund-7")
    told = say("--store", sqlite.address, "show", "refund-7")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "refund-7" in told.stderr
    assert say("--store", sqlite.address, "show", "count-1").exit_code == 0
    assert names(say("--store", sqlite.address, "list", "--json")) == RUNS


KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def written(key: bytes) -> str:
    return base64.b64encode(key).decode()


@pytest.fixture
def sealed(place: Place) -> Place:
    """A store with one run, sealed with the key called `first`."""
    place.storage._store = VerifiedStore(place.storage._store.inner, Seal({"first": KEY}, "first"))

    async def made() -> None:
        await counting(place.storage).run(1, run_id="count-1")
        await place.storage.close()

    asyncio.run(made())
    return place


@pytest.mark.parametrize(
    "keys", [None, f"first={written(OTHER)}", f"other={written(OTHER)}"], ids=["none", "wrong", "other"]
)
@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_a_sealed_run_is_not_shown_without_its_key(sealed: Place, say: Say, keys: str | None, debug: list[str]) -> None:
    known = {"STEPWELL_KEYS": keys}
    assert names(say("--store", sealed.address, "list", "--json", env=known)) == ["count-1"]
    told = say("--store", sealed.address, *debug, "show", "count-1", env=known)
    assert (told.exit_code, told.stdout) == (5, "")
    assert "sealed" in told.stderr
    assert "hint: keys are read from $STEPWELL_KEYS" in told.stderr
    assert written(OTHER) not in told.stderr


def test_a_sealed_run_is_shown_with_its_key_wherever_it_is_given(sealed: Place, say: Say, tmp_path: Path) -> None:
    lines = f"# of this year\nsecond={written(OTHER)}, \nfirst={written(KEY)}  # of the last\n"
    shown = ["--store", sealed.address, "show", "count-1"]
    assert say(*shown, env={"STEPWELL_KEYS": lines}).exit_code == 0
    (tmp_path / "keys").write_text(lines)
    assert say(*shown, env={"STEPWELL_KEYS_FILE": str(tmp_path / "keys")}).exit_code == 0
    (tmp_path / "pyproject.toml").write_text('[tool.stepwell]\nkeys_file = "keys"\n')
    assert say(*shown).exit_code == 0
    (tmp_path / "keys").unlink()
    missing = say(*shown)
    assert missing.exit_code == 3
    assert "does not exist (keys_file in [tool.stepwell])" in missing.stderr


def test_a_key_for_what_is_not_sealed_is_the_wrong_one(sqlite: Place, say: Say) -> None:
    told = say("--store", sqlite.address, "show", "count-1", env={"STEPWELL_KEYS": f"first={written(KEY)}"})
    assert told.exit_code == 5
    assert "is not sealed" in told.stderr


@pytest.mark.parametrize(
    "keys", ["hunter2-and-more", "hunter2-and-more=", "first=hunter2-and-more", "=" + written(KEY), written(KEY)[:-1]]
)
@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_keys_that_cannot_be_read_are_an_error_that_does_not_say_them(
    sqlite: Place, say: Say, keys: str, debug: list[str]
) -> None:
    told = say("--store", sqlite.address, *debug, "list", env={"STEPWELL_KEYS": keys})
    assert told.exit_code == 2
    assert "key 1 in $STEPWELL_KEYS" in told.stderr
    assert "NAME=KEY" in told.stderr
    for secret in ("hunter2", written(KEY)[:-1]):
        assert secret not in told.stderr


def test_two_keys_of_one_name_are_an_error(sqlite: Place, say: Say) -> None:
    told = say("--store", sqlite.address, "list", env={"STEPWELL_KEYS": f"a={written(KEY)},a={written(OTHER)}"})
    assert told.exit_code == 2
    assert "two keys in $STEPWELL_KEYS have the name 'a'" in told.stderr


@pytest.mark.parametrize("text", ["tool = ", "[tool.stepwell]\nstore = 3\n"])
def test_a_project_that_says_nonsense_is_an_error(say: Say, tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    told = say("list")
    assert told.exit_code == 2
    assert "pyproject.toml" in told.stderr


def test_reading_leaves_the_files_as_they_were(say: Say, tmp_path: Path) -> None:
    Place("runs", FileCheckpointStorage(tmp_path / "runs")).fill()
    shutil.copytree(tmp_path / "runs", tmp_path / "before")

    def content(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    for asked in (["list"], ["requests"], ["show", "count-1"], ["events", "count-1"]):
        assert say("--store", "runs", *asked).exit_code == 0
    assert content(tmp_path / "runs") == content(tmp_path / "before")
