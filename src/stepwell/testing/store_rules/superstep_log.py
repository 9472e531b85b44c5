"""Rules for the superstep log: what is stored of a superstep that is not committed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stepwell.errors import CommitConflict
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, LogEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    acquire,
    check_refused_appends,
    expect_error,
    fill,
    log_of,
    logged,
    question,
    record,
    take_over,
    text,
)


@rule
async def the_first_log_entry_of_a_key_wins(store: Store) -> None:
    await fill(store, "r", 1)
    assert await store.write_log("r", 1, "k", b'{"first":1}')
    assert not await store.write_log("r", 1, "k", text(2))
    assert await store.write_log("r", 1, "K/../k", text(3))  # not a path
    assert await store.write_log("r", 2, "k", text(4))
    assert await log_of(store, "r") == {(1, "k"): b'{"first":1}', (1, "K/../k"): text(3), (2, "k"): text(4)}
    assert await log_of(store, "s") == {}


@rule
async def a_log_entry_takes_effect_with_what_it_asks_closes_and_consumes(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(asked=(question("r", "old"),)))
    await store.send("r", "answer", text(1))
    asked = (question("r", "q1"), replace(question("r", "old"), executor="another"))
    effects = LogEffects(asked=asked, closed=("old", "unknown"), consumed=("answer", "never sent"))
    assert await store.write_log("r", 0, "k", text(1), effects=effects)
    assert await store.requests() == list(asked)
    assert await store.pending_signals("r") == []
    assert not await store.send("r", "answer", text(2))
    assert not await store.send("r", "never sent", text(2))
    # The commit that follows asks again what is still open.
    await store.append(record("r", 1), CommitEffects(asked=asked[:1], closed=("old",), drop_log_through=0))
    assert await store.requests() == list(asked[:1])
    await store.write_log("r", 1, "k", text(1), effects=LogEffects(closed=("q1",)))
    assert await store.requests() == []


@rule
async def a_log_entry_that_is_refused_has_no_effect(store: Store) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 1, "k", text(1))
    await store.send("r", "answer", text(1))
    first = await acquire(store, "r")
    effects = LogEffects(asked=(question("r", "q"),), consumed=("answer",))
    assert not await store.write_log("r", 1, "k", text(2), effects=effects)
    await take_over(store, "r")
    await expect_error(CommitConflict, store.write_log("r", 1, "new", text(2), effects=effects, fence=first))
    assert await store.requests() == []
    assert [row.key for row in await store.pending_signals("r")] == ["answer"]


@rule
async def a_run_without_records_has_a_superstep_log(store: Store) -> None:
    await store.write_log("r", 0, "k", text(1))
    assert await logged(store, "r", 0) == {"k": text(1)}
    await fill(store, "r", 1)
    assert await logged(store, "r", 0) == {"k": text(1)}


@rule
async def an_append_drops_the_superstep_log_it_settles(store: Store) -> None:
    await fill(store, "r", 1)
    for place in range(3):
        await store.write_log("r", place, "k", text(place))
    await store.append(record("r", 1), CommitEffects(drop_log_through=1))
    assert await log_of(store, "r") == {(2, "k"): text(2)}
    await store.append(record("r", 2))
    assert await log_of(store, "r") == {(2, "k"): text(2)}


@rule
async def a_refused_append_keeps_the_superstep_log(store: Store) -> None:
    await check_refused_appends(store, CommitEffects(drop_log_through=2))


@rule
async def removing_a_record_drops_later_superstep_logs(store: Store) -> None:
    await fill(store, "r", 3)
    for place in (1, 2):
        await store.write_log("r", place, "k", text(place))
    assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS) == 1
    assert await log_of(store, "r") == {(1, "k"): text(1)}
    # The place exists again, but what was logged there belonged to another history.
    await store.rewrite("r", insert=record("r", 2))
    assert await log_of(store, "r") == {(1, "k"): text(1)}
    assert await store.write_log("r", 2, "k", text(3))


@rule
async def concurrent_log_entries_of_one_key_have_one_winner(store: Store) -> None:
    await fill(store, "r", 1)
    kept = await asyncio.gather(*(store.write_log("r", 1, f"k{n % 10}", text(n)) for n in range(30)))
    assert sum(kept) == 10
    assert await logged(store, "r", 1) == {f"k{n % 10}": text(n) for n in range(30) if kept[n]}


@rule
async def a_transaction_logs_its_result(store: Store) -> None:
    await fill(store, "r", 1)
    fence = await acquire(store, "r")
    if store.transaction("r", 0, "k", fence=fence) is None:  # the store has none
        return

    async def do(key: str, work: Callable[[Any], bytes]) -> bytes | None:
        transaction = store.transaction("r", 0, key, fence=fence)
        assert transaction is not None
        return await asyncio.to_thread(transaction.do, work)

    assert await do("k", lambda connection: text(1)) is None
    assert await log_of(store, "r") == {(0, "k"): text(1)}
    # Done once: the second time, the logged result is returned and nothing is stored.
    assert await do("k", lambda connection: text(2)) == text(1)
    await expect_error(ZeroDivisionError, do("l", lambda connection: text(1 / 0)))
    await take_over(store, "r")
    await expect_error(CommitConflict, do("l", lambda connection: text(3)))
    assert await log_of(store, "r") == {(0, "k"): text(1)}
