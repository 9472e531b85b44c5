"""A process that dies in the middle of an agent's turn, or of a function, repeats nothing that was done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path, name: str, kill_at: int = 0) -> str:
    """Run a program in a folder and return what it printed; empty if it was killed."""
    command = [sys.executable, "-m", "tests.compat.killed_programs", name, str(kill_at)]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (0, -9), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["agent", "streamed_agent", "sequence", "magentic", "sub_workflow", "function"])
def test_nothing_is_repeated(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    expected = start(whole, name)
    calls = (whole / "calls.txt").read_text().splitlines()
    assert len(calls) >= 4
    for kill_at in range(2, len(calls) + 1):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        assert start(folder, name, kill_at) == ""
        assert start(folder, name, kill_at) == expected
        assert (folder / "calls.txt").read_text().splitlines() == calls, kill_at
