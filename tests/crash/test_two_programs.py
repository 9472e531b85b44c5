"""Several programs hold one run. Whoever drives it may be killed: another one takes over, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import FileCheckpointStorage, SQLiteCheckpointStorage

HOLDER = Path(__file__).parent / "holder.py"
ALL = "result IDLE_WITH_PENDING_REQUESTS [1, 2, 3, 4, 5, 6]"


class World:
    """A directory, and the programs that hold the run that is kept in it."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        self._programs: list[subprocess.Popen[str]] = []

    def begin(self, what: str, *more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, str(HOLDER), self.kind, str(self.path), what, *map(str, more)]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._programs.append(program)
        return program

    def ledger(self) -> list[str]:
        """What was written down, without who did."""
        return [line.partition(" ")[2] for line in self._lines()]

    def who(self, line: str) -> int:
        """The process that wrote it down last."""
        return next(int(pid) for pid, _, rest in (one.partition(" ") for one in self._lines()[::-1]) if rest == line)

    def until(self, line: str, times: int = 1) -> int:
        """Wait until it is written down; by which process."""
        wait_for(lambda: self.ledger().count(line) >= times, f"{line!r} never came: {self.ledger()}")
        return self.who(line)

    def let_pass(self, *numbers: int) -> None:
        for number in numbers:
            (self.path / f"pass-{number}").touch()

    def pending_signals(self) -> list[str]:
        """What is posted to the run and not taken in."""
        kinds: dict[str, Any] = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}
        storage = kinds[self.kind](self.path / "runs")

        async def read() -> list[str]:
            async with storage:
                return [signal.key for signal in await storage._store.pending_signals("r")]

        return asyncio.run(read())

    def end(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
            if program.stdout is not None:
                program.stdout.close()

    def _lines(self) -> list[str]:
        book = self.path / "ledger"
        return book.read_text().splitlines() if book.exists() else []


def wait_for(fact: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 300  # only so that a broken program does not stop all others
    while not fact():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def said(program: subprocess.Popen[str]) -> list[str]:
    return program.communicate()[0].splitlines()


@pytest.fixture(params=["sqlite", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(request.param, tmp_path)
    yield made
    made.end()


def test_the_driver_is_killed_again_and_again_and_whoever_else_holds_the_run_takes_over(world: World) -> None:
    programs = {program.pid: program for program in [world.begin("start")]}
    world.until("ran 1")
    programs |= {program.pid: program for program in (world.begin("watch") for _ in range(3))}
    for number in (1, 3, 5):
        driver = world.until(f"ran {number}")
        os.kill(driver, signal.SIGKILL)
        programs.pop(driver).communicate()
        world.let_pass(number, number + 1)
    (survivor,) = programs.values()
    lines = said(survivor)
    assert lines[-1] == ALL
    told = [line.split() for line in lines[:-1]]
    assert [int(one[3]) for one in told] == [1, 2, 3, 4, 5, 6]
    numbers = [int(one[1]) for one in told]
    assert numbers == sorted(set(numbers))
    ran = world.ledger()
    assert {number: ran.count(f"ran {number}") for number in range(1, 7)} == {1: 2, 2: 1, 3: 2, 4: 1, 5: 2, 6: 1}


def test_an_answer_is_not_lost_though_whoever_gave_it_and_whoever_drove_the_run_are_killed(world: World) -> None:
    driver = world.begin("start")
    world.until("ran 1")
    answering = world.begin("respond", 42)
    answering.communicate()
    assert answering.returncode == -signal.SIGKILL  # it died by its own hand, after respond() had returned
    driver.kill()
    driver.communicate()
    world.let_pass(*range(1, 7))
    assert said(world.begin("look"))[-1] == "result IDLE [1, 2, 42, 3, 4, 5, 6]"
    assert world.ledger().count("was told 42") == 1


def test_an_answer_that_was_given_by_a_program_that_is_gone_is_taken_in_by_the_one_that_drives(world: World) -> None:
    driver = world.begin("start")
    world.until("ran 1")
    world.begin("respond", 42).communicate()
    world.begin("send", 6).communicate()
    world.let_pass(*range(1, 7))
    assert sorted(said(driver)[-1].split("[")[1][:-1].split(", ")) == ["1", "2", "3", "4", "42", "5", "6", "6"]
    assert world.ledger().count("was told 42") == 1
    assert world.pending_signals() == []


def test_what_is_sent_to_a_run_that_nobody_drives_is_there_for_the_next_who_looks(world: World) -> None:
    world.let_pass(*range(1, 7))
    answering = world.begin("start")
    assert said(answering)[-1] == ALL
    for number in (5, 6):
        sending = world.begin("send", number)
        sending.communicate()
        assert sending.returncode == -signal.SIGKILL
    result = said(world.begin("look"))[-1]
    assert sorted(result.split("[")[1][:-1].split(", ")) == ["1", "2", "3", "4", "5", "5", "6", "6", "6"]


def test_a_run_is_stopped_from_another_program_and_resumed_by_a_third(world: World) -> None:
    driver = world.begin("start")
    world.let_pass(1)
    world.until("ran 2")
    assert said(world.begin("cancel"))[0] == "ended CANCELLED"
    assert said(driver)[-1] == "result CANCELLED [1]"
    assert world.who("cleaned 2") == driver.pid
    world.let_pass(*range(2, 7))
    resumed = world.begin("start")
    assert said(resumed)[-1] == ALL
    assert [world.ledger().count(f"ran {number}") for number in range(1, 7)] == [1, 2, 1, 1, 1, 1]


def test_whoever_stops_a_run_does_so_itself_if_the_driver_is_killed_before_it_hears_of_it(world: World) -> None:
    driver = world.begin("start")
    world.until("ran 1")
    driver.send_signal(signal.SIGSTOP)  # it cannot hear
    stopping = world.begin("cancel")
    wait_for(lambda: any(key.startswith("cancel/") for key in world.pending_signals()), "the wish was never posted")
    driver.kill()
    driver.communicate()
    assert said(stopping) == ["ended CANCELLED", "result CANCELLED []"]
    assert world.ledger() == ["ran 1"]
    assert world.pending_signals() == []


def test_the_wish_of_a_program_that_was_killed_is_obeyed_by_the_next_who_opens_the_run_and_only_once(
    world: World,
) -> None:
    driver = world.begin("start")
    world.until("ran 1")
    driver.send_signal(signal.SIGSTOP)
    stopping = world.begin("cancel")
    wait_for(lambda: any(key.startswith("cancel/") for key in world.pending_signals()), "the wish was never posted")
    for program in (stopping, driver):
        program.kill()
        program.communicate()
    assert said(world.begin("look"))[-1] == "result CANCELLED []"
    assert world.pending_signals() == []
    world.let_pass(*range(1, 7))
    assert said(world.begin("start"))[-1] == ALL


def test_killed_after_it_was_moved_back_the_run_goes_on_from_there(world: World) -> None:
    world.let_pass(*range(1, 7))
    assert said(world.begin("start"))[-1].startswith("result IDLE_WITH_PENDING_REQUESTS")
    (world.path / "pass-4").unlink()
    moving = world.begin("restore", 4)  # commit 4: what 3 led to
    world.until("ran 4", times=2)
    moving.kill()
    moving.communicate()
    world.let_pass(4)
    lines = said(world.begin("watch"))
    assert lines[-1] == ALL
    assert [line.split()[2:] for line in lines[:-1]] == [
        *(["output", str(number)] for number in range(1, 7)),
        ["restored", "4"],
        *(["output", str(number)] for number in range(4, 7)),
    ]
    assert [world.ledger().count(f"ran {number}") for number in range(1, 7)] == [1, 1, 1, 3, 2, 2]


def test_a_run_that_another_program_drives_is_seen_while_it_moves(world: World) -> None:
    world.begin("start")
    world.until("ran 1")
    watching = world.begin("watch")
    assert watching.stdout is not None
    for number in range(1, 7):
        world.until(f"ran {number}")
        world.let_pass(number)
    lines = said(watching)
    assert [line.split()[3] for line in lines[:-1]] == ["1", "2", "3", "4", "5", "6"]
    assert [world.ledger().count(f"ran {number}") for number in range(1, 7)] == [1] * 6
