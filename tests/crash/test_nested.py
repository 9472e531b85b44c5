"""Killed on the third floor, again and again, in a new process each time: what had finished on any floor ran once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("nested_worker.py")
BEFORE = ["top in", "ground in", "dig", "left", "right", "join"]
AFTER = ["said", "cellar out", "ground out", "top out"]


class World:
    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path

    def start(self, *point: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(WORKER), self.kind, str(self.path), *point])

    def killed_at(self, point: str) -> None:
        """A process that is killed once it says that it is there."""
        seen = len(self.lines("at"))
        process = self.start(point)
        deadline = time.monotonic() + 600
        while len(self.lines("at")) == seen:
            assert process.poll() is None, f"it ended by itself before {point!r}"
            assert time.monotonic() < deadline, f"it never came to {point!r}"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def ends(self) -> None:
        assert self.start().wait(timeout=600) == 0
        assert self.lines("output") == ["['x True']"]

    def lines(self, word: str) -> list[str]:
        book = self.path / "ledger"
        lines = book.read_text().splitlines() if book.exists() else []
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]

    def ran(self) -> dict[str, int]:
        """How often each handler began; each under one key, however often."""
        keys = [line.rpartition(" ") for line in self.lines("ran")]
        assert len({key for _, _, key in keys}) == len({name for name, _, _ in keys})
        return dict(Counter(name for name, _, _ in keys))


@pytest.fixture(params=["sqlite", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


@pytest.mark.parametrize("point", ["dig", "right", "said"])
def test_killed_on_the_third_floor_only_what_was_cut_off_runs_again(point: str, world: World) -> None:
    world.killed_at(point)
    world.ends()
    assert world.ran() == {name: 2 if name == point else 1 for name in [*BEFORE, *AFTER]}


def test_killed_at_every_step_of_every_floor_and_while_it_waits_nothing_is_repeated(world: World) -> None:
    points = [*(name for name in BEFORE if name != "left"), "waiting", *AFTER]  # "left" must be over for "right"
    for point in points:
        world.killed_at(point)
    world.ends()
    assert world.ran() == {name: 1 if name == "left" else 2 for name in [*BEFORE, *AFTER]}


def test_what_was_told_of_any_floor_is_told_once(world: World) -> None:
    """The events of a floor are told by the process that made the commit, and by no other."""
    for point in ("join", "waiting", "cellar out"):
        world.killed_at(point)
    world.ends()
    told = world.lines("told")
    assert len(told) == len(set(told))
