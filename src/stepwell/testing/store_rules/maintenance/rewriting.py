"""Rules for `rewrite`: inserting, replacing and removing records of a run at once."""

from __future__ import annotations

from stepwell.errors import CommitConflict
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Wake
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    after,
    fill,
    head,
    id_of,
    logged,
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

# -------------------------------------------------------------------- inserting


@rule
async def a_record_is_inserted_at_any_number(store: Store) -> None:
    # For imports: numbers may arrive in any order and with gaps.
    assert await store.rewrite("r", insert=record("r", 5)) == 0
    assert await store.rewrite("r", insert=record("r", 2), effects=NO_EFFECTS) == 0
    assert numbers(await store.history("r")) == [2, 5]
    assert await store.numbers("r") == [2, 5]
    assert meaning(await head(store, "r")) == meaning(record("r", 5))
    with refused(CommitConflict):
        await store.append(record("r", 3))
    await store.append(record("r", 6))
    assert numbers(await store.history("r")) == [2, 5, 6]


@rule
async def an_inserted_record_replaces_one_of_its_number(store: Store) -> None:
    await fill(store, "r", 3)
    again = record("r", 1, body="again", checkpoint_id="again")
    assert await store.rewrite("r", insert=again) == 0
    assert meaning(await head(store, "r")) == meaning(record("r", 2))
    assert meanings(await store.history("r")) == meanings([record("r", 0), again, record("r", 2)])
    last = record("r", 2, body="last")
    await store.rewrite("r", insert=last)
    assert meaning(await head(store, "r")) == meaning(last)
    await store.append(record("r", 3))


@rule
async def a_record_is_inserted_while_others_are_removed(store: Store) -> None:
    await fill(store, "r", 3)
    await store.append(record("r", 3, is_snapshot=False))
    # The inserted record takes the place of the delta, which therefore does not need its base.
    whole = record("r", 3, body="whole")
    assert await store.rewrite("r", insert=whole, remove=[2, 1, 7]) == 2
    assert meanings(await store.history("r")) == meanings([record("r", 0), whole])
    later = record("r", 8)
    assert await store.rewrite("r", insert=later, remove=[3], effects=NO_EFFECTS) == 1
    assert meanings(await store.history("r")) == meanings([record("r", 0), later])
    # The whole history is replaced; it is still the same run.
    last = record("r", 9, at=on(9), status="done")
    assert await store.rewrite("r", insert=last, remove=[0, 8], effects=NO_EFFECTS) == 2
    assert meanings(await store.history("r")) == meanings([last])
    assert await store.runs() == [run_entry(last, began=record("r", 0).entry.at)]
    # A number that is inserted is not removed.
    again = record("r", 9, body="again")
    assert await store.rewrite("r", insert=again, remove=[9]) == 0
    assert meanings(await store.history("r")) == meanings([again])


# -------------------------------------------------------------------- removing


@rule
async def a_removed_record_is_gone(store: Store) -> None:
    await fill(store, "r", 3)
    assert await store.rewrite("r", remove=[1]) == 1
    assert await store.rewrite("r", remove=[1]) == 0
    assert numbers(await store.history("r")) == [0, 2]
    assert await store.read("r", 1) == []
    assert await store.numbers("r") == [0, 2]
    assert await store.locate(id_of("r", 1)) is None
    assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS) == 1
    assert meaning(await head(store, "r")) == meaning(record("r", 0))
    await store.append(record("r", 1))


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
    assert await store.rewrite("r", remove=[1, 2, 5, 6, 3, 99], replace=[whole]) == 5
    await store.close()
    assert numbers(await store.history("r")) == [0, 4, 7, 8]
    assert meanings(await store.read("r", 7)) == meanings([whole])
    assert await store.locate(id_of("r", 5)) is None
    assert numbers(await store.history("s")) == list(range(9))
    assert names(await store.requests()) == [("r", "q"), ("s", "q")]
    assert await store.wakes() == [Wake("r", "w", on(5)), Wake("s", "w", on(5))]
    assert await store.run("r") == run_entry(record("r", 8), began=on(1), metadata=run_metadata(team="red"))
    assert await store.rewrite("r", remove=[1, 2], replace=[whole]) == 0
    other = record("r", 7, body="another")
    assert await store.rewrite("r", replace=[other, record("r", 6)]) == 0
    assert meanings(await store.history("r", after=4, upto=7)) == meanings([other])
    await store.append(record("r", 9, is_snapshot=False))
    assert numbers(await store.read("r", 9)) == [8, 9]


