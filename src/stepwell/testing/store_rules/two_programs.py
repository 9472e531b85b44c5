"""Rules for stores that two programs open at once: neither may rely on what it has cached."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Wake
from stepwell.testing.store_rules.rule import rule_of_two
from stepwell.testing.store_rules.samples import (
    after,
    fill,
    head,
    logged,
    meaning,
    meanings,
    names,
    numbers,
    places,
    question,
    record,
    refused,
    signals_of,
    text,
)


@rule_of_two
async def each_program_reads_what_the_other_stored(one: Store, other: Store) -> None:
    assert await other.read("r") == []
    await one.append(record("r", 0), CommitEffects(asked=(question("r", "q"),), wake="2026-01-01"))
    await other.append(record("r", 1, is_snapshot=False))
    await one.write_log("r", 2, "k", text(1))
    await one.send("r", "k", text(2))
    fence = await one.acquire("r", this_process("mine"), seconds=60)
    for each in (one, other):
        assert meaning(await head(each, "r")) == meaning(record("r", 1, is_snapshot=False))
        assert numbers(await each.read("r", 1)) == [0, 1]
        assert places(await each.checkpoints()) == [("r", 0), ("r", 1)]
        assert await logged(each, "r", 2) == {"k": text(1)}
        assert await signals_of(each, "r") == [("k", text(2))]
        report = await asyncio.to_thread(each.renew, {"r": fence}, seconds=None)
        assert (list(report.lost), list(report.signalled)) == ([], ["r"])
        assert names(await each.requests()) == [("r", "q")]
        assert await each.wakes() == []


@rule_of_two
async def a_stale_writer_is_refused(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    await one.send("r", "k", text(1))
    # The other program has seen commit 0 and may have cached it.
    assert meaning(await head(other, "r")) == meaning(record("r", 0))
    await one.append(record("r", 1), CommitEffects(wake="2026-01-01"))
    stale = CommitEffects(consumed=("k",), asked=(question("r", "q"),), drop_log_through=1)
    await one.write_log("r", 1, "k", text(2))
    with refused(CommitConflict, "'r'"):
        await other.append(record("r", 1, body="stale"), stale)
    for each in (one, other):
        assert meaning(await head(each, "r")) == meaning(record("r", 1))
        assert await signals_of(each, "r") == [("k", text(1))]
        assert await logged(each, "r", 1) == {"k": text(2)}
        assert await each.requests() == []
        assert await each.wakes() == [Wake("r", "w", "2026-01-01")]
    await other.append(record("r", 2))


@rule_of_two
async def what_one_program_removes_is_gone_for_the_other(one: Store, other: Store) -> None:
    await fill(one, "r", 2)
    await other.send("r", "k", text(1))
    assert await other.rewrite("r", remove=[1], effects=NO_EFFECTS) == 1
    assert numbers(await one.history("r")) == [0]
    assert await other.rewrite("r", remove=[0], effects=NO_EFFECTS) == 1
    assert await one.read("r") == []
    assert await one.pending_signals("r") == []
    await one.append(record("r", 0, workflow="another"))
    assert meaning(await head(other, "r")) == meaning(record("r", 0, workflow="another"))


@rule_of_two
async def the_first_signal_of_a_key_wins_across_programs(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    assert await one.send("r", "k", text("first"))
    assert not await other.send("r", "k", text("second"))
    assert await signals_of(other, "r") == [("k", text("first"))]
    await other.append(record("r", 1), CommitEffects(consumed=("k",)))
    assert not await one.send("r", "k", text("third"))
    assert await one.pending_signals("r") == []


@rule_of_two
async def the_first_log_entry_of_a_key_wins_across_programs(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    assert await one.write_log("r", 1, "k", text("first"))
    assert not await other.write_log("r", 1, "k", text("second"))
    assert await logged(other, "r", 1) == {"k": text("first")}


@rule_of_two
async def a_run_has_one_driver_across_programs(one: Store, other: Store) -> None:
    mine, theirs = this_process("mine"), this_process("theirs")
    await one.acquire("r", mine, seconds=60)
    with refused(RunBusy):
        await other.acquire("r", theirs, seconds=60)
    await one.release("r", mine)
    await other.acquire("r", theirs, seconds=60)
    with refused(RunBusy):
        await one.acquire("r", mine, seconds=60)


@rule_of_two
async def a_lease_is_lost_to_another_program(one: Store, other: Store) -> None:
    mine, theirs = this_process("mine"), this_process("theirs")
    await fill(one, "r", 1)
    opened = await one.open("r", owner=mine, seconds=60)
    assert opened.fence is not None
    with refused(RunBusy):
        await other.open("r", owner=theirs, seconds=60)
    await other.send("r", "k", text(1))
    report = await asyncio.to_thread(one.renew, {"r": opened.fence}, seconds=60)
    assert (list(report.lost), list(report.signalled)) == ([], ["r"])
    with after(minutes=2):
        taken = await other.open("r", owner=theirs, seconds=600)
    assert [signal.key for signal in taken.signals] == ["k"]
    report = await asyncio.to_thread(one.renew, {"r": opened.fence}, seconds=60)
    assert list(report.lost) == ["r"]
    with refused(CommitConflict, "acquired by another process"):
        await one.append(record("r", 1), CommitEffects(fence=opened.fence))
    with refused(CommitConflict, "acquired by another process"):
        await one.write_log("r", 0, "k", text(1), fence=opened.fence)
    await other.append(record("r", 1), CommitEffects(fence=taken.fence, release=True))
    await one.acquire("r", mine, seconds=60)


@rule_of_two
async def concurrent_appends_across_programs_have_one_winner_per_number(one: Store, other: Store) -> None:
    ours, theirs = await at_once(_append_all(one, "one"), _append_all(other, "other"))
    assert sorted(ours + theirs) == list(range(10))
    expected = [record("r", n, body="one" if n in ours else "other") for n in range(10)]
    for each in (one, other):
        assert meanings(await each.history("r")) == meanings(expected)
        assert places(await each.checkpoints()) == [("r", n) for n in range(10)]


@rule_of_two
async def concurrent_signals_across_programs_have_one_winner_per_key(one: Store, other: Store) -> None:
    ours, theirs = await at_once(_send_all(one, "one"), _send_all(other, "other"))
    assert sorted(ours + theirs) == list(range(10))
    expected = {str(n): text("one" if n in ours else "other") for n in range(10)}
    assert dict(await signals_of(one, "r")) == dict(await signals_of(other, "r")) == expected


async def at_once(*programs: Coroutine[Any, Any, list[int]]) -> list[list[int]]:
    """Run each coroutine in its own thread and event loop, as two programs would."""
    return await asyncio.gather(*(asyncio.to_thread(asyncio.run, program) for program in programs))


async def _append_all(store: Store, name: str) -> list[int]:
    won = []
    for number in range(10):
        try:
            await store.append(record("r", number, body=name))
            won.append(number)
        except CommitConflict:
            newest = await head(store, "r")
            assert newest is not None
            assert newest.entry.number >= number
    return won


async def _send_all(store: Store, name: str) -> list[int]:
    return [n for n in range(10) if await store.send("r", str(n), text(name))]
