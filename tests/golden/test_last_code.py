"""The code of the last format and the present one on the same store: nothing is lost, nobody does harm unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from golden_last_code import LAST, build_counting
from golden_later import build_nested
from golden_workflow import build_asking
from holdfast import FileCheckpointStorage, SQLiteCheckpointStorage, WorkflowRunState

HERE = Path(__file__).parent
LAST_CODE = HERE / "v3" / "holdfast.zip"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (LAST_CODE, HERE.parent)))}


def command(kind: str, path: Path, what: str) -> list[str]:
    return [sys.executable, str(HERE.parent / "golden_last_code.py"), kind, str(path), what]


def with_last_code(kind: str, path: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(kind, path, what), env=ENV, capture_output=True, text=True, timeout=120)


def begun_with_last_code(kind: str, path: Path, what: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command(kind, path, what), env=ENV, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(params=["sqlite", "file"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(kind: str, path: Path) -> Any:
    return SQLiteCheckpointStorage(path) if kind == "sqlite" else FileCheckpointStorage(path)


async def test_what_the_last_code_began_the_present_one_ends(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    assert with_last_code(kind, path, "begin").returncode == 0
    async with opened(kind, path) as storage:
        listed = {run.run_id: run.status for run in await storage.list_runs()}
        assert listed["waiting"] is listed["nested"] is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        answered = await build_asking(storage).run(run_id="waiting", responses={"golden question": {"good": True}})
        assert answered.get_outputs() == ["gold is good"]
        sold = await build_nested(storage).run(run_id="nested", responses={"deal 3": {"done": True}})
        assert sold.get_outputs() == ["clerk: offered for 3", "clerk: sold for 3"]


async def test_what_the_present_code_has_written_the_last_one_refuses_and_leaves_as_it_is(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    async with opened(kind, path) as storage:
        await build_asking(storage).run("gold", run_id="waiting")
    before = contents(path)
    ended = with_last_code(kind, path, "answer")
    assert ended.returncode == 1
    assert "written by a newer Holdfast" in ended.stderr
    assert contents(path) == before
    async with opened(kind, path) as storage:
        responses = {"golden question": {"good": True}}
        assert (await build_asking(storage).run(run_id="waiting", responses=responses)).get_outputs() == [
            "gold is good"
        ]


def contents(path: Path) -> dict[str, bytes]:
    """What is in a store, whatever files SQLite makes beside it for those who only look."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one.relative_to(path.parent)): one.read_bytes() for one in files if one.name != ".lock"}


async def test_a_run_of_the_last_code_that_is_under_way_when_the_present_one_comes_is_not_lost(
    kind: str, tmp_path: Path
) -> None:
    """As in a deployment: the old program is still at work. It may end the run or be refused; then we end it."""
    path = tmp_path / "store"
    old = begun_with_last_code(kind, path, "count")
    assert old.stdin is not None
    assert old.stdout is not None
    assert old.stdout.readline() == "at 1\n"
    old.stdin.write("\n")
    old.stdin.flush()
    assert old.stdout.readline() == "at 2\n"
    async with opened(kind, path) as storage:
        await build_asking(storage).run("gold", run_id="beside")  # the store is of the present format from here on
        said, complaint = old.communicate("\n" * LAST, timeout=120)
        done = Counter(int(line.split()[1]) for line in said.splitlines() if line.startswith("at"))
        ours: list[int] = []

        async def note(number: int) -> None:
            ours.append(number)

        result = await build_counting(storage, note).run(run_id="counting")
    assert result.get_outputs() == list(range(1, LAST + 1))
    if old.returncode == 0:
        assert ours == []
    else:
        assert "Holdfast" in complaint or "CommitConflict" in complaint
    assert all(done[number] <= 1 for number in done)
    assert len(ours) == len(set(ours))
