"""Rules for stores that two programs open at once: neither may rely on what it has cached."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.testing.store_rules.rule import rule_of_two
from stepwell.testing.store_rules.samples import (
    acquire,
    after,
    contents,
    expect_error,
    expected_contents,
    fill,
    head,
    log_of,
    meaning,
    meanings,
    numbers,
    open_for,
    places,
    question,
    record,
    release,
    renew,
    signals_of,
    text,
)


@rule_of_two
async def each_program_reads_what_the_other_stored(one: Store, other: Store) -> None:
    assert await other.read("r") == []
    first, second = record("r", 0), record("r", 1, is_snapshot=False)
    await one.append(first, CommitEffects(asked=(question("r", "q"),), wake="2026-01-01"))
    await other.append(second)
    await one.write_log("r", 2, "k", text(1))
    await one.send("r", "k", text(2))
    fence = await acquire(one, "r")
    for each in (one, other):
        assert await contents(each, "r") == expected_contents(
            [first, second], requests=[question("r", "q")], log={(2, "k"): text(1)}, signals=[("k", text(2))]
        )
        assert meanings(await each.read("r")) == meanings(await each.read("r", 1)) == meanings([first, second])
        assert await renew(each, {"r": fence}, seconds=None) == ([], ["r"])


@rule_of_two
async def a_stale_writer_is_refused(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    await one.send("r", "k", text(1))
    # The other program has seen commit 0 and may have cached it.
    assert meaning(await head(other, "r")) == meaning(record("r", 0))
    await one.append(record("r", 1), CommitEffects(wake="2026-01-01"))
    stale = CommitEffects(consumed=("k",), asked=(question("r", "q"),), drop_log_through=1)
    await one.write_log("r", 1, "k", text(2))
    await expect_error(CommitConflict, other.append(record("r", 1, body="stale"), stale), "'r'")
    assert (
        await contents(one, "r")
        == await contents(other, "r")
        == expected_contents(
            [record("r", 0), record("r", 1)], wake="2026-01-01", log={(1, "k"): text(2)}, signals=[("k", text(1))]
        )
    )
    await other.append(record("r", 2))


@rule_of_two
async def a_stopped_run_that_the_other_program_releases_is_not_asked_for(one: Store, other: Store) -> None:
    await one.append(record("r", 0, status="CANCELLED"), CommitEffects(asked=(question("r", "q"),)))
    await acquire(one, "r")
    assert await other.requests() == [question("r", "q")]
    await release(one, "r")
    assert await other.requests() == await one.requests() == []


@rule_of_two
async def what_one_program_removes_is_gone_for_the_other(one: Store, other: Store) -> None:
    await fill(one, "r", 2)
    await other.send("r", "k", text(1))
    assert await other.rewrite("r", remove=[1], effects=NO_EFFECTS) == 1
    assert numbers(await one.history("r")) == [0]
    assert await other.rewrite("r", remove=[0], effects=NO_EFFECTS) == 1
    assert (*await one.read("r"), *await one.pending_signals("r")) == ()
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
    assert await log_of(other, "r") == {(1, "k"): text("first")}


@rule_of_two
async def a_run_has_one_driver_across_programs(one: Store, other: Store) -> None:
    await acquire(one, "r")
    await expect_error(RunBusy, acquire(other, "r", "other"))
    await release(one, "r")
    await acquire(other, "r", "other")
    await expect_error(RunBusy, acquire(one, "r"))


@rule_of_two
async def a_lease_is_lost_to_another_program(one: Store, other: Store) -> None:
    await fill(one, "r", 1)
    _, mine = await open_for(one, "r")
    await expect_error(RunBusy, open_for(other, "r", "other"))
    await other.send("r", "k", text(1))
    assert await renew(one, {"r": mine}) == ([], ["r"])
    with after(minutes=2):
        opened, theirs = await open_for(other, "r", "other", seconds=600)
    assert [signal.key for signal in opened.signals] == ["k"]
    assert await renew(one, {"r": mine}) == (["r"], ["r"])
    refusal = "acquired by another process"
    await expect_error(CommitConflict, one.append(record("r", 1), CommitEffects(fence=mine)), refusal)
    await expect_error(CommitConflict, one.write_log("r", 0, "k", text(1), fence=mine), refusal)
    await expect_error(CommitConflict, one.send("r", "late", text(1), fence=mine), refusal)
    await other.append(record("r", 1), CommitEffects(fence=theirs, release=True))
    await acquire(one, "r")


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
            assert numbers(await store.read("r"))[-1] >= number
    return won


async def _send_all(store: Store, name: str) -> list[int]:
    return [n for n in range(10) if await store.send("r", str(n), text(name))]
