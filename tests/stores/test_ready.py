"""How runs stand, and which of them can be driven, in every storage."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from stepwell import WorkflowBuilder, WorkflowContext, WorkflowRunState, executor
from stepwell.storage import clock
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.samples import record, text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLY = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def storage(every_storage: Any) -> Any:
    return every_storage


async def append(storage: Any, run_id: str, wake: datetime | None, status: str = "IN_PROGRESS", **more: Any) -> None:
    """Store a run that can be driven from then on."""
    effects = CommitEffects(wake=None if wake is None else wake.isoformat())
    await storage._store.append(record(run_id, 0, status=status, at=EARLY, **more), effects)


async def ready(storage: Any, **criteria: Any) -> list[str]:
    return [run.run_id for run in await storage.ready_runs(**criteria)]


async def standings(storage: Any) -> dict[str, tuple[str, str | None, str | None, str | None]]:
    runs = await storage.list_runs()
    for run in runs:  # of a lease that lasts, the end is not exact
        assert replace(run, until=None) == replace(await storage.get_run(run.run_id), until=None)
    return {run.run_id: (run.standing, run.owner, run.until, run.since) for run in runs}


async def test_those_that_are_due_come_oldest_first(storage: Any) -> None:
    tick = timedelta(microseconds=1)
    await append(storage, "a", NOON + tick)
    await append(storage, "b", NOON)  # a moment without microseconds
    await append(storage, "c", NOON - tick, workflow="v")
    await append(storage, "never", None, "IDLE")
    assert await ready(storage, by=NOON - 2 * tick) == []
    assert await ready(storage, by=NOON - tick) == ["c"]
    assert await ready(storage, by=NOON) == ["c", "b"]
    assert await ready(storage, by=NOON + tick) == ["c", "b", "a"]
    assert await ready(storage, by=NOON + tick, limit=2) == ["c", "b"]
    assert await ready(storage, by=NOON + tick, workflow_name="w") == ["b", "a"]
    assert await ready(storage, workflow_name="none") == await ready(storage, workflow_name="\udc80") == []
    await storage.close()


async def test_by_is_a_moment_in_any_time_zone_and_needs_one(storage: Any) -> None:
    await append(storage, "r", NOON)
    tokyo = timezone(timedelta(hours=9))
    assert await ready(storage, by=NOON.astimezone(tokyo)) == ["r"]
    assert await ready(storage, by=NOON.replace(tzinfo=tokyo)) == []
    with pytest.raises(ValueError, match="no time zone"):
        await storage.ready_runs(by=datetime(2026, 1, 1))
    await storage.close()


async def test_without_a_moment_it_is_now(storage: Any, later: Any) -> None:
    await append(storage, "r", clock.now() + timedelta(minutes=30))
    assert await ready(storage) == []
    later(minutes=31)
    assert await ready(storage) == ["r"]
    await storage.close()


async def test_a_run_that_nobody_drives_stands_as_its_commit_and_its_signals_say(storage: Any) -> None:
    tomorrow = clock.now() + timedelta(days=1)
    cases: dict[str, tuple[str, datetime | None, bool, str]] = {
        "new": ("IN_PROGRESS", NOON, False, "queued"),
        "new and signalled": ("IN_PROGRESS", NOON, True, "queued"),
        "asleep": ("IN_PROGRESS", tomorrow, False, "sleeping"),
        "asleep and asking": ("IN_PROGRESS_PENDING_REQUESTS", tomorrow, False, "sleeping"),
        "asleep and signalled": ("IN_PROGRESS_PENDING_REQUESTS", tomorrow, True, "queued"),
        "asks": ("IDLE_WITH_PENDING_REQUESTS", None, False, "waiting"),
        "asks until": ("IDLE_WITH_PENDING_REQUESTS", tomorrow, False, "waiting"),
        "overdue": ("IDLE_WITH_PENDING_REQUESTS", NOON, False, "queued"),
        "answered": ("IDLE_WITH_PENDING_REQUESTS", tomorrow, True, "queued"),
        "over": ("IDLE", None, False, "completed"),
        "over and sent to": ("IDLE", None, True, "queued"),
        "broken": ("FAILED", None, True, "failed"),
        "stopped": ("CANCELLED", None, True, "cancelled"),
    }
    for run_id, (status, wake, is_signalled, _) in cases.items():
        await append(storage, run_id, wake, status)
        if is_signalled:
            await storage._store.send(run_id, "k", text(1))
    found = await standings(storage)
    assert {run_id: standing for run_id, (standing, *_) in found.items()} == {
        run_id: standing for run_id, (*_, standing) in cases.items()
    }
    assert {owner for _, owner, _, _ in found.values()} == {None}
    assert found["asleep"] == ("sleeping", None, tomorrow.isoformat(), None)
    assert found["new"] == found["overdue"] == ("queued", None, None, NOON.isoformat())
    assert found["answered"] == ("queued", None, None, None)
    # What is queued is what is ready.
    assert sorted(await ready(storage)) == sorted(run for run, (*_, standing) in cases.items() if standing == "queued")
    await storage.close()


async def test_a_run_is_running_while_its_lease_lasts_and_stalled_afterwards(storage: Any, later: Any) -> None:
    await append(storage, "r", NOON)
    owner = this_process("drive")
    await storage._store.acquire("r", owner, seconds=60)
    (run,) = await storage.list_runs()
    assert (run.standing, run.owner, run.since, run.status) == (
        "running",
        str(owner),
        None,
        WorkflowRunState.IN_PROGRESS,
    )
    left = datetime.fromisoformat(run.until) - clock.now()
    assert timedelta(seconds=50) < left <= timedelta(seconds=61)
    assert await ready(storage) == []
    later(minutes=5)
    (run,) = await storage.list_runs()
    assert (run.standing, run.owner, run.until) == ("stalled", str(owner), None)
    assert run.since == run.changed_at
    assert await ready(storage) == ["r"]
    await storage._store.release("r", owner)
    assert await standings(storage) == {"r": ("queued", None, None, NOON.isoformat())}
    await storage.close()


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_whose_stream_is_left_in_the_middle_is_stalled_until_somebody_drives_it(
    storage: Any, durability: Any
) -> None:
    @executor(id="count")
    async def count(n: int, ctx: WorkflowContext[int, int]) -> None:
        await (ctx.send_message(n + 1) if n < 3 else ctx.yield_output(n))

    builder = WorkflowBuilder(name="counting", start_executor=count, checkpoint_storage=storage)
    workflow = builder.add_edge(count, count).build()
    async with workflow.run(0, stream=True, run_id="r", durability=durability) as stream:
        async for event in stream:
            if event.type == "superstep_completed":
                break
    run = await storage.get_run("r")
    assert (run.standing, run.owner) == ("stalled", str(this_process("")))
    assert (run.since, run.until) == (run.changed_at, None)
    assert await ready(storage) == ["r"]
    assert [each.run_id for each in await storage.list_runs(standing="stalled")] == ["r"]
    assert (await workflow.run(run_id="r")).get_outputs() == [3]
    assert (await standings(storage))["r"] == ("completed", None, None, None)
    await storage.close()


async def test_a_run_whose_process_is_dead_is_stalled_at_once(storage: Any) -> None:
    dead = replace(this_process("drive"), started="never")
    for run_id in ("a", "b", "c"):
        await append(storage, run_id, NOON)
        await storage._store.acquire(run_id, this_process("drive") if run_id == "b" else dead, seconds=600)
    found = await standings(storage)
    assert found["a"] == found["c"] == ("stalled", str(dead), None, EARLY)
    assert found["b"][0] == "running"
    assert await ready(storage) == ["a", "c"]
    assert await ready(storage, limit=2) == ["a", "c"]
    await storage.close()


async def test_a_driver_of_a_resting_run_does_not_change_how_it_stands(storage: Any) -> None:
    await append(storage, "r", None, "IDLE")
    await storage._store.acquire("r", this_process("drive"), seconds=60)
    assert await standings(storage) == {"r": ("completed", None, None, None)}
    await storage.close()


async def test_they_are_found_in_one_call_of_the_store(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for run_id in ("a", "b"):
        await append(storage, run_id, NOON)
    real, calls = storage._store.inner, list[str]()

    class Counted:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(real, name)

    monkeypatch.setattr(storage._store, "inner", Counted())
    assert await ready(storage) == ["a", "b"]
    assert calls == ["ready"]
    monkeypatch.undo()
    await storage.close()


@pytest.mark.parametrize("limit", [-1, 1.5, "2"])
async def test_a_limit_that_is_none_is_refused_by_every_list(storage: Any, limit: Any) -> None:
    await append(storage, "a", NOON)
    for read in (storage.ready_runs, storage.list_runs, storage.pending_requests):
        with pytest.raises(ValueError, match=rf"limit must be a whole number, 0 or more, not {limit!r}"):
            await read(limit=limit)
        assert await read(limit=0) == []
    await storage.close()