@rule
async def the_newest_record_is_removed_only_with_effects(store: Store) -> None:
    await fill(store, "r", 3)
    with refused(CommitConflict, "commit 2 of run 'r' is its newest"):
        await store.rewrite("r", remove=[0, 2])
    assert numbers(await store.history("r")) == [0, 1, 2]
    assert await store.rewrite("none", remove=[0]) == 0
    assert await store.rewrite("none", replace=[record("none", 0)]) == 0
    assert await store.run("none") is None
    assert await store.rewrite("r") == 0
    assert await store.rewrite("r", remove=[0, 2], effects=NO_EFFECTS) == 2
    assert numbers(await store.history("r")) == [1]


@rule
async def the_base_of_a_delta_is_removed_only_if_the_delta_is_replaced(store: Store) -> None:
    await fill(store, "r", 2)
    for number in (2, 3, 4):
        await store.append(record("r", number, is_snapshot=False))
    for replacement in ([], [record("r", 4)]):
        with refused(CommitConflict, "commit 2 of run 'r' cannot be removed: commit 3 is a delta to it"):
            await store.rewrite("r", remove=[0, 2], replace=replacement)
    with refused(CommitConflict, "another id"):
        await store.rewrite("r", remove=[0, 2], replace=[record("r", 3, workflow="another")])
    assert numbers(await store.read("r", 4)) == [1, 2, 3, 4]
    assert numbers(await store.history("r")) == [0, 1, 2, 3, 4]
    assert await store.rewrite("r", remove=[0, 2], replace=[record("r", 3)]) == 2
    assert numbers(await store.read("r", 4)) == [3, 4]
    assert await store.rewrite("r", remove=[3, 4], effects=NO_EFFECTS) == 2  # base and delta
    assert numbers(await store.history("r")) == [1]


@rule
async def removing_the_last_record_removes_the_run(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(metadata=run_metadata(team="red")))
    await store.append(record("r", 1))
    await store.write_log("r", 1, "k", text(1))
    assert await store.rewrite("r", remove=[0, 1], effects=CommitEffects(metadata=run_metadata(team="blue"))) == 2
    assert await logged(store, "r", 1) == {}
    assert await store.checkpoints() == []
    assert await run_ids(store, children=True) == []
    assert await store.run("r") is None
    # Nothing is left of the old run, so its id may be used by another workflow.
    await store.append(record("r", 0, workflow="another"))
    assert await store.runs() == [run_entry(record("r", 0, workflow="another"))]


# -------------------------------------------------------------------- replacing


@rule
async def a_replaced_record_keeps_its_place(store: Store) -> None:
    await store.append(record("r", 0))
    await store.append(record("r", 1, is_snapshot=False))
    await fill(store, "s", 1)
    whole = record("r", 1, body="whole")
    assert await store.rewrite("r", remove=[0], replace=[whole]) == 1
    assert meanings(await store.read("r", 1)) == meanings([whole])
    assert places(await store.checkpoints()) == [("r", 1), ("s", 0)]


@rule
async def only_records_that_are_stored_are_replaced(store: Store) -> None:
    await fill(store, "r", 3)
    assert await store.rewrite("r", remove=[7], replace=[record("r", 8)]) == 0
    assert await store.rewrite("r", remove=[1], replace=[record("r", 1, body="removed")]) == 1
    assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS) == 1
    assert await store.rewrite("r", replace=[record("r", 1), record("r", 2)]) == 0
    assert meanings(await store.history("r")) == meanings([record("r", 0)])


@rule
async def the_newest_record_may_be_replaced(store: Store) -> None:
    await fill(store, "r", 2)
    await store.append(record("r", 2, is_snapshot=False), CommitEffects(asked=(question("r", "q"),), wake=on(5)))
    whole = record("r", 2, body="whole", status="done")
    assert await store.rewrite("r", remove=[0, 1], replace=[whole]) == 2
    assert meaning(await head(store, "r")) == meaning(whole)
    assert await store.run("r") == run_entry(whole, began=record("r", 0).entry.at)
    assert await run_ids(store, status="done") == ["r"]
    assert names(await store.requests()) == [("r", "q")]
    assert await store.wakes() == [Wake("r", "w", on(5))]


