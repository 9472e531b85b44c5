"""Places in the list of all runs, by which a search goes through it in parts, are the same on every store."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from stepwell.storage.port import Store
from stepwell.storage.statistics import RunPlace, Statistics
from stepwell.storage.stored_values import CommitEffects, RunMetadata
from stepwell.testing.store_rules.samples import ODD_IDS, on, record
from tests.stores.test_rules import STORES


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    with ExitStack() as after:
        yield STORES[request.param](tmp_path, after)()


async def places(store: Store, count: int) -> list[str]:
    """The ids at every `count`th place of the list."""
    assert isinstance(store, Statistics)
    place, ids = None, list[str]()
    while (place := await store.find_place(place, count)) is not None:
        ids.append(place.run_id)
    return ids


async def test_each_place_is_so_many_runs_further_and_the_last_run_is_none(store: Store) -> None:
    assert await places(store, 1) == []
    for number, day in enumerate((2, 5, 1, 4, 3, 3)):
        await store.append(record(f"r{number}", 0, at=on(day)))
    await store.append(record("child", 0, at=on(3)), effects=CommitEffects(metadata=RunMetadata(caller="r0")))
    order = [run.run_id for run in await store.runs()]
    assert order == ["r1", "r3", "r5", "r4", "r0", "r2"]
    assert await places(store, 1) == order[:-1]
    assert await places(store, 2) == ["r3", "r4"]
    assert await places(store, 5) == ["r0"]
    assert await places(store, 6) == []
    assert isinstance(store, Statistics)
    # A run that is gone meanwhile still says where the next ones are.
    assert await store.find_place(RunPlace(on(4), "r30"), 1) == RunPlace(on(4), "r3")


async def test_odd_ids_have_their_places(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, at=on(1)))
    assert await places(store, 1) == sorted(ODD_IDS, reverse=True)[:-1]
