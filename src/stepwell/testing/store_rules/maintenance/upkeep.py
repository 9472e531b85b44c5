"""Rules for dropping runs, surveying, compacting and closing a store, and for who may call it."""

from __future__ import annotations

import asyncio
import threading

from stepwell.errors import RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects, Wake
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    fill,
    head,
    id_of,
    logged,
    meaning,
    names,
    numbers,
    on,
    places,
    question,
    record,
    refused,
    run_entry,
    run_ids,
    run_metadata,
    signals_of,
    text,
)

# -------------------------------------------------------------------- dropping a run


@rule
async def a_dropped_run_leaves_nothing_behind(store: Store) -> None:
    fences = {}
    for run_id in ("r", "s"):
        fences[run_id] = await store.acquire(run_id, this_process("mine"), seconds=60)
        await store.append(record(run_id, 0, at=on(1)), CommitEffects(metadata=run_metadata(team="red")))
        await store.send(run_id, "used", text(0))
        effects = CommitEffects(asked=(question(run_id, "q"),), consumed=("used",), wake="2026-01-01")
        await store.append(record(run_id, 1, is_snapshot=False), effects)
        await store.send(run_id, "k", text(1))
        await store.write_log(run_id, 1, "k", text(1))
    assert await store.drop("r")
    await store.close()
    assert not await store.drop("r")
    assert await store.read("r") == []
    assert await store.history("r") == []
    assert await store.numbers("r") == []
    assert await store.locate(id_of("r", 1)) is None
    assert await store.pending_signals("r") == []
    report = await asyncio.to_thread(store.renew, {"r": fences["r"], "s": fences["s"]}, seconds=60)
    assert (list(report.lost), list(report.signalled)) == ([], ["s"])
    assert await logged(store, "r", 1) == {}
    assert places(await store.checkpoints()) == [("s", 0), ("s", 1)]
    assert names(await store.requests()) == [("s", "q")]
    assert await store.wakes() == [Wake("s", "w", "2026-01-01")]
    assert await run_ids(store) == ["s"]
    assert await run_ids(store, tags={"team": "red"}) == ["s"]


@rule
async def a_dropped_run_can_start_again(store: Store) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    await store.send("r", "k", text(1))
    await store.append(
        record("r", 0, at=on(1)), CommitEffects(consumed=("k",), metadata=run_metadata("caller", team="red"))
    )
    assert await store.drop("r")
    fence = await store.acquire("r", this_process("other"), seconds=60)
    assert await store.send("r", "k", text(2))
    await store.append(record("r", 0, workflow="another", at=on(2)), CommitEffects(fence=fence))
    assert await signals_of(store, "r") == [("k", text(2))]
    assert await store.runs() == [run_entry(record("r", 0, workflow="another", at=on(2)))]


@rule
async def dropping_a_run_without_records_does_nothing(store: Store) -> None:
    assert not await store.drop("r")
    await store.acquire("r", this_process("mine"), seconds=60)
    await store.send("r", "k", text(1))
    await fill(store, "s", 1)
    assert not await store.drop("r")
    assert await run_ids(store) == ["s"]
    assert await signals_of(store, "r") == [("k", text(1))]
    with refused(RunBusy):
        await store.acquire("r", this_process("other"), seconds=60)


# -------------------------------------------------------------------- surveying and compacting


@rule
async def a_survey_lists_every_run_of_a_sound_store(store: Store) -> None:
    assert list((await store.survey()).runs) == []
    expected = {}
    for number, name in enumerate(ODD_IDS):
        metadata = run_metadata("caller" if number % 2 else None, team=name or "none")
        await store.append(record(name, 0, at=on(1)), CommitEffects(metadata=metadata))
        await store.append(record(name, 1, at=on(2), status="done"))
        expected[name] = run_entry(record(name, 1, at=on(2), status="done"), began=on(1), metadata=metadata)
    # None of these is a run yet.
    await store.acquire("acquired", this_process("mine"), seconds=60)
    await store.send("signalled", "k", text(1))
    await store.write_log("logged", 0, "k", text(1))
    survey = await store.survey()
    assert {run.run_id: run for run in survey.runs} == expected
    assert len(survey.runs) == len(expected)
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
    for run_id in ("r", "s"):
        effects = CommitEffects(asked=(question(run_id, "q"),), metadata=run_metadata(team="red"), wake=on(5))
        await store.append(record(run_id, 0, body="x" * 100_000, workflow=f"of {run_id}"), effects)
        await store.append(record(run_id, 1, workflow=f"of {run_id}"))
        await store.send(run_id, "k", text(1))
        await store.write_log(run_id, 2, "k", text(1))
    await store.drop("s")
    await store.compact()
    assert meaning(await head(store, "r")) == meaning(record("r", 1, workflow="of r"))
    assert places(await store.checkpoints()) == [("r", 0), ("r", 1)]
    assert await signals_of(store, "r") == [("k", text(1))]
    assert await logged(store, "r", 2) == {"k": text(1)}
    assert names(await store.requests()) == [("r", "q")]
    assert await run_ids(store, tags={"team": "red"}) == ["r"]
    await store.append(record("s", 0, workflow="of s"))
    await store.append(record("r", 2, workflow="of r"))
    await store.close()
    assert places(await store.checkpoints()) == [("r", 0), ("r", 1), ("r", 2), ("s", 0)]


# -------------------------------------------------------------------- threads, event loops, closing


@rule
async def a_store_works_from_many_threads_and_event_loops(store: Store) -> None:
    def drive(run_id: str) -> None:
        asyncio.run(fill(store, run_id, 5))

    threads = [threading.Thread(target=drive, args=(f"r{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads), fill(store, "mine", 5))
    for run_id in ["mine", *(f"r{n}" for n in range(6))]:
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
