"""Which runs want to be moved on, in every storage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from stepwell.storage import clock
from stepwell.storage.due_runs import DueRun
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.samples import record

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def wake(storage: Any, run_id: str, at: datetime, workflow: str = "w") -> DueRun:
    """A run that wants to be moved on then."""
    await storage._store.append(record(run_id, 0, workflow=workflow), CommitEffects(wake=at.isoformat()))
    return DueRun(run_id, workflow, at)


async def test_those_that_are_due_come_soonest_first(storage: Any) -> None:
    tick = timedelta(microseconds=1)
    after = await wake(storage, "a", NOON + tick)
    sharp = await wake(storage, "b", NOON)  # a moment without microseconds
    before = await wake(storage, "c", NOON - tick, workflow="v")
    await storage._store.append(record("never", 0))
    assert await storage.due_runs(by=NOON - 2 * tick) == []
    assert await storage.due_runs(by=NOON - tick) == [before]
    assert await storage.due_runs(by=NOON) == [before, sharp]
    assert await storage.due_runs(by=NOON + tick) == [before, sharp, after]
    assert await storage.due_runs(by=NOON + tick, workflow_name="w") == [sharp, after]
    assert await storage.due_runs(workflow_name="none") == []
    await storage.close()


async def test_by_is_a_moment_in_any_time_zone_and_needs_one(storage: Any) -> None:
    due = await wake(storage, "r", NOON)
    tokyo = timezone(timedelta(hours=9))
    assert await storage.due_runs(by=NOON.astimezone(tokyo)) == [due]
    assert await storage.due_runs(by=NOON.replace(tzinfo=tokyo)) == []
    with pytest.raises(ValueError, match="no time zone"):
        await storage.due_runs(by=datetime(2026, 1, 1))
    await storage.close()


async def test_without_a_moment_it_is_now(storage: Any, later: Any) -> None:
    due = await wake(storage, "r", clock.now() + timedelta(minutes=30))
    assert await storage.due_runs() == []
    later(minutes=31)
    assert await storage.due_runs() == [due]
    await storage.close()


async def test_a_run_whose_newest_record_wants_nothing_is_not_due(storage: Any) -> None:
    await wake(storage, "r", NOON)
    await storage._store.append(record("r", 1))
    assert await storage.due_runs() == []
    await storage.close()
