"""Rules for `rewrite`: inserting, replacing and removing records of a run at once."""

from __future__ import annotations

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.filters import RunFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    acquire,
    append_all,
    contents,
    expect_error,
    fill,
    head,
    id_of,
    log_of,
    meaning,
    meanings,
    names,
    numbers,
    on,
    places,
    question,
    record,
    run_entry,
    run_ids,
    run_metadata,
    store_sample_run,
    take_over,
    text,
)

# -------------------------------------------------------------------- inserting


@rule
async def a_rewrite_ends_no_lease(store: Store) -> None:
    fence = await acquire(store, "r")
    await store.append(record("r", 0), CommitEffects(fence=fence))
    await store.rewrite("r", insert=record("r", 1), effects=CommitEffects(fence=fence, release=True))
    await expect_error(RunBusy, acquire(store, "r", "other"))


@rule
async def a_record_is_inserted_at_any_number(store: Store) -> None:
    # For imports: numbers may arrive in any order and with gaps.
    assert await store.rewrite("r", insert=record("r", 5)) == 0
    assert await store.rewrite("r", insert=record("r", 2), effects=NO_EFFECTS) == 0
    assert numbers(await store.history("r")) == await store.numbers("r") == [2, 5]
    assert meaning(await head(store, "r")) == meaning(record("r", 5))
    await expect_error(CommitConflict, store.append(record("r", 3)))
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
    first, whole, later = record("r", 0), record("r", 3, body="whole"), record("r", 8)
    last, again = record("r", 9, at=on(9), status="done"), record("r", 9, body="again")
    for inserted, removed, effects, count, expected in [
        # The inserted record takes the place of the delta, which therefore does not need its base.
        (whole, [2, 1, 7], None, 2, [first, whole]),
        (later, [3], NO_EFFECTS, 1, [first, later]),
        # The whole history is replaced; it is still the same run.
        (last, [0, 8], NO_EFFECTS, 2, [last]),
        # A number that is inserted is not removed.
        (again, [9], None, 0, [again]),
    ]:
        assert await store.rewrite("r", insert=inserted, remove=removed, effects=effects) == count, f"{removed=}"
        assert meanings(await store.history("r")) == meanings(expected)
        assert await store.runs() == [run_entry(inserted, began=first.entry.at)]


# -------------------------------------------------------------------- removing


@rule
async def a_removed_record_is_gone(store: Store) -> None:
    await fill(store, "r", 3)
    assert [await store.rewrite("r", remove=[1]) for _ in range(2)] == [1, 0]
    assert numbers(await store.history("r")) == await store.numbers("r") == [0, 2]
    assert (await store.read("r", 1), await store.locate(id_of("r", 1))) == ([], None)
    assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS) == 1
    assert meaning(await head(store, "r")) == meaning(record("r", 0))
    await store.append(record("r", 1))


@rule
async def many_records_are_removed_at_once(store: Store) -> None:
    for run_id in ("r", "s"):
        effects = CommitEffects(asked=(question(run_id, "q"),), metadata=run_metadata(team="red"))
        await store.append(record(run_id, 0, at=on(1)), effects)
        later = [record(run_id, number, is_snapshot=number % 4 == 0) for number in range(1, 9)]
        await append_all(store, later, CommitEffects(wake=on(5)))
    whole = record("r", 7, body="whole")
    assert await store.rewrite("r", remove=[1, 2, 5, 6, 3, 99], replace=[whole]) == 5
    await store.close()
    assert numbers(await store.history("r")) == [0, 4, 7, 8]
    assert meanings(await store.read("r", 7)) == meanings([whole])
    assert await store.locate(id_of("r", 5)) is None
    assert numbers(await store.history("s")) == list(range(9))
    assert names(await store.requests()) == [("r", "q"), ("s", "q")]
    listed = run_entry(record("r", 8), began=on(1), metadata=run_metadata(team="red"), wake=on(5))
    assert await store.run("r") == listed
    assert await store.rewrite("r", remove=[1, 2], replace=[whole]) == 0
    other = record("r", 7, body="another")
    assert await store.rewrite("r", replace=[other, record("r", 6)]) == 0
    assert meanings(await store.history("r", after=4, upto=7)) == meanings([other])
    await store.append(record("r", 9, is_snapshot=False))
    assert numbers(await store.read("r", 9)) == [8, 9]


@rule
async def the_newest_record_is_removed_only_with_effects(store: Store) -> None:
    await fill(store, "r", 3)
    await expect_error(CommitConflict, store.rewrite("r", remove=[0, 2]), "commit 2 of run 'r' is its newest")
    assert numbers(await store.history("r")) == [0, 1, 2]
    unstored = record("none", 0)
    assert await store.rewrite("none", remove=[0]) == await store.rewrite("none", replace=[unstored]) == 0
    assert (await store.run("none"), await store.rewrite("r")) == (None, 0)
    assert await store.rewrite("r", remove=[0, 2], effects=NO_EFFECTS) == 2
    assert numbers(await store.history("r")) == [1]


