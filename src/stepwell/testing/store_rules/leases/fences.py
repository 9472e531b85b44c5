"""Rules for fences, the numbers of leases: a driver that lost its lease cannot write any more."""

from __future__ import annotations

import asyncio

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    after,
    contents,
    expect_error,
    expected_contents,
    fill,
    head,
    logged,
    meaning,
    on,
    question,
    record,
    release,
    renew,
    run_metadata,
    take_over,
    text,
)


@rule
async def every_lease_has_a_higher_fence_than_those_before(store: Store) -> None:
    await fill(store, "r", 1)
    fences = [await acquire(store, "r", "other"), await acquire(store, "r", "other")]
    await release(store, "r", "other")
    fences.append(await acquire(store, "r"))
    await store.close()  # fences survive a restart of the store
    fences.append(await take_over(store, "r"))
    await release(store, "r", "other")
    await store.append(record("r", 1), CommitEffects(drop_below=1))
    fences.append(await acquire(store, "r"))
    assert fences == sorted(set(fences))


@rule
async def a_run_without_records_has_fences(store: Store) -> None:
    first = await acquire(store, "r")
    second = await take_over(store, "r")
    assert second > first
    await expect_error(CommitConflict, store.append(record("r", 0), CommitEffects(fence=first)))
    assert await store.runs() == []
    await store.append(record("r", 0), CommitEffects(fence=second))
    await expect_error(CommitConflict, store.append(record("r", 1), CommitEffects(fence=first)))


@rule
async def with_fence_zero_only_a_run_that_nobody_holds_is_started(store: Store) -> None:
    unacquired = CommitEffects(fence=0, metadata=run_metadata())
    assert await acquire(store, "held") > 0
    await expect_error(CommitConflict, store.append(record("held", 0), unacquired))
    await store.send("new", "k", text(1))
    await store.append(record("new", 0), unacquired)
    await expect_error(CommitConflict, store.append(record("new", 0), unacquired))
    assert [run.run_id for run in await store.runs()] == ["new"]


@rule
async def a_fenced_driver_cannot_append(store: Store) -> None:
    await fill(store, "r", 1)
    first = await acquire(store, "r")
    await store.append(record("r", 1), CommitEffects(fence=first))
    await store.send("r", "k", text(1))
    second = await take_over(store, "r")
    # None of these effects may happen, not even one.
    late = CommitEffects(
        fence=first,
        consumed=("k",),
        asked=(question("r", "q"),),
        wake=on(1),
        drop_below=2,
        metadata=run_metadata(team="red"),
    )
    await expect_error(CommitConflict, store.append(record("r", 2), late), "acquired by another process")
    stored = expected_contents([record("r", 0), record("r", 1)], signals=[("k", text(1))])
    assert await contents(store, "r") == stored
    await store.append(record("r", 2), CommitEffects(fence=second))
    # Without a fence nothing is checked but the number.
    await store.append(record("r", 3))
    await expect_error(CommitConflict, store.rewrite("r", insert=record("r", 3, body="late"), effects=late))
    await store.rewrite("r", insert=record("r", 3, body="in time"), effects=CommitEffects(fence=second))
    assert meaning(await head(store, "r")) == meaning(record("r", 3, body="in time"))


@rule
async def a_fenced_driver_cannot_write_to_the_superstep_log(store: Store) -> None:
    await fill(store, "r", 1)
    first = await acquire(store, "r")
    assert await store.write_log("r", 1, "a", text(1), fence=first)
    assert not await store.write_log("r", 1, "a", text(1), fence=first)
    second = await take_over(store, "r")
    for key in ("a", "b"):
        late = store.write_log("r", 1, key, text(2), fence=first)
        await expect_error(CommitConflict, late, "acquired by another process")
    assert await store.write_log("r", 1, "c", text(3), fence=second)
    assert await store.write_log("r", 1, "d", text(4))
    assert await logged(store, "r", 1) == {"a": text(1), "c": text(3), "d": text(4)}


@rule
async def acquiring_again_replaces_the_old_fence(store: Store) -> None:
    await fill(store, "r", 1)
    first = await acquire(store, "r")
    second = await acquire(store, "r")
    await expect_error(CommitConflict, store.append(record("r", 1), CommitEffects(fence=first)))
    await store.append(record("r", 1), CommitEffects(fence=second))


@rule
async def a_released_fence_is_valid_until_the_next_lease(store: Store) -> None:
    await fill(store, "r", 1)
    first = await acquire(store, "r")
    await release(store, "r")
    # Nobody has acquired the run since, so the fence is still the highest one.
    await store.append(record("r", 1), CommitEffects(fence=first))
    second = await acquire(store, "r", "other")
    await expect_error(CommitConflict, store.append(record("r", 2), CommitEffects(fence=first)))
    await release(store, "r", "other")
    await expect_error(CommitConflict, store.append(record("r", 2), CommitEffects(fence=first)))
    await store.append(record("r", 2), CommitEffects(fence=second))


@rule
async def a_refused_acquire_leaves_the_holder_alone(store: Store) -> None:
    await fill(store, "r", 1)
    first = await acquire(store, "r")
    await expect_error(RunBusy, acquire(store, "r", "other"))
    await store.append(record("r", 1), CommitEffects(fence=first))
    assert await renew(store, {"r": first}) == ([], [])
    await release(store, "r", "other")
    await expect_error(RunBusy, acquire(store, "r", "other"))


@rule
async def fences_of_different_runs_are_independent(store: Store) -> None:
    await fill(store, "r", 1)
    await fill(store, "s", 1)
    first = await acquire(store, "s")
    for _ in range(5):
        await acquire(store, "r")
    await store.append(record("s", 1), CommitEffects(fence=first))
    assert await renew(store, {"s": first}) == ([], [])


@rule
async def renewing_reports_the_runs_that_were_lost(store: Store) -> None:
    fences: dict[str, int] = {}
    for run_id in ("a", "b", "c", *ODD_IDS):
        await fill(store, run_id, 1)
        fences[run_id] = await acquire(store, run_id)
    assert await renew(store, {}) == await renew(store, fences) == ([], [])
    with after(minutes=2):
        taken = {run_id: await acquire(store, run_id, "other") for run_id in ("b", *ODD_IDS[::2])}
        assert await renew(store, {**fences, "unknown": 1}, seconds=600) == (sorted(taken), [])
        assert await renew(store, taken, seconds=600) == ([], [])
    with after(minutes=8):
        for run_id in ("a", *ODD_IDS[1::2], *taken):
            await expect_error(RunBusy, acquire(store, run_id, "mine" if run_id in taken else "other"))


@rule
async def renewing_does_not_revive_a_released_lease(store: Store) -> None:
    await fill(store, "r", 1)
    fence = await acquire(store, "r")
    await release(store, "r")
    assert await renew(store, {"r": fence}, seconds=600) == ([], [])
    assert await acquire(store, "r", "other") > fence
    assert await renew(store, {"r": fence}, seconds=600) == (["r"], [])


@rule
async def concurrent_leases_have_different_fences(store: Store) -> None:
    await fill(store, "r", 1)
    fences = await asyncio.gather(*(acquire(store, "r") for _ in range(20)))
    assert len(set(fences)) == 20
    for fence in fences:
        if fence != max(fences):
            await expect_error(CommitConflict, store.write_log("r", 1, "k", text(1), fence=fence))
    assert await store.write_log("r", 1, "k", text(1), fence=max(fences))
