"""Many runs of many processes, killed and paused again and again: nothing lost, nothing durable done again, all end.

STEPWELL_LONG=1000 asks for so many kills of each kind instead of a few; `long.py` writes down the figures.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.postgres_server import own_server

from .nursery import Nursery
from .places import KINDS, Place
from .storm import Storm, rage, storm
from .verdict import Verdict, judged, read_into

LONG = int(os.environ.get("STEPWELL_LONG") or 0)
KILLS, PAUSES = (LONG, LONG // 10) if LONG > 1 else (1000, 100) if LONG else (30, 3)


def check(storm: Storm) -> Verdict:
    verdict = judged(storm)
    print(verdict)
    complaints = "\n".join(verdict.complaints())
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    again = f"STEPWELL_SEED={storm.seed} python -m pytest '{test}'"
    assert not complaints, f"{complaints}\n{verdict}\nagain: {again}\nthe ledger: {storm.place.ledger.path}"
    return verdict


@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_paused_at_any_moment_nothing_is_lost_and_nothing_durable_is_done_again(
    kind: str, location_of: Callable[[str], Place], nursery: Nursery, seed: str
) -> None:
    with storm(location_of(kind), seed, nursery) as raging:
        rage(raging, KILLS, pauses=PAUSES)
        verdict = check(raging)
    assert (verdict.kills, verdict.pauses) == (KILLS, PAUSES)
    assert verdict.kills_in_a_drive >= KILLS / 3, "those who are killed are killed at work"
    assert verdict.commits > verdict.runs * 8, "every run was a long one"


def test_control_that_something_durable_is_done_again_is_found_out(
    location_of: Callable[[str], Place], nursery: Nursery, seed: str
) -> None:
    """Processes that recall nothing do everything in a superstep again that was cut off."""
    with storm(location_of("sqlite"), seed, nursery, manner="forgetful") as raging:
        for _ in range(200):
            raging.work(5)
            raging.kill()
            read_into(verdict := Verdict("sqlite", seed), raging.lines)
            if verdict.repeated:
                break
    assert "after" in verdict.complaints()[0]
    assert verdict.complaints()[0].startswith("repeated: ")


def test_a_server_that_is_restarted_under_load_loses_and_doubles_nothing(
    tmp_path: Path, nursery: Nursery, seed: str
) -> None:
    """In both ways: closed properly, and crashed. Whatever it had acknowledged is there, whatever it had not is not."""
    chance, restarts = random.Random(seed), ["immediate", "fast"] * (max(LONG // 100, 2))
    with own_server() as server:
        place = Place("postgres", str(tmp_path), server.dsn, "storm")
        with storm(place, seed, nursery) as raging:
            for how in restarts:
                raging.work(chance.randint(20, 60))
                raging.restart(server, how)
            raging.end()
            verdict = check(raging)
    assert verdict.restarts == len(restarts)
    assert verdict.kills == 0