@rule
async def the_base_of_a_delta_is_removed_only_if_the_delta_is_replaced(store: Store) -> None:
    await fill(store, "r", 2)
    await append_all(store, (record("r", number, is_snapshot=False) for number in (2, 3, 4)))
    needed = "commit 2 of run 'r' cannot be removed: commit 3 is a delta to it"
    for replacement, reason in [
        ([], needed),
        ([record("r", 4)], needed),
        ([record("r", 3, workflow="another")], "another id"),
    ]:
        await expect_error(CommitConflict, store.rewrite("r", remove=[0, 2], replace=replacement), reason)
    assert numbers(await store.read("r", 4)) == [1, 2, 3, 4]
    assert numbers(await store.history("r")) == [0, 1, 2, 3, 4]
    assert await store.rewrite("r", remove=[0, 2], replace=[record("r", 3)]) == 2
    assert numbers(await store.read("r", 4)) == [3, 4]
    assert await store.rewrite("r", remove=[3, 4], effects=NO_EFFECTS) == 2  # base and delta
    assert numbers(await store.history("r")) == [1]


@rule
async def removing_the_last_record_removes_the_run(store: Store) -> None:
    await store_sample_run(store, "r")
    assert await store.rewrite("r", remove=[0, 1, 2], effects=CommitEffects(metadata=run_metadata(team="blue"))) == 3
    assert (await log_of(store, "r"), await store.run("r")) == ({}, None)
    assert (*await store.checkpoints(), *await run_ids(store, children=True)) == ()
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
    listed = run_entry(whole, began=record("r", 0).entry.at, wake=on(5))
    assert [await store.run("r")] == await store.runs(RunFilter(status="done")) == [listed]
    assert names(await store.requests()) == [("r", "q")]


# -------------------------------------------------------------------- all or nothing


@rule
async def a_refused_rewrite_changes_nothing(store: Store) -> None:
    stored = await store_sample_run(store, "r")
    fenced = CommitEffects(consumed=("k",), fence=await acquire(store, "r"))
    await take_over(store, "r")
    effects = CommitEffects(
        consumed=("k",),
        asked=(question("r", "new"),),
        wake=on(9),
        metadata=run_metadata(team="blue"),
        drop_log_through=2,
        drop_below=2,
    )
    third, foreign = record("r", 3), record("r", 0, workflow="another")
    for reason, inserted, replaced, removed, refused in [
        ("acquired by another process", third, [], [1], fenced),
        ("cannot be removed", third, [], [0], effects),
        ("another id", record("r", 3, workflow="another"), [], [2], effects),
        ("another id", None, [record("r", 1), foreign], [2], effects),
        ("is its newest", None, [record("r", 1, body="whole")], [0, 2], None),
    ]:
        rewriting = store.rewrite("r", insert=inserted, replace=replaced, remove=removed, effects=refused)
        await expect_error(CommitConflict, rewriting, reason)
        assert await contents(store, "r") == stored, reason


@rule
async def a_rewrite_applies_its_effects(store: Store) -> None:
    await fill(store, "r", 4)
    for place in (1, 2, 3):
        await store.write_log("r", place, "k", text(place))
    effects = CommitEffects(drop_log_through=1, metadata=run_metadata("caller", team="red"), drop_below=2)
    assert await store.rewrite("r", replace=[record("r", 2, body="again")], effects=effects) == 0
    await store.close()
    assert meanings(await store.history("r")) == meanings([record("r", 2, body="again"), record("r", 3)])
    assert await store.run("r") == run_entry(record("r", 3), metadata=run_metadata("caller", team="red"))
    assert await log_of(store, "r") == {(2, "k"): text(2), (3, "k"): text(3)}
    reduced = record("r", 2, body="reduced", outputs=True, is_snapshot=False)
    await store.rewrite("r", insert=record("r", 4), effects=CommitEffects(reduced=(reduced, record("r", 9))))
    assert meanings(await store.history("r")) == meanings([reduced, record("r", 3), record("r", 4)])


@rule
async def a_driver_may_rewrite_the_run_it_has_acquired(store: Store) -> None:
    await fill(store, "r", 3)
    fence = await acquire(store, "r")
    assert await store.rewrite("r", remove=[1], effects=CommitEffects(fence=fence)) == 1
    await store.append(record("r", 3), CommitEffects(fence=fence))
    assert await acquire(store, "r") > fence
    late = store.rewrite("r", remove=[2], effects=CommitEffects(fence=fence))
    await expect_error(CommitConflict, late, "acquired by another process")
    assert numbers(await store.history("r")) == [0, 2, 3]
