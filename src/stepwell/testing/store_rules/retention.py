"""Rules for retention: which records are dropped, how runs are removed, and compaction."""

from __future__ import annotations

import asyncio

from stepwell.errors import CheckpointCorrupt, CommitConflict, RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects, Store, Wake
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    fill,
    meaning,
    meanings,
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
    text,
)


@rule
async def the_fleeting_flag_is_stored(store: Store) -> None:
    made = [record("r", 0, fleeting=True), record("r", 1, fleeting=False), record("r", 2, fleeting=True, outputs=True)]
    for each in made:
        await store.append(each)
    await store.close()
    assert [entry.fleeting for entry in await store.entries()] == [True, False, True]
    assert meanings(await store.history("r")) == meanings(made)
    assert await store.locate("r-0") == made[0].entry
    assert await store.newest() == made[2].entry
    assert meaning(await store.head("r")) == meaning(made[2])
    await store.put(record("r", 2, fleeting=False))
    assert await store.newest() == record("r", 2).entry
    assert await store.remove("r", 0, follower=record("r", 1, fleeting=True))
    assert await store.locate("r-1") == record("r", 1, fleeting=True).entry


@rule
async def records_dropped_by_an_append_are_gone(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 3)
    await store.append(record("r", 3), CommitEffects(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    assert places(await store.entries(run_id="r")) == [("r", 3)]
    assert places(await store.entries()) == [("s", 0), ("s", 1), ("s", 2), ("r", 3)]
    assert places(await store.entries(workflow="w", limit=2)) == [("s", 2), ("r", 3)]
    assert await store.entries(before="r-2") == []
    assert await store.locate("r-1") is None
    assert await store.chain("r", 1) == []
    assert not await store.remove("r", 2)
    assert meanings(await store.chain("r", 3)) == meanings([record("r", 3)])
    assert numbers(await store.history("s")) == [0, 1, 2]


@rule
async def a_run_that_keeps_only_its_latest_record_continues(store: Store) -> None:
    # A snapshot every third record, and each append drops what was before the last snapshot.
    for number in range(10):
        base = max(0, number - number % 3)
        await store.append(
            record("r", number, is_snapshot=number % 3 == 0, fleeting=True), CommitEffects(drop_below=base)
        )
        assert numbers(await store.chain("r", number)) == list(range(base, number + 1))
        assert await store.newest(run_id="r") == record("r", number, is_snapshot=number % 3 == 0, fleeting=True).entry
    await store.close()
    assert numbers(await store.history("r")) == [9]
    for number in (0, 8, 9, 11):
        with refused(CommitConflict):
            await store.append(record("r", number))
    await store.append(record("r", 10))
    assert numbers(await store.history("r")) == [9, 10]


@rule
async def records_with_outputs_are_never_dropped(store: Store) -> None:
    for number in range(6):
        await store.append(record("r", number, outputs=number in (1, 4)), CommitEffects(drop_below=number))
    assert numbers(await store.history("r")) == [1, 4, 5]
    assert numbers(await store.history("r", outputs_only=True)) == [1, 4]
    assert await store.locate("r-1") == record("r", 1, outputs=True).entry
    assert places(await store.entries()) == [("r", 1), ("r", 4), ("r", 5)]
    await store.close()
    assert numbers(await store.history("r")) == [1, 4, 5]


@rule
async def a_delta_kept_for_its_outputs_is_unreadable_without_its_base(store: Store) -> None:
    await store.append(record("r", 0))
    await store.append(record("r", 1, is_snapshot=False, outputs=True))
    await store.append(record("r", 2), CommitEffects(drop_below=2))
    assert numbers(await store.history("r", outputs_only=True)) == [1]
    with refused(CheckpointCorrupt):
        await store.chain("r", 1)
    assert numbers(await store.chain("r", 2)) == [2]


@rule
async def an_append_reduces_earlier_records(store: Store) -> None:
    await store.append(record("r", 0, outputs=True, fleeting=True))
    await store.append(record("r", 1, is_snapshot=False, fleeting=True))
    await store.append(record("r", 2, outputs=True, fleeting=True))
    await fill(store, "s", 2)
    reduced = [record("r", n, body=f"reduced {n}", is_snapshot=False, outputs=True, fleeting=True) for n in (0, 2)]
    gone = record("r", 7, body="never there", outputs=True, fleeting=True)
    await store.append(record("r", 3, fleeting=True), CommitEffects(drop_below=3, reduced=(*reduced, gone)))
    await store.close()
    assert meanings(await store.history("r")) == meanings([*reduced, record("r", 3, fleeting=True)])
    assert meanings(await store.history("r", outputs_only=True)) == meanings(reduced)
    assert await store.locate("r-2") == reduced[1].entry
    assert meanings(await store.chain("r", 3)) == meanings([record("r", 3, fleeting=True)])
    assert places(await store.entries()) == [("r", 0), ("r", 2), ("s", 0), ("s", 1), ("r", 3)]
    assert await store.run("r") == run_entry(record("r", 3, fleeting=True), began=record("r", 0).entry.at)
    assert meanings(await store.history("s")) == meanings([record("s", 0), record("s", 1)])


@rule
async def a_refused_append_reduces_nothing(store: Store) -> None:
    await fill(store, "r", 3)
    for number, workflow in [(2, "w"), (4, "w"), (3, "another")]:
        effects = CommitEffects(drop_below=3, reduced=(record("r", 0, body="reduced", is_snapshot=False),))
        with refused(CommitConflict):
            await store.append(record("r", number, workflow=workflow), effects)
    assert meanings(await store.history("r")) == meanings([record("r", n) for n in range(3)])


@rule
async def a_refused_append_drops_nothing(store: Store) -> None:
    await fill(store, "r", 3)
    for number, workflow in [(2, "w"), (4, "w"), (3, "another")]:
        with refused(CommitConflict):
            await store.append(record("r", number, workflow=workflow), CommitEffects(drop_below=3))
    assert numbers(await store.history("r")) == [0, 1, 2]


@rule
async def dropping_records_keeps_signals_requests_and_metadata(store: Store) -> None:
    await store.append(
        record("r", 0, at=on(1)), CommitEffects(asked=(question("r", "q"),), metadata=run_metadata(team="red"))
    )
    await store.send("r", "used", text(0))
    await store.append(record("r", 1, at=on(2)), CommitEffects(consumed=("used",), drop_below=1))
    await store.send("r", "k", text(1))
    await store.write_log("r", 2, "k", text(1))
    await store.append(record("r", 2, at=on(3)), CommitEffects(drop_below=2, wake="2026-01-01"))
    assert await store.pending() == [question("r", "q")]
    assert await store.pending_signals("r") == [("k", text(1))]
    assert not await store.send("r", "used", text(1))
    assert await store.read_log("r", 2) == {"k": text(1)}
    assert await store.wakes() == [Wake("r", "w", "2026-01-01")]
    assert await store.runs() == [run_entry(record("r", 2, at=on(3)), began=on(1), metadata=run_metadata(team="red"))]


@rule
async def put_drops_records_too(store: Store) -> None:
    await fill(store, "r", 3)
    await store.put(record("r", 3), CommitEffects(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    await store.put(record("r", 1))
    assert numbers(await store.history("r")) == [1, 3]


# -------------------------------------------------------------------- dropping a run


@rule
async def a_dropped_run_leaves_nothing_behind(store: Store) -> None:
    for run_id in ("r", "s"):
        await store.acquire(run_id, this_process("mine"), seconds=60)
        await store.append(record(run_id, 0, at=on(1)), CommitEffects(metadata=run_metadata(team="red")))
        await store.send(run_id, "used", text(0))
        effects = CommitEffects(asked=(question(run_id, "q"),), consumed=("used",), wake="2026-01-01")
        await store.append(record(run_id, 1, is_snapshot=False), effects)
        await store.send(run_id, "k", text(1))
        await store.write_log(run_id, 1, "k", text(1))
    assert await store.drop("r")
    await store.close()
    assert not await store.drop("r")
    assert await store.head("r") is None
    assert await store.history("r") == []
    assert await store.locate("r-1") is None
    assert await store.pending_signals("r") == []
    assert await asyncio.to_thread(store.runs_with_signals, ["r", "s"]) == ["s"]
    assert await store.read_log("r", 1) == {}
    assert places(await store.entries()) == [("s", 0), ("s", 1)]
    assert [p.run_id for p in await store.pending()] == ["s"]
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
    assert await store.pending_signals("r") == [("k", text(2))]
    assert await store.runs() == [run_entry(record("r", 0, workflow="another", at=on(2)))]


@rule
async def dropping_a_run_without_records_does_nothing(store: Store) -> None:
    assert not await store.drop("r")
    await store.acquire("r", this_process("mine"), seconds=60)
    await store.send("r", "k", text(1))
    await fill(store, "s", 1)
    assert not await store.drop("r")
    assert await run_ids(store) == ["s"]
    assert await store.pending_signals("r") == [("k", text(1))]
    with refused(RunBusy):
        await store.acquire("r", this_process("other"), seconds=60)


@rule
async def removing_the_newest_record_replaces_the_wake(store: Store) -> None:
    await fill(store, "r", 1)
    await store.append(record("r", 1), CommitEffects(wake=on(5)))
    await store.append(record("r", 2))
    assert await store.remove("r", 2, wake=on(5))
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await store.remove("r", 0, wake=on(9))
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await store.remove("r", 1, wake=on(9))
    assert await store.wakes() == []


# -------------------------------------------------------------------- thinning out, compacting


@rule
async def many_records_are_removed_at_once(store: Store) -> None:
    for run_id in ("r", "s"):
        await store.append(
            record(run_id, 0, at=on(1)),
            CommitEffects(asked=(question(run_id, "q"),), metadata=run_metadata(team="red")),
        )
        for number in range(1, 9):
            await store.append(record(run_id, number, is_snapshot=number % 4 == 0), CommitEffects(wake=on(5)))
    whole = record("r", 7, body="whole")
    assert await store.thin_out("r", [1, 2, 5, 6, 3, 99], rewritten=[whole]) == 5
    await store.close()
    assert numbers(await store.history("r")) == [0, 4, 7, 8]
    assert meanings(await store.chain("r", 7)) == meanings([whole])
    assert await store.locate("r-5") is None
    assert places(await store.entries(run_id="r")) == [("r", 0), ("r", 4), ("r", 7), ("r", 8)]
    assert numbers(await store.history("s")) == list(range(9))
    assert names(await store.pending()) == [("r", "q"), ("s", "q")]
    assert await store.wakes() == [Wake("r", "w", on(5)), Wake("s", "w", on(5))]
    assert await store.run("r") == run_entry(record("r", 8), began=on(1), metadata=run_metadata(team="red"))
    assert await store.thin_out("r", [1, 2], rewritten=[whole]) == 0
    other = record("r", 7, body="another")
    assert await store.thin_out("r", [], rewritten=[other, record("r", 6)]) == 0
    assert meanings(await store.history("r", after=4, upto=7)) == meanings([other])
    await store.append(record("r", 9, is_snapshot=False))
    assert numbers(await store.chain("r", 9)) == [8, 9]


@rule
async def the_newest_record_may_be_replaced_while_thinning_out(store: Store) -> None:
    await fill(store, "r", 2)
    await store.append(record("r", 2, is_snapshot=False))
    await fill(store, "s", 1)
    whole = record("r", 2, body="whole", status="done")
    assert await store.thin_out("r", [0, 1], rewritten=[whole]) == 2
    assert meaning(await store.head("r")) == meaning(whole)
    assert await store.run("r") == run_entry(whole, began=record("r", 0).entry.at)
    assert await run_ids(store, status="done") == ["r"]
    assert places(await store.entries()) == [("r", 2), ("s", 0)]


@rule
async def thinning_out_never_removes_the_newest_record(store: Store) -> None:
    await fill(store, "r", 3)
    with refused(CommitConflict, "commit 2 of run 'r' is its newest"):
        await store.thin_out("r", [0, 2])
    assert numbers(await store.history("r")) == [0, 1, 2]
    assert await store.thin_out("none", [0]) == 0
    assert await store.thin_out("r", []) == 0


@rule
async def thinning_out_keeps_the_base_of_a_delta(store: Store) -> None:
    await fill(store, "r", 2)
    for number in (2, 3, 4):
        await store.append(record("r", number, is_snapshot=False))
    for whole in ([], [record("r", 4)]):
        with refused(CommitConflict, "commit 2 of run 'r' cannot be removed"):
            await store.thin_out("r", [0, 2], rewritten=whole)
    with refused(CommitConflict, "another id"):
        await store.thin_out("r", [0, 2], rewritten=[record("r", 3, workflow="another")])
    assert numbers(await store.chain("r", 4)) == [1, 2, 3, 4]
    assert numbers(await store.history("r")) == [0, 1, 2, 3, 4]


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
    assert meaning(await store.head("r")) == meaning(record("r", 1, workflow="of r"))
    assert places(await store.entries()) == [("r", 0), ("r", 1)]
    assert await store.pending_signals("r") == [("k", text(1))]
    assert await store.read_log("r", 2) == {"k": text(1)}
    assert names(await store.pending()) == [("r", "q")]
    assert await run_ids(store, tags={"team": "red"}) == ["r"]
    await store.append(record("s", 0, workflow="of s"))
    await store.append(record("r", 2, workflow="of r"))
    await store.close()
    assert places(await store.entries()) == [("r", 0), ("r", 1), ("s", 0), ("r", 2)]
