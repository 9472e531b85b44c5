"""What the tests with many processes share: where they come from, and where the runs are kept."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.lanes import mark_room
from tests.support.postgres_server import ask, dsn, fresh_schema

from .nursery import Nursery
from .places import HINTED, KINDS, Place
from .world import World


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_room(__file__, items)


SEED = "STEPWELL_SEED"


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture
def location_of(tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """A new and empty store of a kind."""
    with contextlib.ExitStack() as after:

        def place(kind: str) -> Place:
            if kind not in ("postgres", HINTED):
                return Place(kind, str(tmp_path))
            schema = after.enter_context(fresh_schema())
            after.callback(ask, f"DROP SCHEMA IF EXISTS {schema}_procrastinate CASCADE")
            made = Place(kind, str(tmp_path), dsn(), schema)
            made.prepare()
            return made

        yield place


@pytest.fixture
def seed() -> str:
    """Of all that is left to chance; to be given again in the environment variable STEPWELL_SEED."""
    given = os.environ.get(SEED) or ("0" if os.environ.get("CI") else str(time.time_ns()))
    print(f"{SEED}={given}")
    return given


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, location_of: Callable[[str], Place], nursery: Nursery) -> Iterator[World]:
    made = World(location_of(request.param), nursery)
    yield made
    made.end()
