"""Real workers, killed, paused, cut off from their server, of two versions, with wrong clocks: all runs end, once.

STEPWELL_LONG=1000 asks for so many kills of each kind instead of a few.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import ResponseRejected, UnknownRequest, Workflow
from stepwell.storage.built_in_storage import BuiltInStorage
from tests.support.postgres_server import own_server

from .ledger import Line
from .nursery import Child, Nursery
from .places import HINTED, WORKER_KINDS, Place
from .storm import WORKERS, rage, storm
from .team import ASKING, BLOCKING, LONG, build
from .test_storm import check
from .verdict import Verdict, read_into

MANY = int(os.environ.get("STEPWELL_LONG") or 0)
KILLS, PAUSES = (MANY, MANY // 10) if MANY > 1 else (12, 2)
AWAY = 40.0 if MANY else 3.0  # seconds without the server


@pytest.mark.parametrize("kind", WORKER_KINDS)
def test_workers_that_are_killed_and_paused_lose_nothing_and_double_nothing(
    kind: str, location_of: Callable[[str], Place], nursery: Nursery, seed: str
) -> None:
    with storm(location_of(kind), seed, nursery, crew=WORKERS) as raging:
        rage(raging, KILLS, pauses=PAUSES)
        verdict = check(raging)
    assert (verdict.kills, verdict.pauses) == (KILLS, PAUSES)
    assert verdict.commits > verdict.runs * 8


@pytest.mark.parametrize("kind", ["sqlite", HINTED])
def test_control_without_the_fence_workers_that_were_paused_overwrite(
    kind: str, location_of: Callable[[str], Place], nursery: Nursery, seed: str
) -> None:
    with storm(location_of(kind), seed, nursery, manner="no check", crew=WORKERS) as raging:
        for _ in range(60):
            raging.work(10)
            raging.pause()
            read_into(verdict := Verdict(kind, seed), raging.lines)
            if verdict.twice:
                break
    assert "acknowledged before" in verdict.twice[0]


@pytest.mark.parametrize("kind", ["postgres", HINTED])
def test_a_server_that_is_away_for_a_while_costs_no_run(kind: str, tmp_path: Path, nursery: Nursery, seed: str) -> None:
    with own_server() as server:
        place = Place(kind, str(tmp_path), server.dsn, "storm")
        place.prepare()
        with storm(place, seed, nursery, crew=WORKERS) as raging:
            raging.work(60)
            raging.restart(server, "immediate", away=AWAY)
            raging.work(60)
            raging.end()
            check(raging)


# -------------------------------------------------------------------- one at a time


class Team:
    """Some workers, and a store in which runs are put for them."""

    def __init__(self, place: Place, nursery: Nursery) -> None:
        self.place, self._nursery, self._ledger = place, nursery, place.ledger
        self._lines: list[Line] = []
        self._children: list[Child] = []

    def hire(
        self,
        name: str,
        *,
        version: int = 1,
        lease: float = 1.0,
        ahead: float = 0.0,
        network: str = "",
        dsn: str = "",
        manner: str = "as it is",
    ) -> Child:
        place = replace(self.place, dsn=dsn or self.place.dsn)
        given = (str(place), name, str(version), str(lease), str(ahead), network, manner)
        child = self._nursery.bear("tests.crash.team", *given, name=name)
        self._children.append(child)
        self.until(lambda: f"worker '{name}' drives" in child.words(), f"{name} to begin")
        return child

    def submit(self, number: int, run_id: str, *, version: int = 1) -> None:
        async def submit(storage: BuiltInStorage) -> None:
            async with self.place.announcing(storage):
                await build(storage, self._ledger, "", version).submit(number, run_id=run_id)

        self.ask(submit)

    def standings(self) -> dict[str, str]:
        async def look(storage: BuiltInStorage) -> dict[str, str]:
            return {run.run_id: run.standing for run in await storage.list_runs()}

        standings: dict[str, str] = self.ask(look)
        return standings

    def acts(self, run_id: str) -> list[str]:
        """Who has begun to handle the message of a run."""
        self._lines += self._ledger.news()
        return [line.more["by"] for line in self._lines if line.what == "ran" and line.run == run_id]

    def until(self, fact: Callable[[], bool], what: str, seconds: float = 30.0) -> float:
        began = time.monotonic()
        while not fact():
            words = "\n".join(f"{child}: {child.words()}" for child in self._children)
            assert time.monotonic() - began < seconds, f"waited for {what}\n{words}"
            time.sleep(0.005)
        return time.monotonic() - began

    def outputs(self, run_ids: list[str]) -> dict[str, list[int]]:
        async def read(storage: BuiltInStorage) -> dict[str, list[int]]:
            workflow = build(storage, self._ledger, "", 1)
            return {run_id: (await workflow.result(run_id)).get_outputs() for run_id in run_ids}

        outputs: dict[str, list[int]] = self.ask(read)
        return outputs

    def end(self) -> None:
        for child in self._children:
            child.kill()

    def ask(self, question: Callable[[BuiltInStorage], Any]) -> Any:
        async def ask() -> Any:
            async with self.place.open() as storage:
                return await question(storage)

        return asyncio.run(ask())


@pytest.fixture
def team_on(location_of: Callable[[str], Place], nursery: Nursery) -> Iterator[Callable[[str], Team]]:
    teams: list[Team] = []

    def team(kind: str) -> Team:
        teams.append(Team(location_of(kind), nursery))
        return teams[-1]

    yield team
    for made in teams:
        made.end()


@pytest.mark.parametrize("kind", WORKER_KINDS)
def test_a_killed_worker_is_replaced_on_its_machine_within_two_seconds(
    kind: str, team_on: Callable[[str], Team]
) -> None:
    team = team_on(kind)
    first = team.hire("first", lease=3600)
    team.submit(LONG, "r")
    team.until(lambda: team.acts("r") == ["first"], "the first to begin")
    team.hire("second", lease=3600)
    first.kill()
    seconds = team.until(lambda: team.acts("r") == ["first", "second"], "the second to take over")
    assert seconds < 2


@pytest.mark.parametrize("kind", WORKER_KINDS)
def test_a_worker_that_is_told_to_stop_leaves_its_run_to_others_at_once(
    kind: str, team_on: Callable[[str], Team]
) -> None:
    team = team_on(kind)
    first = team.hire("first", lease=3600)
    team.submit(LONG, "r")
    team.until(lambda: team.acts("r") == ["first"], "the first to begin")
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(10) == 0
    assert team.standings() == {"r": "stalled"}
    team.hire("second")
    team.until(lambda: team.acts("r") == ["first", "second"], "the second to continue")


@pytest.mark.parametrize("kind", ["sqlite", HINTED])
def test_a_second_signal_ends_a_worker_at_once_even_if_a_handler_blocks_it(
    kind: str, team_on: Callable[[str], Team]
) -> None:
    team = team_on(kind)
    first = team.hire("first", lease=3600)
    team.submit(BLOCKING, "r")
    team.until(lambda: team.acts("r") == ["first"], "the first to begin")
    for _ in range(2):
        os.kill(first.pid, signal.SIGTERM)
        time.sleep(0.1)
    began = time.monotonic()
    first.wait(10)
    assert time.monotonic() - began < 3
    team.hire("second")
    team.until(lambda: team.standings() == {"r": "completed"}, "the end")


@pytest.mark.parametrize("kind", ["sqlite", HINTED])
def test_a_worker_whose_handler_blocks_it_keeps_its_run(kind: str, team_on: Callable[[str], Team]) -> None:
    team = team_on(kind)
    team.hire("first")
    team.submit(BLOCKING, "r")
    team.until(lambda: team.acts("r") == ["first"], "the first to begin")
    team.hire("second")
    team.until(lambda: team.standings() == {"r": "completed"}, "the end")
    assert team.acts("r") == ["first"]


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
@pytest.mark.parametrize("kind", ["sqlite", "postgres", HINTED])
def test_a_worker_whose_clock_is_an_hour_wrong_takes_no_run_from_another(
    kind: str, ahead: float, team_on: Callable[[str], Team]
) -> None:
    team = team_on(kind)
    team.hire("right")
    team.submit(LONG, "r")
    team.until(lambda: team.acts("r") == ["right"], "the first to begin")
    team.hire("wrong", ahead=ahead)
    time.sleep(2.5)  # more than two leases
    assert team.acts("r") == ["right"]
    assert team.standings() == {"r": "running"}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", HINTED])
def test_workers_of_two_versions_share_a_store_and_each_drives_what_it_can(
    kind: str, team_on: Callable[[str], Team]
) -> None:
    team = team_on(kind)
    old, _ = team.hire("old", version=1), team.hire("new", version=2)
    for n in range(6):
        team.submit(n, f"old-{n}", version=1)
        team.submit(n, f"new-{n}", version=2)
    team.until(lambda: set(team.standings().values()) == {"completed"}, "the end")
    assert {name for n in range(6) for name in team.acts(f"old-{n}")} == {"old"}
    assert {name for n in range(6) for name in team.acts(f"new-{n}")} == {"new"}
    assert old.words().count("is left to others") <= 6


@pytest.mark.parametrize("kind", ["sqlite", "postgres", HINTED])
def test_responses_that_arrive_before_while_and_after_a_run_parks_count_once(
    kind: str, team_on: Callable[[str], Team]
) -> None:
    team = team_on(kind)
    team.hire("first")
    team.hire("second")
    runs = [f"r{n}" for n in range(12)]

    async def submit_and_answer(storage: BuiltInStorage) -> None:
        async with team.place.announcing(storage):
            workflow = build(storage, team.place.ledger, "", 1)
            for run_id in runs:
                await workflow.submit(ASKING, run_id=run_id)
            # At once, while the worker commits, and long after it has let go.
            waits = [0.002 * n if n < 10 else 0.3 for n in range(len(runs))]
            await asyncio.gather(*map(partial(answer, workflow), runs, range(len(runs)), waits))

    async def answer(workflow: Workflow, run_id: str, number: int, wait: float) -> None:
        while True:
            try:
                await asyncio.sleep(wait)
                await workflow.respond(run_id, "q", number)
                break
            except UnknownRequest:
                await asyncio.sleep(0.001)
        with pytest.raises((ResponseRejected, UnknownRequest)):
            await workflow.respond(run_id, "q", -number - 1)

    team.ask(submit_and_answer)
    team.until(lambda: set(team.standings().values()) == {"completed"}, "the end", seconds=15)
    assert team.outputs(runs) == {run_id: [n] for n, run_id in enumerate(runs)}
