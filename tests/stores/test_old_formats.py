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

from holdfast.durable.ports import Along, Store
from holdfast.stores.file import FileStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.rules_samples import fill, meaning, meanings, names, places, question, record

DATA = Path(__file__).parent / "data"

STORES: dict[str, Callable[[Path], Store]] = {"format-1.db": SQLiteStore, "format-1": FileStore}

FIRST = record("r", 0, body={"state": 0})
OTHER = record("Other Run", 0, workflow="Other Workflow", outputs=True)
SECOND = record("r", 1, frame=False, outputs=True, status="waiting", body={"changed": 1})


def copied(name: str, folder: Path) -> Path:
    if name.endswith(".db"):
        return Path(shutil.copy(DATA / name, folder))
    return Path(shutil.copytree(DATA / name, folder / name))


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
    assert format_of(path) == 1
    made = STORES[path.name](path)
    yield made
    await made.close()


async def test_a_store_of_format_1_is_read(store: Store) -> None:
    assert places(await store.entries()) == [("r", 0), ("Other Run", 0), ("r", 1)]
    assert meanings(await store.chain("r", 1)) == meanings([FIRST, SECOND])
    assert meaning(await store.head("Other Run")) == meaning(OTHER)
    assert await store.locate("r-1") == SECOND.entry
    assert await store.newest() == SECOND.entry
    assert await store.recall("r", 2) == {"k": b'{"done":true}'}
    assert await store.recall("new", 0) == {"k": b"1"}
    assert await store.mail("r") == []
    assert await store.pending() == []
    assert await store.wakes() == []


async def test_a_store_of_format_1_is_continued(store: Store, path: Path) -> None:
    assert await store.post("r", "answer", b"true")
    await store.append(record("r", 2), Along(settled=2, consumed=("answer",), asked=(question("r", "q"),), wake="2026"))
    await fill(store, "new", 1)
    assert not await store.post("r", "answer", b"false")
    assert meanings(await store.history("r")) == meanings([FIRST, SECOND, record("r", 2)])
    assert await store.recall("r", 2) == {}
    assert await store.recall("new", 0) == {"k": b"1"}
    assert names(await store.pending()) == [("r", "q")]
    assert [wake.run_id for wake in await store.wakes()] == ["r"]
    assert await store.remove("Other Run", 0)
    await store.close()
    assert format_of(path) == 2


async def test_a_directory_of_format_1_stays_so_until_it_is_written_to(tmp_path: Path) -> None:
    path = copied("format-1", tmp_path)
    store = FileStore(path)
    assert len(await store.entries()) == 3
    assert format_of(path) == 1
    await store.post("r", "k", b"1")
    assert format_of(path) == 2
    await store.close()


async def test_a_mark_that_a_newer_one_has_set_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    path = copied("format-1", tmp_path)
    store = FileStore(path)
    assert len(await store.entries()) == 3
    (path / "holdfast.json").write_text('{"format": 3}')
    with pytest.raises(Exception, match="newer"):
        await store.post("r", "k", b"1")
    assert format_of(path) == 3
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


def test_processes_that_open_a_store_of_format_1_at_once_all_succeed(path: Path) -> None:
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
        assert sorted(await store.mail("r")) == [("k", b"1"), ("l", b"1")]
        assert len(await store.entries()) == 3
        await store.close()

    asyncio.run(check())
    assert format_of(path) == 2
    if path.is_file():
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.stores import sqlite_schema

    path = copied("format-1.db", tmp_path)
    broken = sqlite_schema.SECOND + "CREATE TABLE commits (x);\n"
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "STEPS", (sqlite_schema.FIRST, broken))
        store = SQLiteStore(path)
        with pytest.raises(Exception, match="commits"):
            await store.append(record("r", 2))
        await store.close()
    assert format_of(path) == 1
    store = SQLiteStore(path)
    await store.append(record("r", 2))
    assert places(await store.entries()) == [("r", 0), ("Other Run", 0), ("r", 1), ("r", 2)]
    await store.close()


async def test_a_new_file_and_a_migrated_one_have_the_same_tables(tmp_path: Path) -> None:
    old, new = copied("format-1.db", tmp_path), tmp_path / "new.db"
    for path in (old, new):
        store = SQLiteStore(path)
        await store.entries()
        await store.close()
    tables: list[list[object]] = []
    for path in (old, new):
        with sqlite3.connect(path) as db:
            tables.append(db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall())
        db.close()
    assert tables[0] == tables[1]
