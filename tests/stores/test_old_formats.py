"""Stores that an older Holdfast wrote. The files in `data` were made by that version and stay as they are."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.core.errors import CommitConflict
from holdfast.durable.ownership import this_process
from holdfast.durable.ports import Along, Store, Wake
from holdfast.stores.file import FileStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.rules_samples import (
    about,
    fill,
    listed,
    meaning,
    meanings,
    names,
    numbers,
    places,
    question,
    record,
)

DATA = Path(__file__).parent / "data"

STORES: dict[str, Callable[[Path], Store]] = {
    "format-1.db": SQLiteStore,
    "format-1": FileStore,
    "format-2.db": SQLiteStore,
    "format-2": FileStore,
    "format-3.db": SQLiteStore,
}
NOW_OF = {True: 3, False: 4}  # the present format of a directory, and of a file

FIRST = record("r", 0, body={"state": 0})
OTHER = record("Other Run", 0, workflow="Other Workflow", outputs=True)
SECOND = record("r", 1, frame=False, outputs=True, status="waiting", body={"changed": 1})


def copied(name: str, folder: Path) -> Path:
    if name.endswith(".db"):
        return Path(shutil.copy(DATA / name, folder))
    return Path(shutil.copytree(DATA / name, folder / name))


def was_of(path: Path) -> int:
    """The format of a store before it was written to, by its name."""
    return int(path.stem.rpartition("-")[2])


def now_of(path: Path) -> int:
    """The present format of such a store."""
    return NOW_OF[path.is_dir()]


def format_of(path: Path) -> object:
    if path.is_dir():
        return json.loads((path / "holdfast.json").read_text())["format"]
    with sqlite3.connect(path) as db:
        found = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return found


@pytest.fixture(params=STORES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return copied(request.param, tmp_path)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    assert format_of(path) == was_of(path)
    made = STORES[path.name](path)
    yield made
    await made.close()


async def test_an_older_store_is_read(store: Store, path: Path) -> None:
    assert places(await store.entries()) == [("r", 0), ("Other Run", 0), ("r", 1)]
    assert meanings(await store.chain("r", 1)) == meanings([FIRST, SECOND])
    assert meaning(await store.head("Other Run")) == meaning(OTHER)
    assert await store.locate("r-1") == SECOND.entry
    assert await store.newest() == SECOND.entry
    assert await store.recall("r", 2) == {"k": b'{"done":true}'}
    assert await store.recall("new", 0) == {"k": b"1"}
    knew_mail = was_of(path) > 1
    assert await store.mail("r") == ([("letter", b"2")] if knew_mail else [])
    assert names(await store.pending()) == ([("r", "old")] if knew_mail else [])
    assert await store.wakes() == ([Wake("r", "w", "2026-01-01")] if knew_mail else [])


async def test_the_runs_of_an_older_store_are_listed(store: Store) -> None:
    assert await store.runs() == [listed(SECOND), listed(OTHER)]
    assert await store.runs(workflow="w") == [listed(SECOND)]
    assert await store.runs(status="running") == [listed(OTHER)]
    assert await store.runs(tags={"team": "red"}) == []
    third = record("r", 2, status="done", at="2026-02-01T00:00:00Z")
    await store.append(third, Along(about=about(team="red")))
    await fill(store, "new", 1)
    expected = listed(third, began=FIRST.entry.at, about=about(team="red"))
    assert await store.runs(tags={"team": "red"}) == [expected]
    assert await store.runs() == [expected, listed(record("new", 0)), listed(OTHER)]
    assert await store.drop("r")
    assert await store.remove("Other Run", 0)
    assert await store.runs() == [listed(record("new", 0))]


async def test_a_run_of_an_older_store_begins_to_keep_only_its_latest(store: Store) -> None:
    await store.append(record("r", 2, fleeting=True), Along(drop_below=2))
    assert numbers(await store.history("r")) == [1, 2]
    assert [entry.fleeting for entry in await store.entries()] == [False, False, True]
    assert places(await store.entries(limit=2)) == [("r", 1), ("r", 2)]


async def test_the_claims_of_an_older_store_get_numbers(store: Store) -> None:
    first = await store.claim("r", this_process("mine"), seconds=60)  # the old claim is over
    assert await store.claim("r", this_process("mine"), seconds=60) > first
    with pytest.raises(CommitConflict):
        await store.append(record("r", 2), Along(fence=first))


async def test_an_older_store_is_continued(store: Store, path: Path) -> None:
    assert await store.post("r", "answer", b"true")
    assert await store.post("r", "used", b"1") == (was_of(path) == 1)
    along = Along(settled=2, consumed=("answer",), asked=(question("r", "q"),), closed=("old",), wake="2026")
    await store.append(record("r", 2), along)
    await fill(store, "new", 1)
    assert not await store.post("r", "answer", b"false")
    assert meanings(await store.history("r")) == meanings([FIRST, SECOND, record("r", 2)])
    assert await store.recall("r", 2) == {}
    assert await store.recall("new", 0) == {"k": b"1"}
    assert names(await store.pending()) == [("r", "q")]
    assert [wake.run_id for wake in await store.wakes()] == ["r"]
    assert await store.remove("Other Run", 0)
    await store.close()
    assert format_of(path) == now_of(path)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_directory_stays_as_it_was_until_it_is_written_to(tmp_path: Path, number: int) -> None:
    path = copied(f"format-{number}", tmp_path)
    store = FileStore(path)
    assert len(await store.entries()) == 3
    assert len(await store.runs()) == 2
    assert format_of(path) == number
    await store.post("r", "k", b"1")
    assert format_of(path) == now_of(path)
    await store.close()


async def test_a_mark_that_a_newer_one_has_set_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    path = copied("format-1", tmp_path)
    store = FileStore(path)
    assert len(await store.entries()) == 3
    (path / "holdfast.json").write_text(f'{{"format": {now_of(path) + 1}}}')
    with pytest.raises(Exception, match="newer"):
        await store.post("r", "k", b"1")
    assert format_of(path) == now_of(path) + 1
    await store.close()


OPEN_AT_ONCE = """
import asyncio, sys
from holdfast.stores.file import FileStore
from holdfast.stores.sqlite import SQLiteStore

