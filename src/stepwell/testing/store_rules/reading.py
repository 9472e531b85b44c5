"""Rules for reading records back: chains, history, entries and checkpoints."""

from __future__ import annotations

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage.port import Store
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import fill, numbers, places, record, refused


@rule
async def a_chain_starts_with_the_last_snapshot(store: Store) -> None:
    for number, is_snapshot in enumerate([True, False, False, True, False]):
        await store.append(record("r", number, is_snapshot=is_snapshot))
    assert numbers(await store.chain("r", 0)) == [0]
    assert numbers(await store.chain("r", 2)) == [0, 1, 2]
    assert numbers(await store.chain("r", 3)) == [3]
    assert numbers(await store.chain("r", 4)) == [3, 4]
    assert await store.chain("r", 5) == []


@rule
async def the_base_of_a_delta_is_removed_only_with_a_follower(store: Store) -> None:
    for number, is_snapshot in enumerate([True, False, False, False]):
        await store.append(record("r", number, is_snapshot=is_snapshot))
    with refused(CommitConflict, "commit 2 is a delta to it"):
        await store.remove("r", 1)
    assert numbers(await store.chain("r", 3)) == [0, 1, 2, 3]
    assert await store.remove("r", 1, follower=record("r", 2, is_snapshot=True))
    assert numbers(await store.chain("r", 3)) == [2, 3]
    assert await store.remove("r", 3)


@rule
async def a_follower_does_not_restore_a_removed_record(store: Store) -> None:
    for number in range(3):
        await store.append(record("r", number, is_snapshot=True))
    assert await store.remove("r", 2)
    assert await store.remove("r", 1, follower=record("r", 2, is_snapshot=True))
    assert numbers(await store.history("r")) == [0]


@rule
async def history_is_oldest_first_up_to_a_number(store: Store) -> None:
    for number in range(5):
        await store.append(record("r", number, outputs=number in (1, 3)))
    assert numbers(await store.history("r")) == [0, 1, 2, 3, 4]
    assert numbers(await store.history("r", upto=2)) == [0, 1, 2]
    assert numbers(await store.history("r", outputs_only=True)) == [1, 3]
    assert numbers(await store.history("r", upto=2, outputs_only=True)) == [1]
    assert await store.history("r", upto=-1) == []


@rule
async def history_starts_after_a_number(store: Store) -> None:
    for number in range(5):
        await store.append(record("r", number, outputs=number in (1, 3)))
    assert numbers(await store.history("r", after=1)) == [2, 3, 4]
    assert numbers(await store.history("r", after=1, upto=3)) == [2, 3]
    assert numbers(await store.history("r", after=1, outputs_only=True)) == [3]
    assert numbers(await store.history("r", after=-1)) == [0, 1, 2, 3, 4]
    assert await store.history("r", after=4) == []
    assert await store.history("r", after=3, upto=1) == []
    assert await store.history("r", after=70) == []
    assert await store.history("nobody", after=0) == []
    await store.put(record("r", 9))
    await store.remove("r", 3)
    assert numbers(await store.history("r", after=2)) == [4, 9]


@rule
async def entries_are_listed_in_commit_order(store: Store) -> None:
    for run_id, number in [("b", 0), ("a", 0), ("b", 1), ("c", 0), ("a", 1)]:
        await store.append(record(run_id, number, workflow="odd" if run_id == "c" else "w"))
    assert places(await store.entries()) == [("b", 0), ("a", 0), ("b", 1), ("c", 0), ("a", 1)]
    assert places(await store.entries(workflow="w")) == [("b", 0), ("a", 0), ("b", 1), ("a", 1)]
    assert places(await store.entries(run_id="b")) == [("b", 0), ("b", 1)]
    assert places(await store.entries(workflow="odd", run_id="c")) == [("c", 0)]
    assert await store.entries(workflow="odd", run_id="a") == []
    assert await store.entries(workflow="none") == []


@rule
async def the_newest_entry_was_committed_last(store: Store) -> None:
    for run_id, number, workflow in [("a", 0, "v"), ("b", 0, "w"), ("a", 1, "v"), ("c", 0, "w")]:
        await store.append(record(run_id, number, workflow=workflow))
    assert await store.newest() == record("c", 0).entry
    assert await store.newest(workflow="v") == record("a", 1, workflow="v").entry
    assert await store.newest(run_id="b") == record("b", 0).entry
    assert await store.newest(run_id="b", workflow="w") == record("b", 0).entry
    assert await store.newest(run_id="b", workflow="v") is None
    assert await store.newest(workflow="none") is None


@rule
async def a_checkpoint_is_located_by_its_id(store: Store) -> None:
    await fill(store, "r", 3)
    assert await store.locate("r-1") == record("r", 1).entry
    assert await store.locate("r-") is None
    assert await store.locate("-1") is None


@rule
async def a_chain_with_a_missing_record_is_reported(store: Store) -> None:
    # A delta without its base: a store that skipped the gap would return a state that never
    # existed.
    await store.put(record("r", 0))
    await store.put(record("r", 2, is_snapshot=False))
    await store.put(record("r", 3, is_snapshot=False))
    for number in (2, 3):
        with refused(CheckpointCorrupt, "'r'"):
            await store.chain("r", number)
    assert numbers(await store.chain("r", 0)) == [0]
