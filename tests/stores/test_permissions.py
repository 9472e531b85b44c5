"""Who may read what is stored and exported: its owner alone, unless told otherwise, whatever the umask."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import DefinitionError, FileCheckpointStorage, Message, SQLiteCheckpointStorage
from stepwell.admin import export_to, report_to
from stepwell.cli.app import stepwell
from stepwell.declarative import JsonTranscriptStore
from tests.support.operating_runs import Order, asking, counting


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The permissions of everything below a folder."""
    return {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in sorted(root.rglob("*"))}


def wrong(root: Path, files: int, folders: int) -> dict[str, str]:
    wanted = {name: folders if (root / name).is_dir() else files for name in modes(root)}
    return {name: oct(mode) for name, mode in modes(root).items() if mode != wanted[name]}


async def fill(storage: Any) -> None:
    """A run that is done, one that waits, and an answer for it."""
    await counting(storage).run(1, run_id="count")
    await asking(storage).run(Order(7, ["tea"]), run_id="Ask/1", tags={"a": "b"})
    await storage._store.send("Ask/1", "input/0/x", b'{"kind":"input","format":1,"value":1}')
    await storage._store.write_log("Ask/1", 1, "1.0", b"{}")


async def test_a_new_store_is_its_owners_alone(umask: int, tmp_path: Path) -> None:
    sqlite = SQLiteCheckpointStorage(tmp_path / "a" / "b" / "runs.db")
    files = FileCheckpointStorage(tmp_path / "c" / "d" / "runs")
    for storage in (sqlite, files):
        await fill(storage)
    assert {"a/b/runs.db-wal", "a/b/runs.db-shm", "c/d/runs/stepwell.json"} <= set(modes(tmp_path))
    assert wrong(tmp_path, 0o600, 0o700) == {}
    for storage in (sqlite, files):
        await storage.compact()
        await storage.close()
    assert wrong(tmp_path, 0o600, 0o700) == {}


async def test_a_store_in_a_folder_that_was_there_is_closed_and_the_folder_left_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(0o777)
    async with FileCheckpointStorage(root) as files, SQLiteCheckpointStorage(root / ".sqlite" / "runs.db") as sqlite:
        await fill(files)
        await fill(sqlite)
    assert root.stat().st_mode & 0o777 == 0o777
    assert wrong(root, 0o600, 0o700) == {}


async def test_a_mode_that_is_asked_for_is_given_exactly(umask: int, tmp_path: Path) -> None:
    sqlite = SQLiteCheckpointStorage(tmp_path / "a" / "runs.db", mode=0o660)
    files = FileCheckpointStorage(tmp_path / "runs", mode=0o640)
    for storage in (sqlite, files):
        await fill(storage)
    assert wrong(tmp_path / "a", 0o660, 0o770) == {}
    assert wrong(tmp_path / "runs", 0o640, 0o750) == {}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o770
    await sqlite.close()
    await files.close()


async def test_a_store_that_is_there_keeps_its_permissions_also_for_what_is_new(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        paths = tmp_path / "runs.db", tmp_path / "runs"
        for storage in (SQLiteCheckpointStorage(paths[0], mode=0o644), FileCheckpointStorage(paths[1], mode=0o644)):
            await counting(storage).run(1, run_id="old")
            await storage.close()
        os.umask(0o077)
        for storage in (SQLiteCheckpointStorage(paths[0]), FileCheckpointStorage(paths[1])):
            await fill(storage)
            assert wrong(tmp_path, 0o644, 0o755) == {}
            await storage.close()
    finally:
        os.umask(before)


async def test_the_group_of_a_folder_goes_on_to_new_folders(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o2770)
    async with FileCheckpointStorage(root, mode=0o660) as storage:
        await fill(storage)
    folders = [path for path in root.rglob("*") if path.is_dir()]
    assert folders
    assert {path.stat().st_mode & 0o7777 for path in folders} == {0o2770}


@pytest.mark.parametrize("mode", [0o400, 0o060, 0o700, 0o1600, "600", True])
def test_what_is_not_a_mode_for_files_is_refused(mode: Any, tmp_path: Path) -> None:
    for kind in (FileCheckpointStorage, SQLiteCheckpointStorage):
        with pytest.raises(DefinitionError, match="mode must be permissions for the files of a store"):
            kind(tmp_path / "x", mode=mode)


async def test_exports_and_reports_are_their_owners_alone(umask: int, tmp_path: Path) -> None:
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        await fill(storage)
        await export_to(tmp_path / "run.stepwell", storage, "count")
        await report_to(tmp_path / "run.html", storage, "count")
    for more in (["-o", str(tmp_path / "2.stepwell")], ["--html", "-o", str(tmp_path / "2.html")]):
        said = ["export", "count", "--store", f"sqlite:///{tmp_path / 'runs.db'}", *more]
        done = await asyncio.to_thread(CliRunner().invoke, stepwell, said)
        assert done.exit_code == 0, done.output
    assert {"run.stepwell", "run.html", "2.stepwell", "2.html"} <= set(modes(tmp_path))
    assert wrong(tmp_path, 0o600, 0o700) == {}


async def test_a_file_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    for name in ("run.stepwell", "run.html"):
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(0o664)
    (tmp_path / "run.stepwell.part").write_bytes(b"left by one who was killed")
    async with SQLiteCheckpointStorage(tmp_path / "db" / "runs.db") as storage:
        await fill(storage)
        await export_to(tmp_path / "run.stepwell", storage, "count")
        await report_to(tmp_path / "run.html", storage, "count")
    assert {name: mode for name, mode in modes(tmp_path).items() if "." in name and "/" not in name} == {
        "run.stepwell": 0o664,
        "run.html": 0o664,
    }
    assert b"old" not in (tmp_path / "run.html").read_bytes()


async def test_transcripts_are_their_owners_alone(umask: int, tmp_path: Path) -> None:
    store = JsonTranscriptStore(tmp_path / "a" / "transcripts")
    await store.append("session", "agent", [Message("user", "hello")])
    assert len(modes(tmp_path)) > 2
    assert wrong(tmp_path, 0o600, 0o700) == {}