async def main():
    store = {kind}({path!r})
    print("ready", flush=True)
    input()
    assert await store.{call}
    await store.close()

asyncio.run(main())
"""


def test_processes_that_open_an_older_store_at_once_all_succeed(path: Path) -> None:
    kind = STORES[path.name].__name__  # type: ignore[attr-defined]
    calls = ["entries()", "post('r', 'k', b'1')", "post('r', 'l', b'1')", "history('r')"]
    programs = [OPEN_AT_ONCE.format(kind=kind, path=str(path), call=call) for call in calls]
    opening = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for program in programs
    ]
    for process in opening:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in opening:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in opening:
        process.communicate()
    assert [process.returncode for process in opening] == [0, 0, 0, 0]

    async def check() -> None:
        store = STORES[path.name](path)
        assert sorted(key for key, _ in await store.mail("r") if key != "letter") == ["k", "l"]
        assert len(await store.entries()) == 3
        await store.close()

    asyncio.run(check())
    assert format_of(path) == now_of(path)
    if path.is_file():
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()


@pytest.mark.parametrize("name", ["format-1.db", "format-2.db", "format-3.db"])
async def test_a_migration_that_fails_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.stores import sqlite_schema

    path = copied(name, tmp_path)
    *done, last = sqlite_schema.STEPS
    broken = last + "CREATE TABLE commits (x);\n"
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "STEPS", (*done, broken))
        store = SQLiteStore(path)
        with pytest.raises(Exception, match="commits"):
            await store.append(record("r", 2))
        await store.close()
    assert format_of(path) == was_of(path)
    store = SQLiteStore(path)
    await store.append(record("r", 2))
    assert places(await store.entries()) == [("r", 0), ("Other Run", 0), ("r", 1), ("r", 2)]
    await store.close()


@pytest.mark.parametrize("name", ["format-1.db", "format-2.db", "format-3.db"])
async def test_a_new_file_and_a_migrated_one_have_the_same_tables(name: str, tmp_path: Path) -> None:
    old, new = copied(name, tmp_path), tmp_path / "new.db"
    for path in (old, new):
        store = SQLiteStore(path)
        await store.entries()
        await store.close()
    tables: list[list[object]] = []
    for path in (old, new):
        with sqlite3.connect(path) as db:
            found = db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
        db.close()
        tables.append([(kind, name, plain(text)) for kind, name, text in found if name != "sqlite_sequence"])
    assert tables[0] == tables[1]


def plain(text: str | None) -> str | None:
    """Without what only files of the first two formats have: it makes no difference but in what a commit costs."""
    return None if text is None else " ".join(text.replace("AUTOINCREMENT", "").replace(" ,", ",").split())
