"""Rules for holding a lease: who drives a run, and until when."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.lease import Owner, process_start, this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import ODD_IDS, after, fill, meanings, numbers, record, refused, text


def another_live_owner(drive: str = "other") -> Owner:
    # Another drive of this very process: it is certainly alive, so its lease is never taken over
    # early.
    return this_process(drive)


@rule
async def a_run_has_one_driver_at_a_time(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    # The owner may acquire again: a driver that lost the answer retries.
    await store.acquire("r", mine, seconds=60)
    await store.acquire("r", mine, seconds=60)
    await store.acquire("s", other, seconds=60)
    with refused(RunBusy, str(mine.pid)) as refusal:
        await store.acquire("r", other, seconds=60)
    assert (refusal.error.run_id, refusal.error.owner) == ("r", str(mine))


@rule
async def a_lease_survives_the_removal_of_the_run(store: Store) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    await fill(store, "r", 1)
    with refused(RunBusy):
        await store.acquire("r", another_live_owner(), seconds=60)
    await store.rewrite("r", remove=[0], effects=NO_EFFECTS)
    with refused(RunBusy):
        await store.acquire("r", another_live_owner(), seconds=60)
    await fill(store, "r", 1, workflow="another")
    with refused(RunBusy):
        await store.acquire("r", another_live_owner(), seconds=60)


@rule
async def a_released_run_can_be_acquired(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    await store.acquire("r", mine, seconds=60)
    await store.release("r", other)
    with refused(RunBusy):
        await store.acquire("r", other, seconds=60)
    await store.release("r", mine)
    await store.acquire("r", other, seconds=60)
    assert await store.checkpoints() == []


@rule
async def opening_a_run_for_an_owner_acquires_it(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    await fill(store, "r", 2)
    before = await store.acquire("r", mine, seconds=60)
    opened = await store.open("r", owner=mine, seconds=600)  # the owner may acquire again
    assert opened.fence is not None
    assert opened.fence > before
    assert numbers(opened.records) == [1]
    with after(minutes=2):
        with refused(RunBusy, str(mine.pid)) as refusal:
            await store.open("r", owner=other, seconds=60)
        assert (refusal.error.run_id, refusal.error.owner) == ("r", str(mine))
        with refused(RunBusy):
            await store.acquire("r", other, seconds=60)
    await store.append(record("r", 2), CommitEffects(fence=opened.fence))  # a refused opening changes nothing
    await store.release("r", mine)
    fence = (await store.open("r", owner=other, seconds=60)).fence
    assert fence is not None
    assert fence > opened.fence
    with refused(CommitConflict):
        await store.append(record("r", 3), CommitEffects(fence=opened.fence))
    with after(minutes=2):
        await store.open("r", owner=mine, seconds=60)  # the lease of the other is over
        with refused(RunBusy):
            await store.open("r", owner=other, seconds=60)


@rule
async def opening_a_run_without_an_owner_takes_no_lease(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    await fill(store, "r", 1)
    assert (await store.open("r")).fence is None
    fence = await store.acquire("r", mine, seconds=60)
    # Anyone may look at a run that is being driven, and its driver does not notice.
    opened = await store.open("r")
    assert opened.fence is None
    assert meanings(opened.records) == meanings([record("r", 0)])
    await store.append(record("r", 1), CommitEffects(fence=fence))
    with refused(RunBusy):
        await store.acquire("r", other, seconds=60)
    assert (await store.open("new")).fence is None
    await store.acquire("new", other, seconds=60)


@rule
async def the_last_append_of_a_drive_ends_its_lease(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    fence = await store.acquire("r", mine, seconds=60)
    await store.append(record("r", 0), CommitEffects(fence=fence))
    with refused(RunBusy):
        await store.acquire("r", other, seconds=60)
    await store.append(record("r", 1), CommitEffects(fence=fence, release=True))
    assert await store.acquire("r", other, seconds=60) > fence
    with refused(RunBusy):
        await store.acquire("r", mine, seconds=60)
    fence = await store.acquire("s", mine, seconds=60)
    await store.append(record("s", 0), CommitEffects(fence=fence, release=True))
    # Until someone else has acquired the run, its last driver may write: the fence is the highest.
    await store.append(record("s", 1), CommitEffects(fence=fence, release=True))
    assert list((await asyncio.to_thread(store.renew, {"s": fence}, seconds=60)).lost) == []
    await store.acquire("s", other, seconds=60)  # a lease that has ended is not renewed


@rule
async def an_append_ends_no_lease_but_its_own(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    first = await store.acquire("r", mine, seconds=60)
    await store.append(record("r", 0), CommitEffects(fence=first))
    # Refused for its number: the lease is still held.
    with refused(CommitConflict):
        await store.append(record("r", 0), CommitEffects(fence=first, release=True))
    with refused(RunBusy):
        await store.acquire("r", other, seconds=60)
    # Without a fence there is no lease to end.
    await store.append(record("r", 1), CommitEffects(release=True))
    with refused(RunBusy):
        await store.acquire("r", other, seconds=60)
    with after(minutes=2):
        await store.acquire("r", other, seconds=600)
    with refused(CommitConflict):
        await store.append(record("r", 2), CommitEffects(fence=first, release=True))
    with refused(RunBusy):
        await store.acquire("r", mine, seconds=60)


@rule
async def a_lease_expires(store: Store) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    with after(minutes=2):
        await store.acquire("r", another_live_owner(), seconds=60)
        with refused(RunBusy):
            await store.acquire("r", this_process("mine"), seconds=60)


@rule
async def renewing_extends_a_lease_that_is_held(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    fence = await store.acquire("r", mine, seconds=60)
    await store.acquire("s", other, seconds=60)
    await asyncio.to_thread(store.renew, {"r": fence, "unknown": fence}, seconds=600)
    with after(minutes=2):
        with refused(RunBusy):
            await store.acquire("r", other, seconds=60)
        await store.acquire("s", mine, seconds=60)
        await store.acquire("unknown", other, seconds=60)


@rule
async def asking_how_leases_stand_extends_none(store: Store) -> None:
    mine, other = this_process("mine"), another_live_owner()
    await fill(store, "r", 1)
    await fill(store, "s", 1)
    fences = {run_id: await store.acquire(run_id, mine, seconds=60) for run_id in ("r", "s")}
    await store.send("r", "k", text(1))
    with after(minutes=0.5):
        report = await asyncio.to_thread(store.renew, fences, seconds=None)
        assert (list(report.lost), list(report.signalled)) == ([], ["r"])
    with after(minutes=1.25):
        await store.acquire("s", other, seconds=60)
        report = await asyncio.to_thread(store.renew, {**fences, "unknown": 1}, seconds=None)
        assert (list(report.lost), list(report.signalled)) == (["s"], ["r"])
        await store.acquire("r", other, seconds=60)


@rule
async def renewing_reports_the_runs_with_signals(store: Store) -> None:
    mine = this_process("mine")

    async def signalled(*run_ids: str) -> list[str]:
        asked = {run_id: fences.get(run_id, 1) for run_id in run_ids}
        with_renewal = await asyncio.to_thread(store.renew, asked, seconds=60)
        without = await asyncio.to_thread(store.renew, asked, seconds=None)
        assert sorted(with_renewal.signalled) == sorted(without.signalled)
        assert (*with_renewal.lost, *without.lost) == ()
        return sorted(without.signalled)

    fences: dict[str, int] = {}
    assert await signalled() == []
    for run_id in ("r", "s", "t", "new"):
        fences[run_id] = await store.acquire(run_id, mine, seconds=60)
    assert await signalled("r", "nobody") == []
    for run_id in ("r", "s", "t"):
        await fill(store, run_id, 1)
        await store.send(run_id, "k", text(1))
    await store.send("r", "l", text(2))
    await store.send("new", "k", text(1))  # it has no record yet
    for run_id in ("s", "r"):
        await store.append(record(run_id, 1), CommitEffects(consumed=("k",)))
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
    fences = {name: await store.acquire(name, this_process("mine"), seconds=60) for name in odd}
    for name in odd[::2]:
        await store.send(name, "k", text(1))
    asked = {**fences, **{str(n): 1 for n in range(2, 5000)}}
    for seconds in (None, 60):
        report = await asyncio.to_thread(store.renew, asked, seconds=seconds)
        assert sorted(report.signalled) == sorted(odd[::2])
        assert list(report.lost) == []


def another_process() -> subprocess.Popen[bytes]:
    # Waits for input that never comes, so it lives until it is killed.
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@rule
async def the_run_of_a_dead_process_is_taken_over_at_once(store: Store) -> None:
    with another_process() as process:
        theirs = replace(this_process("theirs"), pid=process.pid, started=process_start(process.pid))
        await store.acquire("r", theirs, seconds=60)
        with refused(RunBusy):
            await store.acquire("r", this_process("mine"), seconds=60)
        process.kill()
        while process_start(process.pid):  # noqa: ASYNC110 - a killed process gives no signal
            await asyncio.sleep(0.01)
        await store.acquire("r", this_process("mine"), seconds=60)
    with refused(RunBusy):
        await store.acquire("r", another_live_owner(), seconds=60)


@rule
async def the_run_of_a_process_on_another_machine_is_left_to_it(store: Store) -> None:
    # Process 1 with a start time of "0" would count as dead here; on another machine nobody can
    # know.
    await store.acquire("r", replace(this_process("x"), machine="elsewhere", pid=1, started="0"), seconds=60)
    with refused(RunBusy):
        await store.acquire("r", this_process("mine"), seconds=60)
