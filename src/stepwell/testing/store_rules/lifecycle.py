"""Rules for event loops, threads, closing and cancellation."""

from __future__ import annotations

import asyncio
import threading

from stepwell.storage.port import Store
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import fill, numbers, record


@rule
async def a_store_works_from_many_threads_and_event_loops(store: Store) -> None:
    def drive(run_id: str) -> None:
        asyncio.run(fill(store, run_id, 5))

    threads = [threading.Thread(target=drive, args=(f"r{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads), fill(store, "mine", 5))
    for run_id in ["mine", *(f"r{n}" for n in range(6))]:
        assert numbers(await store.history(run_id)) == [0, 1, 2, 3, 4]
    assert len(await store.entries()) == 35


@rule
async def a_store_can_be_closed_twice_and_used_again(store: Store) -> None:
    await store.close()
    await fill(store, "r", 1)
    await store.close()
    await store.close()
    await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0, 1]


@rule
async def a_cancelled_caller_does_not_affect_others(store: Store) -> None:
    tasks = [asyncio.create_task(store.append(record(f"r{n}", 0))) for n in range(20)]
    await asyncio.sleep(0)
    # Whether a cancelled append is stored is open; those beside it must be.
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[1::2] == [None] * 10
    await fill(store, "after", 2)
    for n in range(1, 20, 2):
        assert numbers(await store.history(f"r{n}")) == [0]
