"""Rules for dropping runs, surveying, compacting and closing a store, and for who may call it."""

from __future__ import annotations

import asyncio

from stepwell.errors import RunBusy
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    append_all,
    contents,
    expect_error,
    fill,
    id_of,
    log_of,
    numbers,
    on,
    places,
    record,
    renew,
    run_entry,
    run_ids,
    run_metadata,
    signals_of,
    store_sample_run,
    text,
)

# -------------------------------------------------------------------- dropping a run


@rule
async def a_dropped_run_leaves_nothing_behind(store: Store) -> None:
    fences = {run_id: await acquire(store, run_id) for run_id in ("r", "s")}
    await store_sample_run(store, "r")
    stored = await store_sample_run(store, "s")
    assert await store.drop("r")
    await store.close()
    assert not await store.drop("r")
    assert await contents(store, "s") == stored
    assert (*await store.read("r"), *await store.history("r"), *await store.numbers("r")) == ()
    assert (await store.pending_signals("r"), await log_of(store, "r")) == ([], {})
    assert await store.locate(id_of("r", 1)) is None
    assert await renew(store, fences) == ([], ["s"])
    assert await run_ids(store, tags={"team": "red"}) == ["s"]


@rule
async def a_dropped_run_can_start_again(store: Store) -> None:
    await acquire(store, "r")
    await store.send("r", "k", text(1))
    effects = CommitEffects(consumed=("k",), metadata=run_metadata("caller", team="red"))
    await store.append(record("r", 0, at=on(1)), effects)
    assert await store.drop("r")
    fence = await acquire(store, "r", "other")
    assert await store.send("r", "k", text(2))
    restarted = record("r", 0, workflow="another", at=on(2))
    await store.append(restarted, CommitEffects(fence=fence, release=True))
    assert await signals_of(store, "r") == [("k", text(2))]
    assert await store.runs() == [run_entry(restarted, signalled=True)]


@rule
async def dropping_a_run_without_records_does_nothing(store: Store) -> None:
    assert not await store.drop("r")
    await acquire(store, "r")
    await store.send("r", "k", text(1))
    await fill(store, "s", 1)
    assert not await store.drop("r")
    assert await run_ids(store) == ["s"]
    assert await signals_of(store, "r") == [("k", text(1))]
    await expect_error(RunBusy, acquire(store, "r", "other"))


# -------------------------------------------------------------------- surveying and compacting


@rule
async def a_survey_lists_every_run_of_a_sound_store(store: Store) -> None:
    assert list((await store.survey()).runs) == []
    expected = []
    for number, name in enumerate(ODD_IDS):
        metadata = run_metadata("caller" if number % 2 else None, team=name or "none")
        newest = record(name, 1, at=on(2), status="done")
        await store.append(record(name, 0, at=on(1)), CommitEffects(metadata=metadata))
        await store.append(newest)
        expected.append(run_entry(newest, began=on(1), metadata=metadata))
    # None of these is a run yet.
    await acquire(store, "acquired")
    await store.send("signalled", "k", text(1))
    await store.write_log("logged", 0, "k", text(1))
    survey = await store.survey()
    assert sorted(survey.runs, key=lambda run: run.run_id) == sorted(expected, key=lambda run: run.run_id)
    assert (*survey.damaged, *survey.flaws) == ()


@rule
async def the_numbers_of_a_run_are_listed(store: Store) -> None:
    assert await store.numbers("r") == []
    await fill(store, "r", 12)
    await fill(store, "s", 2)
    assert await store.numbers("r") == list(range(12))
    await store.rewrite("r", insert=record("r", 100), remove=[1, 3])
    assert await store.numbers("r") == [0, 2, *range(4, 12), 100]
    await store.drop("r")
    assert await store.numbers("r") == []
    assert await store.numbers("s") == [0, 1]


@rule
async def compacting_changes_nothing_that_is_stored(store: Store) -> None:
    await store.compact()  # an empty store
    stored = await store_sample_run(store, "r", workflow="of r")
    await store_sample_run(store, "s", workflow="of s")
    await store.append(record("s", 3, workflow="of s", body="x" * 100_000))
    await store.drop("s")
    await store.compact()
    assert await contents(store, "r") == stored
    assert numbers(await store.read("r")) == [2]
    assert await run_ids(store, tags={"team": "red"}) == ["r"]
    await append_all(store, [record("s", 0, workflow="of s"), record("r", 3, workflow="of r", at=on(4))])
    await store.close()
    assert places(await store.checkpoints()) == [("r", 0), ("s", 0), ("r", 1), ("r", 2), ("r", 3)]


# -------------------------------------------------------------------- threads, event loops, closing


@rule
async def a_store_works_from_many_threads_and_event_loops(store: Store) -> None:
    others = [f"r{n}" for n in range(6)]
    driving = (asyncio.to_thread(asyncio.run, fill(store, run_id, 5)) for run_id in others)
    await asyncio.gather(*driving, fill(store, "mine", 5))
    for run_id in ["mine", *others]:
        assert numbers(await store.history(run_id)) == [0, 1, 2, 3, 4]
    assert len(await store.checkpoints()) == 35


@rule
async def a_store_can_be_closed_twice_and_used_again(store: Store) -> None:
    await store.close()
    await fill(store, "r", 1)
    await store.close()
    await store.close()
    await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0, 1]


@rule
async def a_cancelled_caller_does_not_affect_others(store: Store) -> None:
    tasks = [asyncio.create_task(store.append(record(f"r{n}", 0))) for n in range(20)]
    await asyncio.sleep(0)
    # Whether a cancelled append is stored is open; those beside it must be.
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[1::2] == [None] * 10
    await fill(store, "after", 2)
    for n in range(1, 20, 2):
        assert numbers(await store.history(f"r{n}")) == [0]
