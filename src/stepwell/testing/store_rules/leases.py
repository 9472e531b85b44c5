"""Rules for leases: who drives a run, and until when."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

from stepwell.errors import RunBusy
from stepwell.storage.lease import Owner, process_start, this_process
from stepwell.storage.port import Store
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import after, fill, refused


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
    await store.remove("r", 0)
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
    assert await store.entries() == []


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
