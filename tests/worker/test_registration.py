"""Workers announce themselves, share the ready runs, and do not share a name."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from stepwell import DefinitionError, InMemoryCheckpointStorage, RunBusy
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.storage.worker_registry import ALIVE_FOR, WorkerProfile
from stepwell.worker import Worker, registration
from tests.conftest import Later
from tests.worker.samples import all_are, counting, eventually, serving, submit


async def test_a_worker_says_who_it_is_and_what_it_drives(
    storage: BuiltInStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "EVERY", 0.02)
    workflow = counting(storage, pause=60)
    await submit(workflow, storage, 0, "r")
    async with serving(Worker(storage, [workflow], slots=7, name="one", grace=0)):

        async def is_seen() -> bool:
            return [worker.runs for worker in await storage.list_workers()] == [("r",)]

        await eventually(is_seen)
        (worker,) = await storage.list_workers()
        assert (worker.name, worker.slots, worker.workflows, worker.is_alive) == ("one", 7, {"counting": 1}, True)
    assert await storage.list_workers() == []


async def test_a_second_worker_with_the_same_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "_LOOK_AGAIN", 0.001)
    monkeypatch.setattr(registration, "ALIVE_FOR", 0.01)  # how long it waits
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    async with serving(Worker(storage, [workflow], name="one")):
        await asyncio.sleep(0.05)
        with pytest.raises(DefinitionError, match="another worker is named 'one' and is alive"):
            await Worker(storage, [workflow], name="one").serve()
        assert caplog.text.count("there is a worker named 'one' already") == 1
        await submit(workflow, storage, 0, "r")
        await all_are(storage, "completed")  # the first one works on


async def test_the_name_of_a_worker_that_died_here_is_free_at_once(storage: BuiltInStorage) -> None:
    assert storage._registry is not None
    dead = replace(this_process("of the dead"), pid=2**22 + 1, started="0")
    body = msgspec.json.encode(WorkerProfile(dead, "1", 1, {}, (), "2026-01-01T00:00:00+00:00"))
    assert await storage._registry.announce_worker("one", "dead", body)
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    async with serving(Worker(storage, [workflow], name="one")):
        await all_are(storage, "completed")


async def test_the_name_of_a_worker_that_died_elsewhere_is_free_when_it_was_silent_for_a_while(
    monkeypatch: pytest.MonkeyPatch, later: Later
) -> None:
    monkeypatch.setattr(registration, "_LOOK_AGAIN", 0.01)
    storage = InMemoryCheckpointStorage()
    assert storage._registry is not None
    elsewhere = replace(this_process("elsewhere"), machine="another")
    body = msgspec.json.encode(WorkerProfile(elsewhere, "1", 1, {}, (), "2026-01-01T00:00:00+00:00"))
    await storage._registry.announce_worker("one", "elsewhere", body)
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    async with serving(Worker(storage, [workflow], name="one")):
        await asyncio.sleep(0.1)
        later(seconds=ALIVE_FOR + 1)
        await all_are(storage, "completed")


async def test_workers_that_share_a_store_rarely_get_in_each_others_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "EVERY", 0.02)
    storage = InMemoryCheckpointStorage()
    workflow, acquired, refused = counting(storage, pause=0.002), 0, 0
    opening = storage._store.open

    async def counted(run_id: str, **options: object) -> object:
        nonlocal acquired, refused
        try:
            opened = await opening(run_id, **options)  # type: ignore[arg-type]
        except RunBusy:
            refused += 1
            raise
        acquired += options.get("owner") is not None
        return opened

    monkeypatch.setattr(storage._store, "open", counted)
    async with serving(*(Worker(storage, [workflow], slots=3, name=f"w{n}") for n in range(4))):
        await asyncio.sleep(0.1)  # until they know each other
        acquired = refused = 0
        for n in range(60):
            await submit(workflow, storage, 0, f"r{n}")
        await all_are(storage, "completed")
    assert acquired >= 60
    assert refused <= acquired * 0.05
