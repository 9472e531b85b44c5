"""Whatever is said to the command line, and whatever lies where it looks: it ends as it says it ends.

The commands and what they take are asked of the program itself, so that a new one is attacked from its first day.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import FileCheckpointStorage, SQLiteCheckpointStorage
from stepwell.admin import export_to
from stepwell.cli.app import COMMANDS, stepwell
from tests.hostile.arguments import said
from tests.hostile.texts import CORPUS
from tests.support.command_line import Place

CODES = {0, 1, 2, 3, 4, 5}  # 130 is for whoever interrupts, and nobody does
REFUSED = {2, 3, 5}
SHOP = """
from tests.support.operating_runs import asking as _asking, counting as _counting
workflow = _counting(None)
def asking():
    return _asking(None)
def fails():
    raise RuntimeError("no workflow today")
"""
HURRIED = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])


@cache
def sound() -> Path:
    """A folder with two stores of the same two runs, a run that was exported, and code. It is copied, never used."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    for storage in (SQLiteCheckpointStorage(folder / "runs.db"), FileCheckpointStorage(folder / "files")):
        Place("", storage).fill()

    async def export() -> None:
        async with SQLiteCheckpointStorage(folder / "runs.db") as storage:
            await export_to(folder / "run.stepwell", storage, "refund-7")

    asyncio.run(export())
    (folder / "shop.py").write_text(SHOP)
    (folder / "data").write_bytes(b"")
    (folder / "number").write_bytes(b"2")
    return folder


@contextmanager
def folder_of(**files: bytes) -> Iterator[Path]:
    """A copy of it to work in, with some files changed."""
    before, path = Path.cwd(), list(sys.path)
    with TemporaryDirectory() as name:
        folder = Path(name) / "here"
        shutil.copytree(sound(), folder)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            sys.path[:] = path


def invoked(arguments: list[str], typed: bytes = b"") -> Result:
    known = {"STEPWELL_STORE": "sqlite:///runs.db", "STEPWELL_HOME": None, "NO_COLOR": None, "STEPWELL_KEYS": None}
    return CliRunner().invoke(stepwell, arguments, input=typed, env=known)


def check(done: Result, arguments: list[str]) -> None:
    """It ended in one of the ways that are documented, and said why if it could not do what it was told."""
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code in CODES, done.stderr
    assert "Traceback" not in done.output
    assert "not foreseen" not in done.stderr
    if done.exit_code in REFUSED:
        assert "stepwell: " in done.stderr
    if done.exit_code == 0 and "--json" in arguments:
        documents(done.stdout)


def documents(printed: str) -> list[Any]:
    """What was printed: one document, or one a line."""
    try:
        return [json.loads(printed)]
    except ValueError:
        return [json.loads(line) for line in printed.splitlines()]


def kept(folder: Path) -> dict[str, object]:
    """What the two stores hold, but for who drives what."""
    db = sqlite3.connect(folder / "runs.db")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'") if name != "leases"]
    rows: dict[str, object] = {name: sorted(map(repr, db.execute(f"SELECT * FROM {name}"))) for name in tables}
    db.close()
    return rows | {str(path.relative_to(folder)): without_leases(path) for path in (folder / "files").rglob("*.json*")}


def without_leases(path: Path) -> list[bytes]:
    """The lines of a file, without those of leases and their bodies."""
    lines = path.read_bytes().splitlines()
    leases = {n for n, line in enumerate(lines) if line.startswith(b'{"line":"lease"')}
    return [line for n, line in enumerate(lines) if not {n, n - 1} & leases]


BYTES = st.binary(max_size=50) | st.sampled_from([text for text in CORPUS.values() if len(text) < 1_000_000])


@st.composite
def spoilt(draw: st.DrawFn, content: bytes) -> bytes:
    """A file that was cut, written over in places, or exchanged."""
    match draw(st.sampled_from(["cut", "over", "over", "bytes"])):
        case "cut":
            return content[: draw(st.integers(0, max(0, len(content) - 1)))]
        case "over":
            changed = bytearray(content)
            for _ in range(draw(st.integers(1, 4))):
                at = draw(st.integers(0, len(content)))
                changed[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
            return bytes(changed)
    return draw(BYTES)


# Workers and servers work until they are told to stop: they would never end here. `migrate` may load
# procrastinate, which starts a process to find a library.
ENDING = [
    pytest.param(name, marks=pytest.mark.process) if name == "migrate" else name
    for name in COMMANDS
    if name not in ("worker", "serve", "studio")
]


@pytest.mark.parametrize("name", ENDING)
@HURRIED
@given(st.data())
def test_any_arguments_end_a_command_as_documented(name: str, data: st.DataObject) -> None:
    arguments, typed = data.draw(said(stepwell, name)), data.draw(st.sampled_from([b"", b"y\n", b"1\n\n", b"\xff\n"]))
    with folder_of(data=data.draw(BYTES)) as folder:
        before = kept(folder)
        done = invoked(arguments, typed)
        check(done, arguments)
        if done.exit_code in REFUSED:
            assert kept(folder) == before


PLAIN = {"show": ["refund-7"], "events": ["refund-7"], "tail": ["refund-7"], "diff": ["refund-7@0", "refund-7@1"]}
"""Commands that read, with arguments that would do."""


@HURRIED
@given(st.data())
def test_a_spoilt_store_ends_a_command_as_documented(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*COMMANDS, *PLAIN, "list", "requests"]))
    arguments = [name, *PLAIN.get(name, [])] if data.draw(st.booleans()) else data.draw(said(stepwell, name))
    with folder_of() as folder:
        files = sorted(path for path in (folder / "files").rglob("*") if path.is_file())
        victim = data.draw(st.sampled_from([folder / "runs.db", *files]))
        victim.write_bytes(data.draw(spoilt(victim.read_bytes())))
        store = "sqlite:///runs.db" if victim.name == "runs.db" else "files"
        check(invoked(["--store", store, *arguments]), arguments)


@HURRIED
@given(st.data())
def test_a_spoilt_file_is_imported_wholly_or_not_at_all(data: st.DataObject) -> None:
    exported = (sound() / "run.stepwell").read_bytes()
    with folder_of(data=data.draw(spoilt(exported))) as folder:
        before = kept(folder)
        done = invoked(arguments := ["import", "data", "--as", "new", "--inspect-only"])
        check(done, arguments)
        if done.exit_code:
            assert kept(folder) == before
        else:
            assert invoked(["show", "new"]).exit_code == 0


PROJECTS = [
    "",
    "[tool.stepwell]",
    "[tool]\nstepwell = 1",
    "tool = 1",
    "[tool.stepwell]\nstore = 1",
    "[[tool.stepwell]]",
]


@HURRIED
@given(st.binary(max_size=40) | st.sampled_from(PROJECTS).map(str.encode), BYTES)
def test_any_project_and_any_keys_are_read_or_refused(project: bytes, keys: bytes) -> None:
    with folder_of(**{"pyproject.toml": project, "keys": keys}):
        for known in ({"STEPWELL_STORE": None}, {"STEPWELL_KEYS_FILE": "keys"}):
            done = CliRunner().invoke(
                stepwell,
                ["list", "--json"],
                env={"STEPWELL_KEYS": None, "STEPWELL_HOME": None, "STEPWELL_STORE": "files", **known},
            )
            check(done, ["list", "--json"])
