"""A worker that the network cuts off from its server. Optional: only root may create network namespaces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from stepwell.storage.built_in_storage import BuiltInStorage
from tests.support.postgres_server import Server, own_server

from .networks import OURS, missing, network
from .nursery import Nursery
from .places import HINTED, Place
from .team import STEADY
from .test_workers import Team

WHY_NOT = missing()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

LEASE, SWEEP, MORE = 3.0, 1.0, 2.0  # seconds
STEPS = 60  # supersteps of a tenth of a second


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as made:
        made.admit(f"host all all {OURS}/8 trust", listen="*")
        yield made


def numbers_of(team: Team) -> list[int]:
    async def read(storage: BuiltInStorage) -> list[int]:
        return [record.entry.number for record in await storage._store.history("r")]

    numbers: list[int] = team.ask(read)
    return numbers


@pytest.mark.parametrize("kind", ["postgres", HINTED])
def test_root_only_a_worker_that_is_cut_off_is_replaced_and_overwrites_nothing_when_it_is_back(
    kind: str, tmp_path: Path, nursery: Nursery, server: Server
) -> None:
    place = Place(kind, str(tmp_path), server.dsn, "partition")
    place.prepare()
    team = Team(place, nursery)
    over_the_cable = make_conninfo(server.dsn, host=OURS)
    with network() as cut_off:
        try:
            first = team.hire("first", lease=LEASE, network=cut_off.name, dsn=over_the_cable)
            team.submit(STEADY + STEPS, "r")
            team.until(lambda: len(team.acts("r")) > 5, "the first to work")
            team.hire("second", lease=LEASE)
            cut_off.cut()
            seconds = team.until(lambda: "second" in team.acts("r"), "the second to take over")
            assert seconds < LEASE + SWEEP + MORE
            time.sleep(1.0)
            cut_off.mend()
            team.until(lambda: team.standings() == {"r": "completed"}, "the end", seconds=60)
            time.sleep(1.0)  # whatever the first one still wants to write
            assert team.outputs(["r"]) == {"r": [STEADY]}
            assert numbers_of(team) == list(range(STEPS + 2))
            assert "was acquired by another process" in first.words()
        finally:
            team.end()
