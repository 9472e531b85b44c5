"""Rules for signals: what is sent to a run from outside."""

from __future__ import annotations

import asyncio
import json

from stepwell.errors import CommitConflict
from stepwell.storage.filters import RequestFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    check_refused_appends,
    expect_error,
    fill,
    numbers,
    question,
    record,
    release,
    signals_of,
    take_over,
    text,
)


@rule
async def a_run_without_signals_has_none(store: Store) -> None:
    assert await store.pending_signals("r") == []
    await fill(store, "r", 1)
    assert (*await store.pending_signals("r"), *(await store.open("r")).signals) == ()


@rule
async def signals_are_read_oldest_first(store: Store) -> None:
    await fill(store, "r", 1)
    keys = ["b", "a", "Z", "c", *map(str, range(12))]
    for key in keys:
        assert await store.send("r", key, text(key))
    assert await signals_of(store, "r") == [(key, text(key)) for key in keys]
    await store.append(record("r", 1), CommitEffects(consumed=("a", "c")))
    await store.send("r", "last", text("last"))
    keys = [key for key in keys if key not in ("a", "c")]
    assert [key for key, _ in await signals_of(store, "r")] == [*keys, "last"]


@rule
async def signals_of_different_runs_are_kept_apart(store: Store) -> None:
    await fill(store, "r", 1)
    await fill(store, "s", 1)
    assert await store.send("r", "k", text(1))
    assert await store.send("s", "k", text(2))
    await store.append(record("r", 1), CommitEffects(consumed=("k",)))
    assert await store.pending_signals("r") == []
    assert await signals_of(store, "s") == [("k", text(2))]


@rule
async def the_first_signal_of_a_key_wins_permanently(store: Store) -> None:
    await fill(store, "r", 1)
    assert await store.send("r", "k", text(1))
    assert not await store.send("r", "k", text(2))
    assert await signals_of(store, "r") == [("k", text(1))]
    await store.append(record("r", 1), CommitEffects(consumed=("k",)))
    # A consumed signal leaves a tombstone: a late second response must not reopen the request.
    assert not await store.send("r", "k", text(3))
    assert await store.pending_signals("r") == []
    await store.append(record("r", 2))
    await store.rewrite("r", insert=record("r", 1, body="again"), effects=CommitEffects())
    assert not await store.send("r", "k", text(4))
    assert await store.pending_signals("r") == []


@rule
async def a_driver_that_has_lost_its_lease_sends_nothing(store: Store) -> None:
    await fill(store, "r", 1)
    first = await acquire(store, "r")
    assert await store.send("r", "a", text(1), fence=first)
    second = await take_over(store, "r")
    await expect_error(CommitConflict, store.send("r", "b", text(2), fence=first))
    assert await store.send("r", "c", text(3), fence=second)
    assert not await store.send("r", "a", text(4), fence=second)
    assert await signals_of(store, "r") == [("a", text(1)), ("c", text(3))]


@rule
async def a_key_consumed_before_it_was_sent_cannot_be_sent(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(consumed=("k",)))
    assert not await store.send("r", "k", text(1))
    assert await store.pending_signals("r") == []
    assert await store.send("r", "l", text(2))


@rule
async def a_refused_append_consumes_no_signals(store: Store) -> None:
    await check_refused_appends(store, CommitEffects(consumed=("k", "other")))
    assert await store.send("r", "other", text(2))


@rule
async def a_run_without_records_accepts_signals(store: Store) -> None:
    assert await store.send("r", "k", text(1))
    assert await signals_of(store, "r") == [("k", text(1))]
    await acquire(store, "r")
    await release(store, "r")
    await fill(store, "r", 1)
    assert not await store.send("r", "k", text(2))
    assert await signals_of(store, "r") == [("k", text(1))]
    assert await store.checkpoints() == [record("r", 0).entry]


@rule
async def concurrent_signals_of_one_key_have_one_winner(store: Store) -> None:
    await fill(store, "r", 1)
    sent = await asyncio.gather(*(store.send("r", f"k{n % 5}", text(n)) for n in range(30)))
    assert sum(sent) == 5
    assert dict(await signals_of(store, "r")) == {f"k{n % 5}": text(n) for n in range(30) if sent[n]}


@rule
async def signals_with_odd_runs_and_keys_are_kept_apart(store: Store) -> None:
    for name in ODD_IDS:
        for key in ODD_IDS:
            assert await store.send(name, key, text([name, key]))
        await store.append(
            record(name, 0, workflow=name), CommitEffects(consumed=(name,), asked=(question(name, name),))
        )
    for name in ODD_IDS:
        assert not await store.send(name, name, text(1))
        pending = {key: json.loads(body)["said"] for key, body in await signals_of(store, name)}
        assert pending == {key: [name, key] for key in ODD_IDS if key != name}
        assert await store.requests(RequestFilter(run_id=name)) == [question(name, name)]


@rule
async def a_rewrite_consumes_signals(store: Store) -> None:
    await fill(store, "r", 2)
    for key in ("a", "b", "c"):
        await store.send("r", key, text(key))
    await store.rewrite("r", insert=record("r", 0), effects=CommitEffects(consumed=("a",)))
    assert await signals_of(store, "r") == [("b", text("b")), ("c", text("c"))]
    await store.rewrite("r", insert=record("r", 1), effects=CommitEffects(consumed=("b",)))
    await store.rewrite("r", remove=[0], effects=CommitEffects(consumed=("c", "d")))
    assert await store.pending_signals("r") == []
    for key in ("a", "b", "c", "d"):
        assert not await store.send("r", key, text("late"))


@rule
async def an_append_and_its_consumed_signals_become_visible_together(store: Store) -> None:
    await fill(store, "r", 1)
    for number in range(1, 6):
        await store.send("r", str(number), text(number))
        appending = asyncio.create_task(store.append(record("r", number), CommitEffects(consumed=(str(number),))))
        while not appending.done():
            await asyncio.sleep(0)
            # Each pair is read in the order in which a half-done append would show: with only one
            # order, the append could complete between the two reads and look half done.
            committed, waiting = await _is_committed(store, number), await _is_waiting(store, number)
            assert not (committed and waiting), f"commit {number} is visible, but its signal is not consumed"
            waiting, committed = await _is_waiting(store, number), await _is_committed(store, number)
            assert committed or waiting, f"the signal of commit {number} is consumed, but the commit is not visible"
        await appending


async def _is_committed(store: Store, number: int) -> bool:
    return numbers(await store.read("r")) == [number]


async def _is_waiting(store: Store, number: int) -> bool:
    return str(number) in dict(await signals_of(store, "r"))
