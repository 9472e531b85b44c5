"""Rules for fences, the numbers of leases: a driver that lost its lease cannot write any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    after,
    fill,
    head,
    logged,
    meaning,
    numbers,
    on,
    question,
    record,
    refused,
    run_entry,
    run_metadata,
    signals_of,
    text,
)


async def lost(store: Store, fences: Mapping[str, int], *, seconds: float) -> list[str]:
    """Renew leases; return the runs that another process has acquired."""
    return sorted((await asyncio.to_thread(store.renew, fences, seconds=seconds)).lost)


@rule
async def every_lease_has_a_higher_fence_than_those_before(store: Store) -> None:
    mine, other = this_process("mine"), this_process("other")
    await fill(store, "r", 1)
    fences = [await store.acquire("r", mine, seconds=60), await store.acquire("r", mine, seconds=60)]
    await store.release("r", mine)
    fences.append(await store.acquire("r", other, seconds=60))
    await store.close()  # fences survive a restart of the store
    with after(minutes=2):
        fences.append(await store.acquire("r", mine, seconds=60))
        await store.release("r", mine)
        await store.append(record("r", 1), CommitEffects(drop_below=1))
        fences.append(await store.acquire("r", mine, seconds=60))
    assert fences == sorted(set(fences))


@rule
async def a_run_without_records_has_fences(store: Store) -> None:
    first = await store.acquire("r", this_process("mine"), seconds=60)
    with after(minutes=2):
        second = await store.acquire("r", this_process("other"), seconds=60)
    assert second > first
    with refused(CommitConflict):
        await store.append(record("r", 0), CommitEffects(fence=first))
    assert await store.runs() == []
    await store.append(record("r", 0), CommitEffects(fence=second))
    with refused(CommitConflict):
        await store.append(record("r", 1), CommitEffects(fence=first))


@rule
async def a_fenced_driver_cannot_append(store: Store) -> None:
    await fill(store, "r", 1)
    first = await store.acquire("r", this_process("mine"), seconds=60)
    await store.append(record("r", 1), CommitEffects(fence=first))
    await store.send("r", "k", text(1))
    with after(minutes=2):
        second = await store.acquire("r", this_process("other"), seconds=60)
    # None of these effects may happen, not even one.
    late = CommitEffects(fence=first, consumed=("k",), asked=(question("r", "q"),), wake=on(1), drop_below=2)
    with refused(CommitConflict, "acquired by another process"):
        await store.append(record("r", 2), replace(late, metadata=run_metadata(team="red")))
    assert numbers(await store.history("r")) == [0, 1]
    assert await signals_of(store, "r") == [("k", text(1))]
    assert await store.requests() == []
    assert await store.wakes() == []
    assert await store.runs() == [run_entry(record("r", 1))]
    await store.append(record("r", 2), CommitEffects(fence=second))
    # Without a fence nothing is checked but the number.
    await store.append(record("r", 3))
    with refused(CommitConflict):
        await store.rewrite("r", insert=record("r", 3, body="late"), effects=CommitEffects(fence=first))
    await store.rewrite("r", insert=record("r", 3, body="in time"), effects=CommitEffects(fence=second))
    assert meaning(await head(store, "r")) == meaning(record("r", 3, body="in time"))


@rule
async def a_fenced_driver_cannot_write_to_the_superstep_log(store: Store) -> None:
    await fill(store, "r", 1)
    first = await store.acquire("r", this_process("mine"), seconds=60)
    assert await store.write_log("r", 1, "a", text(1), fence=first)
    assert not await store.write_log("r", 1, "a", text(1), fence=first)
    with after(minutes=2):
        second = await store.acquire("r", this_process("other"), seconds=60)
    for key in ("a", "b"):
        with refused(CommitConflict, "acquired by another process"):
            await store.write_log("r", 1, key, text(2), fence=first)
    assert await store.write_log("r", 1, "c", text(3), fence=second)
    assert await store.write_log("r", 1, "d", text(4))
    assert await logged(store, "r", 1) == {"a": text(1), "c": text(3), "d": text(4)}


@rule
async def acquiring_again_replaces_the_old_fence(store: Store) -> None:
    mine = this_process("mine")
    await fill(store, "r", 1)
    first = await store.acquire("r", mine, seconds=60)
    second = await store.acquire("r", mine, seconds=60)
    with refused(CommitConflict):
        await store.append(record("r", 1), CommitEffects(fence=first))
    await store.append(record("r", 1), CommitEffects(fence=second))


@rule
async def a_released_fence_is_valid_until_the_next_lease(store: Store) -> None:
    mine = this_process("mine")
    await fill(store, "r", 1)
    first = await store.acquire("r", mine, seconds=60)
    await store.release("r", mine)
    # Nobody has acquired the run since, so the fence is still the highest one.
    await store.append(record("r", 1), CommitEffects(fence=first))
    second = await store.acquire("r", this_process("other"), seconds=60)
    with refused(CommitConflict):
        await store.append(record("r", 2), CommitEffects(fence=first))
    await store.release("r", this_process("other"))
    with refused(CommitConflict):
        await store.append(record("r", 2), CommitEffects(fence=first))
    await store.append(record("r", 2), CommitEffects(fence=second))


@rule
async def a_refused_acquire_leaves_the_holder_alone(store: Store) -> None:
    await fill(store, "r", 1)
    first = await store.acquire("r", this_process("mine"), seconds=60)
    with refused(RunBusy):
        await store.acquire("r", this_process("other"), seconds=60)
    await store.append(record("r", 1), CommitEffects(fence=first))
    assert await lost(store, {"r": first}, seconds=600) == []
    await store.release("r", this_process("other"))
    with refused(RunBusy):
        await store.acquire("r", this_process("other"), seconds=60)


@rule
async def fences_of_different_runs_are_independent(store: Store) -> None:
    await fill(store, "r", 1)
    await fill(store, "s", 1)
    mine = this_process("mine")
    first = await store.acquire("s", mine, seconds=60)
    for _ in range(5):
        await store.acquire("r", mine, seconds=60)
    await store.append(record("s", 1), CommitEffects(fence=first))
    assert await lost(store, {"s": first}, seconds=60) == []


@rule
async def renewing_reports_the_runs_that_were_lost(store: Store) -> None:
    mine, other = this_process("mine"), this_process("other")
    fences: dict[str, int] = {}
    for run_id in ("a", "b", "c", *ODD_IDS):
        await fill(store, run_id, 1)
        fences[run_id] = await store.acquire(run_id, mine, seconds=60)
    assert await lost(store, {}, seconds=60) == []
    assert await lost(store, fences, seconds=60) == []
    with after(minutes=2):
        taken = {run_id: await store.acquire(run_id, other, seconds=60) for run_id in ("b", *ODD_IDS[::2])}
        assert await lost(store, {**fences, "unknown": 1}, seconds=600) == sorted(taken)
        assert await lost(store, taken, seconds=600) == []
    with after(minutes=8):
        for run_id in ("a", *ODD_IDS[1::2]):
            with refused(RunBusy):
                await store.acquire(run_id, other, seconds=60)
        for run_id in taken:
            with refused(RunBusy):
                await store.acquire(run_id, mine, seconds=60)


@rule
async def renewing_does_not_revive_a_released_lease(store: Store) -> None:
    mine = this_process("mine")
    await fill(store, "r", 1)
    fence = await store.acquire("r", mine, seconds=60)
    await store.release("r", mine)
    assert await lost(store, {"r": fence}, seconds=600) == []
    assert await store.acquire("r", this_process("other"), seconds=60) > fence
    assert await lost(store, {"r": fence}, seconds=600) == ["r"]


@rule
async def concurrent_leases_have_different_fences(store: Store) -> None:
    await fill(store, "r", 1)
    mine = this_process("mine")
    fences = await asyncio.gather(*(store.acquire("r", mine, seconds=60) for _ in range(20)))
    assert len(set(fences)) == 20
    for fence in fences:
        if fence != max(fences):
            with refused(CommitConflict):
                await store.write_log("r", 1, "k", text(1), fence=fence)
    assert await store.write_log("r", 1, "k", text(1), fence=max(fences))
