"""A store that fails is heard of, and whoever goes on afterwards repeats nothing; one that is slow changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CommitConflict, StoreUnavailable
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import FailingStore, FakeClock, Ledger, NotTheSame, ScriptedHuman, SlowStore, crash_everywhere
from stepwell.testing.store_rules.samples import record
from tests.support.payments import AMOUNT, EFFECTS, OUTPUTS, RUN, Payment, build
from tests.support.postgres_server import dsn, fresh_schema


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Makes an empty store, as often as it is asked."""
    numbers = count()
    with ExitStack() as after:
        yield {
            "memory": MemoryStore,
            "sqlite": lambda: SQLiteStore(tmp_path / f"{next(numbers)}.db"),
            "file": lambda: FileStore(tmp_path / str(next(numbers))),
            "postgres": lambda: PostgresStore(dsn(), schema=after.enter_context(fresh_schema())),
        }[request.param]


@pytest.mark.long
async def test_a_write_that_fails_is_heard_of_and_what_was_durable_is_not_repeated(new_store: Any) -> None:
    ledger = Ledger()
    report = await crash_everywhere(
        build(ledger), AMOUNT, answer=lambda _: True, ledger=ledger, store=new_store, fault=FailingStore
    )
    assert report.writes >= 8
    assert report.crashes >= 2 * report.writes
    assert ledger.effects == EFFECTS


async def test_a_store_that_is_away_for_a_while_is_found_again(new_store: Any) -> None:
    payment, store = Payment(), new_store()
    failing = FailingStore(store, range(4, 7))
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"write \d \(\w+\) failed"):
            await payment.drive(failing)
    assert await payment.drive(failing) == OUTPUTS
    assert payment.ledger.effects == EFFECTS
    assert len(failing.failed) == 3
    await store.close()


@pytest.mark.parametrize("turns", [1, [9, 0, 4], [0, 0, 0, 30]], ids=str)
async def test_a_slow_store_changes_nothing(new_store: Any, turns: Any) -> None:
    seen = []
    for slow in (False, True):
        payment, store = Payment(), new_store()
        with FakeClock() as later:
            # slower than a lease lasts: nobody else is there to take the run
            used = SlowStore(store, turns, clock=later, seconds=40) if slow else store
            outputs = await payment.drive(used)
        storage = BuiltInStorage(store)
        head = await storage.get_latest(run_id=RUN)
        assert head is not None
        ids = await storage.list_checkpoint_ids(run_id=RUN)
        seen.append((outputs, dict(head.state), ids, payment.ledger.effects, payment.ledger.calls))
        await store.close()
    assert seen[0] == seen[1]
    assert seen[0][0] == OUTPUTS


async def test_what_is_asked_of_a_slow_store_may_overtake() -> None:
    slow, order = SlowStore(MemoryStore(), [9, 0, 4]), []

    async def append(run_id: str) -> None:
        await slow.append(record(run_id, 0))
        order.append(run_id)

    await asyncio.gather(*map(append, "abc"))
    assert order == ["b", "c", "a"]
    assert len(await slow.checkpoints()) == 3


async def test_a_lost_acknowledgement_is_a_write_all_the_same() -> None:
    store = MemoryStore()
    losing = FailingStore(store, 2, after=True)
    await losing.append(record("r", 0))
    with pytest.raises(StoreUnavailable, match="acknowledgement was lost"):
        await losing.append(record("r", 1))
    with pytest.raises(CommitConflict):
        await losing.append(record("r", 1))
    assert [entry.number for entry in await store.checkpoints()] == [0, 1]
    assert (losing.writes, [name for name, _ in losing.failed]) == (3, ["append"])


class Quiet(FailingStore):
    """Says that it wrote, and did not."""

    async def write(self, name: str, args: Any, call: Any) -> Any:
        try:
            return await super().write(name, args, call)
        except StoreUnavailable:
            return True


async def test_a_failure_that_nobody_hears_of_is_found() -> None:
    last = (await crash_everywhere(build(Ledger()), AMOUNT, answer=lambda _: True, only=(1, True))).writes
    with pytest.raises(NotTheSame, match=r"the driver got no error .* only=\(\d+, False\)"):
        await crash_everywhere(build(Ledger()), AMOUNT, answer=lambda _: True, fault=Quiet, only=(last, False))


async def test_one_point_can_be_tried_alone() -> None:
    report = await crash_everywhere(build(Ledger()), AMOUNT, answer=lambda _: True, only=(3, True))
    assert report.crashes == 1


async def test_what_a_trial_opened_it_closes() -> None:
    class Watched(MemoryStore):
        opened = closed = 0

        def __init__(self) -> None:
            super().__init__()
            Watched.opened += 1

        async def close(self) -> None:
            Watched.closed += 1

    report = await crash_everywhere(build(Ledger()), AMOUNT, answer=ScriptedHuman([True]), store=Watched)
    assert Watched.opened == Watched.closed == report.runs
