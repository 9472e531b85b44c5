"""Workers delete old runs by a policy, and one of them is enough."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from stepwell.admin import Keep
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker, housekeeping, registration
from tests.conftest import Later
from tests.worker.samples import asking, counting, eventually, serving, standings

MONTH = Keep(age=timedelta(days=30))


async def test_old_runs_are_deleted_and_those_that_wait_stay(
    storage: BuiltInStorage, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_FIRST", 0.01)
    monkeypatch.setattr(housekeeping, "EVERY", 0.01)
    workflow, waiting = counting(storage), asking(storage)
    await workflow.run(0, run_id="old")
    await waiting.run("?", run_id="waits")
    later(minutes=31 * 24 * 60)
    await workflow.run(0, run_id="new")
    async with serving(Worker(storage, [workflow, waiting], prune=MONTH)):

        async def is_clean() -> bool:
            return await standings(storage) == {"new": "completed", "waits": "waiting"}

        await eventually(is_clean)


async def test_the_first_worker_by_name_cleans_up(storage: BuiltInStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "EVERY", 0.02)
    workflow = counting(storage)
    workers = [Worker(storage, [workflow], prune=MONTH, name=name) for name in ("b", "a", "c")]
    async with serving(*workers):

        async def is_settled() -> bool:
            return [worker._is_first() for worker in workers] == [False, True, False]

        await eventually(is_settled)

    async def is_alone() -> bool:  # a cancelled query may still be on its way back
        return asyncio.all_tasks() == {asyncio.current_task()}

    await eventually(is_alone)