# -------------------------------------------------------------------- all or nothing


@rule
async def a_refused_rewrite_changes_nothing(store: Store) -> None:
    mine = this_process("mine")
    await store.append(record("r", 0), CommitEffects(asked=(question("r", "q"),), metadata=run_metadata(team="red")))
    await store.append(record("r", 1, is_snapshot=False))
    await store.append(record("r", 2), CommitEffects(wake=on(5)))
    await store.send("r", "k", text(1))
    await store.write_log("r", 2, "k", text(1))
    first = await store.acquire("r", mine, seconds=60)
    with after(minutes=2):
        await store.acquire("r", this_process("other"), seconds=600)
    effects = CommitEffects(
        consumed=("k",),
        asked=(question("r", "new"),),
        wake=on(9),
        metadata=run_metadata(team="blue"),
        drop_log_through=2,
        drop_below=2,
    )
    fenced = CommitEffects(consumed=("k",), fence=first)
    with refused(CommitConflict, "acquired by another process"):
        await store.rewrite("r", insert=record("r", 3), remove=[1], effects=fenced)
    with refused(CommitConflict, "cannot be removed"):
        await store.rewrite("r", insert=record("r", 3), remove=[0], effects=effects)
    with refused(CommitConflict, "another id"):
        await store.rewrite("r", insert=record("r", 3, workflow="another"), remove=[2], effects=effects)
    with refused(CommitConflict, "another id"):
        await store.rewrite(
            "r", replace=[record("r", 1), record("r", 0, workflow="another")], remove=[2], effects=effects
        )
    with refused(CommitConflict, "is its newest"):
        await store.rewrite("r", replace=[record("r", 1, body="whole")], remove=[0, 2])
    stored = [record("r", 0), record("r", 1, is_snapshot=False), record("r", 2)]
    assert meanings(await store.history("r")) == meanings(stored)
    assert await store.runs() == [run_entry(stored[2], metadata=run_metadata(team="red"))]
    assert names(await store.requests()) == [("r", "q")]
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await logged(store, "r", 2) == {"k": text(1)}
    assert [signal.key for signal in await store.pending_signals("r")] == ["k"]


@rule
async def a_rewrite_applies_its_effects(store: Store) -> None:
    await fill(store, "r", 4)
    for place in (1, 2, 3):
        await store.write_log("r", place, "k", text(place))
    effects = CommitEffects(drop_log_through=1, metadata=run_metadata("caller", team="red"), drop_below=2)
    assert await store.rewrite("r", replace=[record("r", 2, body="again")], effects=effects) == 0
    await store.close()
    assert meanings(await store.history("r")) == meanings([record("r", 2, body="again"), record("r", 3)])
    entry = await store.run("r")
    assert entry is not None
    assert entry.metadata == run_metadata("caller", team="red")
    assert [await logged(store, "r", place) for place in (1, 2, 3)] == [{}, {"k": text(2)}, {"k": text(3)}]
    reduced = record("r", 2, body="reduced", outputs=True, is_snapshot=False)
    await store.rewrite("r", insert=record("r", 4), effects=CommitEffects(reduced=(reduced, record("r", 9))))
    assert meanings(await store.history("r")) == meanings([reduced, record("r", 3), record("r", 4)])


@rule
async def a_driver_may_rewrite_the_run_it_has_acquired(store: Store) -> None:
    await fill(store, "r", 3)
    mine = this_process("mine")
    fence = await store.acquire("r", mine, seconds=60)
    assert await store.rewrite("r", remove=[1], effects=CommitEffects(fence=fence)) == 1
    await store.append(record("r", 3), CommitEffects(fence=fence))
    assert await store.acquire("r", mine, seconds=60) > fence
    with refused(CommitConflict, "acquired by another process"):
        await store.rewrite("r", remove=[2], effects=CommitEffects(fence=fence))
    assert numbers(await store.history("r")) == [0, 2, 3]
