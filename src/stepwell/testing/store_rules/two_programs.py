"""Rules for stores that two programs open at once: neither may rely on what it has cached."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects, Store, Wake
from stepwell.testing.store_rules.rule import rule_of_two
from stepwell.testing.store_rules.samples import (
    fill,
    meaning,
    meanings,
    names,
    numbers,
    places,
    question,
    record,
    refused,
    text,
)


@rule_of_two
async def each_program_reads_what_the_other_stored(one: Store, other: Store) -> None:
    assert await other.head("r") is None
    await one.append(record("r", 0), CommitEffects(asked=(question("r", "q"),), wake="2026-01-01"))
    await other.append(record("r", 1, is_snapshot=False))
    await one.write_log("r", 2, "k", text(1))
    await one.send("r", "k", text(2))
    for each in (one, other):
        assert meaning(await each.head("r")) == meaning(record("r", 1, is_snapshot=False))
        assert numbers(await each.chain("r", 1)) == [0, 1]
        assert places(await each.entries()) == [("r", 0), ("r", 1)]
        assert await each.read_log("r", 2) == {"k": text(1)}
        assert await each.pending_signals("r") == [("k", text(2))]
        assert await asyncio.to_thread(each.runs_with_signals, ["r", "s"]) == ["r"]
        assert names(await each.pending()) == [("r", "q")]
        assert await each.wakes() == []


@rule_of_two
async def a_stale_writer_is_refused(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    await one.send("r", "k", text(1))
    # The other program has seen commit 0 and may have cached it.
    assert meaning(await other.head("r")) == meaning(record("r", 0))
    await one.append(record("r", 1), CommitEffects(wake="2026-01-01"))
    stale = CommitEffects(consumed=("k",), asked=(question("r", "q"),), drop_log_through=1)
    await one.write_log("r", 1, "k", text(2))
    with refused(CommitConflict, "'r'"):
        await other.append(record("r", 1, body="stale"), stale)
    for each in (one, other):
        assert meaning(await each.head("r")) == meaning(record("r", 1))
        assert await each.pending_signals("r") == [("k", text(1))]
        assert await each.read_log("r", 1) == {"k": text(2)}
        assert await each.pending() == []
        assert await each.wakes() == [Wake("r", "w", "2026-01-01")]
    await other.append(record("r", 2))


@rule_of_two
async def what_one_program_removes_is_gone_for_the_other(one: Store, other: Store) -> None:
    await fill(one, "r", 2)
    await other.send("r", "k", text(1))
    assert await other.remove("r", 1)
    assert numbers(await one.history("r")) == [0]
    assert await other.remove("r", 0)
    assert await one.head("r") is None
    assert await one.pending_signals("r") == []
    await one.append(record("r", 0, workflow="another"))
    assert meaning(await other.head("r")) == meaning(record("r", 0, workflow="another"))


@rule_of_two
async def the_first_signal_of_a_key_wins_across_programs(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    assert await one.send("r", "k", text("first"))
    assert not await other.send("r", "k", text("second"))
    assert await other.pending_signals("r") == [("k", text("first"))]
    await other.append(record("r", 1), CommitEffects(consumed=("k",)))
    assert not await one.send("r", "k", text("third"))
    assert await one.pending_signals("r") == []


@rule_of_two
async def the_first_log_entry_of_a_key_wins_across_programs(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    assert await one.write_log("r", 1, "k", text("first"))
    assert not await other.write_log("r", 1, "k", text("second"))
    assert await other.read_log("r", 1) == {"k": text("first")}


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
async def concurrent_appends_across_programs_have_one_winner_per_number(one: Store, other: Store) -> None:
    ours, theirs = await at_once(_append_all(one, "one"), _append_all(other, "other"))
    assert sorted(ours + theirs) == list(range(10))
    expected = [record("r", n, body="one" if n in ours else "other") for n in range(10)]
    for each in (one, other):
        assert meanings(await each.history("r")) == meanings(expected)
        assert places(await each.entries()) == [("r", n) for n in range(10)]


@rule_of_two
async def concurrent_signals_across_programs_have_one_winner_per_key(one: Store, other: Store) -> None:
    ours, theirs = await at_once(_post_all(one, "one"), _post_all(other, "other"))
    assert sorted(ours + theirs) == list(range(10))
    expected = {str(n): text("one" if n in ours else "other") for n in range(10)}
    assert dict(await one.pending_signals("r")) == dict(await other.pending_signals("r")) == expected


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
            head = await store.head("r")
            assert head is not None
            assert head.entry.number >= number
    return won


async def _post_all(store: Store, name: str) -> list[int]:
    return [n for n in range(10) if await store.send("r", str(n), text(name))]
