"""The registry of workers keeps its promises on every store."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stepwell import InMemoryCheckpointStorage
from stepwell.storage.lease import Owner, this_process
from stepwell.storage.worker_registry import ALIVE_FOR, KEPT_FOR, WorkerProfile, WorkerRegistry, WorkerRow, worker_info
from stepwell.testing.store_rules.samples import ODD_IDS
from tests.conftest import Later
from tests.stores.test_rules import STORES

ALIVE = this_process("w")
DEAD = replace(this_process("of the dead"), pid=2**22 + 1, started="0")


@pytest.fixture(params=list(STORES))
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    with ExitStack() as after:
        store = STORES[request.param](tmp_path, after)()
        assert isinstance(store, WorkerRegistry)
        yield store


def profile(owner: Owner = ALIVE) -> bytes:
    return msgspec.json.encode(WorkerProfile(owner, "1.0", 5, {"w": 2}, ("r",), "2026-01-01T00:00:00+00:00"))


async def names(registry: WorkerRegistry) -> list[str]:
    return [row.name for row in await registry.workers()]


async def test_workers_are_listed_by_name_with_what_they_say(registry: WorkerRegistry) -> None:
    assert await registry.workers() == []
    assert await registry.announce_worker("b", "1", b'{"n":1}')
    assert await registry.announce_worker("a", "2", b'{"n":2}')
    assert [(row.name, row.process, row.body) for row in await registry.workers()] == [
        ("a", "2", b'{"n":2}'),
        ("b", "1", b'{"n":1}'),
    ]
    assert all(0 <= row.age < 60 for row in await registry.workers())


async def test_the_latest_announcement_counts(registry: WorkerRegistry, later: Later) -> None:
    await registry.announce_worker("a", "1", b'{"n":1}')
    later(seconds=10)
    assert await registry.announce_worker("a", "1", b'{"n":2}')
    (row,) = await registry.workers()
    assert row.body == b'{"n":2}'
    assert row.age < 5
    later(seconds=7)
    (row,) = await registry.workers()
    assert 7 <= row.age < 12


async def test_a_name_belongs_to_one_process_until_it_falls_silent(registry: WorkerRegistry, later: Later) -> None:
    await registry.announce_worker("a", "1", b'{"n":1}')
    later(seconds=ALIVE_FOR - 2)
    assert not await registry.announce_worker("a", "2", b'{"n":2}')
    (row,) = await registry.workers()
    assert (row.process, row.body) == ("1", b'{"n":1}')
    later(seconds=4)
    assert await registry.announce_worker("a", "2", b'{"n":2}')
    assert not await registry.announce_worker("a", "1", b'{"n":1}')


async def test_only_the_process_itself_withdraws_its_name(registry: WorkerRegistry) -> None:
    await registry.withdraw_worker("nobody", "1")
    await registry.announce_worker("a", "1", b"{}")
    await registry.withdraw_worker("a", "2")
    assert await names(registry) == ["a"]
    await registry.withdraw_worker("a", "1")
    assert await names(registry) == []


async def test_workers_that_are_long_gone_are_removed(registry: WorkerRegistry, later: Later) -> None:
    await registry.announce_worker("old", "1", b"{}")
    later(seconds=KEPT_FOR - 60)
    await registry.announce_worker("new", "2", b"{}")
    assert await names(registry) == ["new", "old"]
    later(seconds=120)
    await registry.announce_worker("new", "2", b"{}")
    assert await names(registry) == ["new"]


async def test_any_text_is_a_name(registry: WorkerRegistry) -> None:
    odd = [name for name in ODD_IDS if name]
    for name in odd:
        assert await registry.announce_worker(name, name, b"{}")
    assert await names(registry) == sorted(odd)


def test_a_worker_is_alive_if_it_was_seen_lately_and_its_process_is_not_known_to_be_dead() -> None:
    elsewhere = replace(DEAD, machine="another")
    assert worker_info(WorkerRow("a", "", 1.0, profile())).is_alive
    assert worker_info(WorkerRow("a", "", 1.0, profile(elsewhere))).is_alive
    assert not worker_info(WorkerRow("a", "", ALIVE_FOR + 1, profile())).is_alive
    assert not worker_info(WorkerRow("a", "", 1.0, profile(DEAD))).is_alive


async def test_a_storage_lists_its_workers(later: Later) -> None:
    storage = InMemoryCheckpointStorage()
    assert storage._registry is not None
    await storage._registry.announce_worker("a", "1", profile())
    (worker,) = await storage.list_workers()
    assert (worker.name, worker.version, worker.slots, worker.workflows) == ("a", "1.0", 5, {"w": 2})
    assert (worker.runs, worker.is_alive) == (("r",), True)
    assert worker.process == f"process {os.getpid()} on {this_process('').host}"
