"""What the tests of the PostgreSQL store share."""

import pytest

from stepwell.errors import StoreUnavailable
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import head, logged, numbers, record, signals_of

PATIENT = 600.0  # seconds; a test must not fail because the machine is busy


BEGIN = """
import asyncio, sys
from stepwell.errors import CommitConflict
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import head, record

store = PostgresStore({dsn!r}, schema={schema!r}, timeout=600)
"""


# -------------------------------------------------------------------- servers and lines that come and go


async def drive(store: PostgresStore, run_id: str, count: int) -> None:
    for number in range(count):
        assert await store.write_log(run_id, number, "k", b"1")
        assert await store.send(run_id, str(number), b"1")
        assert [key for key, _ in await signals_of(store, run_id)] == [str(number)]
        await store.append(record(run_id, number), CommitEffects(drop_log_through=number, consumed=(str(number),)))
        newest = await head(store, run_id)
        assert newest is not None
        assert newest.entry.number == number


async def nothing_is_lost(store: PostgresStore, count: int, runs: int) -> None:
    for n in range(runs):
        assert numbers(await store.history(f"r{n}")) == list(range(count))
        assert await store.pending_signals(f"r{n}") == []
        assert await logged(store, f"r{n}", count - 1) == {}
    assert len(await store.checkpoints()) == count * runs


# -------------------------------------------------------------------- what goes wrong, in words


async def refused(store: PostgresStore) -> str:
    with pytest.raises(StoreUnavailable) as refusal:
        await store.append(record("r", 0))
    with pytest.raises(StoreUnavailable):
        await head(store, "r")
    await store.close()
    return str(refusal.value)
