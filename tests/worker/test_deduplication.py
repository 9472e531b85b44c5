"""A deduplication key submits a run once within its window, whoever submits."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from stepwell.storage.built_in_storage import BuiltInStorage
from tests.conftest import Later
from tests.worker.samples import asking, counting, standings

HOUR = timedelta(hours=1)


async def test_the_same_key_leads_to_the_same_run(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    first = await workflow.submit(0, deduplication_key="k", tags={"team": "blue"})
    assert await workflow.submit(0, deduplication_key="k") == first
    assert await workflow.submit(1, deduplication_key="k") == first  # whatever the message is
    assert await workflow.submit(0, deduplication_key="l") != first
    assert len(await standings(storage)) == 2
    run = await storage.get_run(first)
    assert run is not None
    assert run.tags == {"team": "blue", "deduplication_key": "k"}


async def test_after_the_window_the_key_is_new(storage: BuiltInStorage, later: Later) -> None:
    workflow = counting(storage)
    first = await workflow.submit(0, deduplication_key="k", window=HOUR)
    later(minutes=59)
    assert await workflow.submit(0, deduplication_key="k", window=HOUR) == first
    later(minutes=2)
    assert await workflow.submit(0, deduplication_key="k", window=HOUR) != first


async def test_those_who_submit_at_the_same_moment_get_the_same_run(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    runs = await asyncio.gather(*(workflow.submit(0, deduplication_key="k") for _ in range(10)))
    assert len(set(runs)) == 1
    assert list(await standings(storage)) == [runs[0]]  # and nothing is left of the lock


async def test_each_workflow_has_keys_of_its_own(storage: BuiltInStorage) -> None:
    first = await counting(storage).submit(0, deduplication_key="k")
    assert await asking(storage).submit("?", deduplication_key="k") != first


async def test_a_key_is_passed_alone(storage: BuiltInStorage) -> None:
    with pytest.raises(ValueError, match="pass a deduplication_key alone"):
        await counting(storage).submit(0, run_id="r", deduplication_key="k")
    with pytest.raises(ValueError, match="deduplication_key must be a non-empty string"):
        await counting(storage).submit(0, deduplication_key="")
