"""A process that drives runs by handles leaves them in good order when it ends."""

from __future__ import annotations

import asyncio
import time

from stepwell import InMemoryCheckpointStorage, SQLiteCheckpointStorage
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.storage.run_list import RunInfo
from stepwell.workflows import leave_runs
from tests.worker.samples import all_are, asking, counting, standings


async def run_of(storage: BuiltInStorage) -> RunInfo:
    run = await storage.get_run("r")
    assert run is not None
    return run


async def test_a_superstep_under_way_may_end(storage: BuiltInStorage) -> None:
    workflow = counting(storage, 100, pause=0.3)
    workflow.start(0, run_id="r")
    await all_are(storage, "running")
    await asyncio.sleep(0.05)
    await leave_runs()
    run = await run_of(storage)
    assert (run.number, run.standing, run.owner) == (1, "queued", None)


async def test_after_the_grace_handlers_are_cancelled(storage: BuiltInStorage) -> None:
    workflow = counting(storage, pause=60)
    workflow.start(0, run_id="r")
    await all_are(storage, "running")
    started = time.monotonic()
    await leave_runs(grace=0.1)
    assert time.monotonic() - started < 5
    run = await run_of(storage)
    assert (run.number, run.standing, run.owner) == (0, "stalled", str(this_process("")))


async def test_what_is_started_or_answered_meanwhile_is_stored_and_left() -> None:
    storage = InMemoryCheckpointStorage()
    asker = asking(storage)
    waiting = asker.start("?", run_id="asked")
    await all_are(storage, "waiting")
    await leave_runs()
    workflow = counting(storage)
    workflow.start(0, run_id="new")
    await waiting.respond({"q": "tea"})
    await asyncio.sleep(0.1)
    assert await standings(storage) == {"asked": "queued", "new": "queued"}
    assert all(run.owner is None for run in await storage.list_runs())


async def test_a_process_that_drives_nothing_leaves_at_once() -> None:
    await leave_runs()


def test_another_event_loop_is_not_concerned(tmp_path: object) -> None:
    storage = SQLiteCheckpointStorage(f"{tmp_path}/runs.db")
    asyncio.run(leave_runs())

    async def run() -> list[int]:
        return (await counting(storage).start(0, run_id="r").result()).get_outputs()

    assert asyncio.run(run()) == [3]
