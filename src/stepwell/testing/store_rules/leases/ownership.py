"""Rules for holding a lease: who drives a run, and until when."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable
from dataclasses import replace

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.lease import process_start, this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    after,
    append_all,
    expect_error,
    fill,
    meanings,
    numbers,
    open_for,
    record,
    release,
    renew,
    take_over,
    text,
)


@rule
async def a_run_has_one_driver_at_a_time(store: Store) -> None:
    # The owner may acquire again: a driver that lost the answer retries.
    await acquire(store, "r")
    await acquire(store, "r")
    await acquire(store, "s", "other")
    await expect_busy(acquire(store, "r", "other"))


async def expect_busy(call: Awaitable[object]) -> None:
    """Expect the error for run "r" that a drive of this process holds; it names the process."""
    mine = this_process("mine")
    error = await expect_error(RunBusy, call, str(mine.pid))
    assert (error.run_id, error.owner) == ("r", str(mine))


@rule
async def a_lease_survives_the_removal_of_the_run(store: Store) -> None:
    await acquire(store, "r")
    await fill(store, "r", 1)
    await expect_busy(acquire(store, "r", "other"))
    await store.rewrite("r", remove=[0], effects=NO_EFFECTS)
    await expect_busy(acquire(store, "r", "other"))
    await fill(store, "r", 1, workflow="another")
    await expect_busy(acquire(store, "r", "other"))


@rule
async def a_released_run_can_be_acquired(store: Store) -> None:
    await acquire(store, "r")
    await release(store, "r", "other")
    await expect_busy(acquire(store, "r", "other"))
    await release(store, "r")
    await acquire(store, "r", "other")
    assert await store.checkpoints() == []


@rule
async def a_run_that_its_driver_leaves_in_the_middle_keeps_its_name_until_it_is_acquired(store: Store) -> None:
    await fill(store, "r", 1)
    fence = await acquire(store, "r")
    await release(store, "r", "other", stalls=True)  # not its lease
    await expect_busy(acquire(store, "r", "other"))
    await release(store, "r", stalls=True)
    await renew(store, {"r": fence})  # does not bring it back
    left = await store.run("r")
    assert left is not None
    assert left.lease is not None
    assert (left.lease.owner, left.lease.was_released, left.lease.is_over()) == (this_process("mine"), True, True)
    opened, _ = await open_for(store, "r", "other")
    assert opened.takeovers == 0  # nobody was lost
    await expect_busy(acquire(store, "r"))
    await release(store, "r", "other")
    entry = await store.run("r")
    assert entry is not None
    assert entry.lease is None
    await acquire(store, "new")
    await release(store, "new", stalls=True)  # without a record there is nothing to name
    assert [run.run_id for run in await store.runs()] == ["r"]


@rule
async def opening_a_run_for_an_owner_acquires_it(store: Store) -> None:
    await fill(store, "r", 2)
    before = await acquire(store, "r")
    opened, mine = await open_for(store, "r", seconds=600)  # the owner may acquire again
    assert mine > before
    assert numbers(opened.records) == [1]
    with after(minutes=2):
        await expect_busy(open_for(store, "r", "other"))
        await expect_busy(acquire(store, "r", "other"))
    await store.append(record("r", 2), CommitEffects(fence=mine))  # a refused opening changes nothing
    await release(store, "r")
    _, other = await open_for(store, "r", "other")
    assert other > mine
    await expect_error(CommitConflict, store.append(record("r", 3), CommitEffects(fence=mine)))
    with after(minutes=2):
        await open_for(store, "r")  # the lease of the other is over
        await expect_busy(open_for(store, "r", "other"))


@rule
async def opening_a_run_without_an_owner_takes_no_lease(store: Store) -> None:
    await fill(store, "r", 1)
    assert (await store.open("r")).fence is None
    fence = await acquire(store, "r")
    # Anyone may look at a run that is being driven, and its driver does not notice.
    opened = await store.open("r")
    assert (opened.fence, meanings(opened.records)) == (None, meanings([record("r", 0)]))
    await store.append(record("r", 1), CommitEffects(fence=fence))
    await expect_busy(acquire(store, "r", "other"))
    assert (await store.open("new")).fence is None
    await acquire(store, "new", "other")


@rule
async def the_last_append_of_a_drive_ends_its_lease(store: Store) -> None:
    fence = await acquire(store, "r")
    await store.append(record("r", 0), CommitEffects(fence=fence))
    await expect_busy(acquire(store, "r", "other"))
    await store.append(record("r", 1), CommitEffects(fence=fence, release=True))
    assert await acquire(store, "r", "other") > fence
    await expect_busy(acquire(store, "r"))
    fence = await acquire(store, "s")
    # Until someone else has acquired the run, its last driver may write: the fence is the highest.
    await append_all(store, [record("s", 0), record("s", 1)], CommitEffects(fence=fence, release=True))
    assert await renew(store, {"s": fence}) == ([], [])
    await acquire(store, "s", "other")  # a lease that has ended is not renewed


@rule
async def an_append_ends_no_lease_but_its_own(store: Store) -> None:
    first = await acquire(store, "r")
    await store.append(record("r", 0), CommitEffects(fence=first))
    # Refused for its number: the lease is still held.
    last = CommitEffects(fence=first, release=True)
    await expect_error(CommitConflict, store.append(record("r", 0), last))
    await expect_busy(acquire(store, "r", "other"))
    # Without a fence there is no lease to end.
    await store.append(record("r", 1), CommitEffects(release=True))
    await expect_busy(acquire(store, "r", "other"))
    await take_over(store, "r")
    await expect_error(CommitConflict, store.append(record("r", 2), last))
    await expect_busy(acquire(store, "r"))


@rule
async def a_lease_expires(store: Store) -> None:
    await acquire(store, "r")
    with after(minutes=2):
        await acquire(store, "r", "other")
        await expect_busy(acquire(store, "r"))


@rule
async def renewing_extends_a_lease_that_is_held(store: Store) -> None:
    fence = await acquire(store, "r")
    await acquire(store, "s", "other")
    await renew(store, {"r": fence, "unknown": fence}, seconds=600)
    with after(minutes=2):
        await expect_busy(acquire(store, "r", "other"))
        await acquire(store, "s")
        await acquire(store, "unknown", "other")


@rule
async def asking_how_leases_stand_extends_none(store: Store) -> None:
    await fill(store, "r", 1)
    await fill(store, "s", 1)
    fences = {run_id: await acquire(store, run_id) for run_id in ("r", "s")}
    await store.send("r", "k", text(1))
    with after(minutes=0.5):
        assert await renew(store, fences, seconds=None) == ([], ["r"])
    with after(minutes=1.25):
        await acquire(store, "s", "other")
        assert await renew(store, {**fences, "unknown": 1}, seconds=None) == (["s"], ["r"])
        await acquire(store, "r", "other")


@rule
async def renewing_reports_the_runs_with_signals(store: Store) -> None:
    fences: dict[str, int] = {}

    async def signalled(*run_ids: str) -> list[str]:
        asked = {run_id: fences.get(run_id, 1) for run_id in run_ids}
        report = await renew(store, asked)
        assert report == await renew(store, asked, seconds=None) == ([], report[1])
        return report[1]

    assert await signalled() == []
    for run_id in ("r", "s", "t", "new"):
        fences[run_id] = await acquire(store, run_id)
    assert await signalled("r", "nobody") == []
    for run_id in ("r", "s", "t"):
        await fill(store, run_id, 1)
    for run_id, key in [("r", "k"), ("s", "k"), ("t", "k"), ("r", "l"), ("new", "k")]:  # "new" has no record yet
        await store.send(run_id, key, text(1))
    await append_all(store, [record("s", 1), record("r", 1)], CommitEffects(consumed=("k",)))
    assert await signalled("nobody", "s", "r", "new") == ["new", "r"]
    await store.append(record("r", 2), CommitEffects(consumed=("l",)))
    assert await signalled("r", "s") == []
    assert await signalled("t") == ["t"]
    await store.rewrite("t", remove=[0], effects=NO_EFFECTS)
    assert await signalled("t") == []


@rule
async def runs_with_signals_are_found_among_thousands(store: Store) -> None:
    # "~0" and the like are what a store might use to escape a NUL.
    odd = [*ODD_IDS, "~0", "~1", "a~0b", "a~1b", "a", '"', "'", "[", "1", "null"]
    fences = {name: await acquire(store, name) for name in odd}
    for name in odd[::2]:
        await store.send(name, "k", text(1))
    asked = {**fences, **{str(n): 1 for n in range(2, 5000)}}
    for seconds in (None, 60):
        assert await renew(store, asked, seconds=seconds) == ([], sorted(odd[::2]))


@rule
async def the_run_of_a_dead_process_is_taken_over_at_once(store: Store) -> None:
    # Waits for input that never comes, so it lives until it is killed.
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: ASYNC220 - takes a moment only
        theirs = replace(this_process("theirs"), pid=process.pid, started=process_start(process.pid))
        await store.acquire("r", theirs, seconds=60)
        await expect_error(RunBusy, acquire(store, "r"))
        process.kill()
        while process_start(process.pid):  # noqa: ASYNC110 - a killed process gives no signal
            await asyncio.sleep(0.01)
        await acquire(store, "r")
    await expect_busy(acquire(store, "r", "other"))


@rule
async def the_run_of_a_process_on_another_machine_is_left_to_it(store: Store) -> None:
    # Process 1 with a start time of "0" would count as dead here; on another machine nobody can
    # know.
    await store.acquire("r", replace(this_process("x"), machine="elsewhere", pid=1, started="0"), seconds=60)
    await expect_error(RunBusy, acquire(store, "r"))
