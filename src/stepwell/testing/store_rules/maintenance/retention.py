"""Rules for retention: which earlier records an append drops, and what it keeps of them."""

from __future__ import annotations

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    check_refused_appends,
    contents,
    expect_error,
    expected_contents,
    fill,
    id_of,
    meanings,
    numbers,
    on,
    places,
    question,
    record,
    run_entry,
    run_metadata,
    text,
)


@rule
async def records_dropped_by_an_append_are_gone(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 3)
    await store.append(record("r", 3), CommitEffects(drop_below=3))
    of_r, last = CheckpointFilter(run_id="r"), record("r", 3)
    assert numbers(await store.history("r")) == await store.numbers("r") == [3]
    assert places(await store.checkpoints(of_r)) == [("r", 3)]
    assert places(await store.checkpoints()) == [("r", 3), ("s", 0), ("s", 1), ("s", 2)]
    assert places(await store.checkpoints(CheckpointFilter(workflow="w"), limit=2)) == [("s", 1), ("s", 2)]
    assert (*await store.checkpoints(of_r, before=last.entry), *await store.read("r", 1)) == ()
    assert (await store.locate(id_of("r", 1)), await store.rewrite("r", remove=[2])) == (None, 0)
    assert meanings(await store.read("r", 3)) == meanings([last])
    assert numbers(await store.history("s")) == [0, 1, 2]


@rule
async def a_run_that_keeps_only_its_latest_record_continues(store: Store) -> None:
    # A snapshot every third record, and each append drops what was before the last snapshot.
    for number in range(10):
        base = max(0, number - number % 3)
        made = record("r", number, is_snapshot=number % 3 == 0, latest_only=True)
        await store.append(made, CommitEffects(drop_below=base))
        for records in (await store.read("r", number), (await store.open("r")).records):
            assert numbers(records) == list(range(base, number + 1))
    await store.close()
    assert numbers(await store.history("r")) == [9]
    for number in (0, 8, 9, 11):
        await expect_error(CommitConflict, store.append(record("r", number)))
    await store.append(record("r", 10))
    assert numbers(await store.history("r")) == [9, 10]


@rule
async def records_with_outputs_are_never_dropped(store: Store) -> None:
    for number in range(6):
        await store.append(record("r", number, outputs=number in (1, 4)), CommitEffects(drop_below=number))
    assert numbers(await store.history("r")) == [1, 4, 5]
    assert numbers(await store.history("r", outputs_only=True)) == [1, 4]
    assert await store.locate(id_of("r", 1)) == record("r", 1, outputs=True).entry
    assert places(await store.checkpoints()) == [("r", 1), ("r", 4), ("r", 5)]
    await store.close()
    assert numbers(await store.history("r")) == [1, 4, 5]


@rule
async def a_delta_kept_for_its_outputs_is_unreadable_without_its_base(store: Store) -> None:
    await store.append(record("r", 0))
    await store.append(record("r", 1, is_snapshot=False, outputs=True))
    await store.append(record("r", 2), CommitEffects(drop_below=2))
    assert numbers(await store.history("r", outputs_only=True)) == [1]
    await expect_error(CheckpointCorrupt, store.read("r", 1))
    assert numbers(await store.read("r", 2)) == [2]


@rule
async def an_append_reduces_earlier_records(store: Store) -> None:
    for number in range(3):
        even = number % 2 == 0
        await store.append(record("r", number, is_snapshot=even, outputs=even, latest_only=True))
    await fill(store, "s", 2)
    reduced = [record("r", n, body=f"reduced {n}", is_snapshot=False, outputs=True, latest_only=True) for n in (0, 2)]
    gone = record("r", 7, body="never there", outputs=True, latest_only=True)
    last = record("r", 3, latest_only=True)
    await store.append(last, CommitEffects(drop_below=3, reduced=(*reduced, gone)))
    await store.close()
    assert meanings(await store.history("r")) == meanings([*reduced, last])
    assert meanings(await store.history("r", outputs_only=True)) == meanings(reduced)
    assert await store.locate(id_of("r", 2)) == reduced[1].entry
    assert meanings(await store.read("r", 3)) == meanings([last])
    assert places(await store.checkpoints()) == [("r", 0), ("r", 2), ("r", 3), ("s", 0), ("s", 1)]
    assert await store.run("r") == run_entry(last, began=record("r", 0).entry.at)
    assert meanings(await store.history("s")) == meanings([record("s", 0), record("s", 1)])


@rule
async def a_refused_append_reduces_nothing(store: Store) -> None:
    reduced = record("r", 0, body="reduced", is_snapshot=False)
    await check_refused_appends(store, CommitEffects(drop_below=2, reduced=(reduced,)))


@rule
async def a_refused_append_drops_nothing(store: Store) -> None:
    await check_refused_appends(store, CommitEffects(drop_below=2))


@rule
async def dropping_records_keeps_signals_requests_and_metadata(store: Store) -> None:
    red = run_metadata(team="red")
    await store.append(record("r", 0, at=on(1)), CommitEffects(asked=(question("r", "q"),), metadata=red))
    await store.send("r", "used", text(0))
    await store.append(record("r", 1, at=on(2)), CommitEffects(consumed=("used",), drop_below=1))
    await store.send("r", "k", text(1))
    await store.write_log("r", 2, "k", text(1))
    last = record("r", 2, at=on(3))
    await store.append(last, CommitEffects(drop_below=2, wake="2026-01-01"))
    assert await contents(store, "r") == expected_contents(
        [last],
        began=on(1),
        metadata=red,
        requests=[question("r", "q")],
        wake="2026-01-01",
        log={(2, "k"): text(1)},
        signals=[("k", text(1))],
    )
    assert not await store.send("r", "used", text(1))


@rule
async def a_rewrite_drops_records_too(store: Store) -> None:
    await fill(store, "r", 3)
    await store.rewrite("r", insert=record("r", 3), effects=CommitEffects(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    await store.rewrite("r", insert=record("r", 1))
    assert numbers(await store.history("r")) == [1, 3]
