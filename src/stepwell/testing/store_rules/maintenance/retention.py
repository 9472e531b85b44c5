"""Rules for retention: which earlier records an append drops, and what it keeps of them."""

from __future__ import annotations

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects, Wake
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    fill,
    id_of,
    logged,
    meanings,
    numbers,
    on,
    places,
    question,
    record,
    refused,
    run_entry,
    run_metadata,
    signals_of,
    text,
)


@rule
async def records_dropped_by_an_append_are_gone(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 3)
    await store.append(record("r", 3), CommitEffects(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    assert places(await store.checkpoints(CheckpointFilter(run_id="r"))) == [("r", 3)]
    assert places(await store.checkpoints()) == [("r", 3), ("s", 0), ("s", 1), ("s", 2)]
    assert places(await store.checkpoints(CheckpointFilter(workflow="w"), limit=2)) == [("s", 1), ("s", 2)]
    assert await store.checkpoints(CheckpointFilter(run_id="r"), before=record("r", 3).entry) == []
    assert await store.locate(id_of("r", 1)) is None
    assert await store.read("r", 1) == []
    assert await store.numbers("r") == [3]
    assert await store.rewrite("r", remove=[2]) == 0
    assert meanings(await store.read("r", 3)) == meanings([record("r", 3)])
    assert numbers(await store.history("s")) == [0, 1, 2]


@rule
async def a_run_that_keeps_only_its_latest_record_continues(store: Store) -> None:
    # A snapshot every third record, and each append drops what was before the last snapshot.
    for number in range(10):
        base = max(0, number - number % 3)
        await store.append(
            record("r", number, is_snapshot=number % 3 == 0, latest_only=True), CommitEffects(drop_below=base)
        )
        assert numbers(await store.read("r", number)) == list(range(base, number + 1))
        assert numbers((await store.open("r")).records) == list(range(base, number + 1))
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
    with refused(CheckpointCorrupt):
        await store.read("r", 1)
    assert numbers(await store.read("r", 2)) == [2]


@rule
async def an_append_reduces_earlier_records(store: Store) -> None:
    await store.append(record("r", 0, outputs=True, latest_only=True))
    await store.append(record("r", 1, is_snapshot=False, latest_only=True))
    await store.append(record("r", 2, outputs=True, latest_only=True))
    await fill(store, "s", 2)
    reduced = [record("r", n, body=f"reduced {n}", is_snapshot=False, outputs=True, latest_only=True) for n in (0, 2)]
    gone = record("r", 7, body="never there", outputs=True, latest_only=True)
    await store.append(record("r", 3, latest_only=True), CommitEffects(drop_below=3, reduced=(*reduced, gone)))
    await store.close()
    assert meanings(await store.history("r")) == meanings([*reduced, record("r", 3, latest_only=True)])
    assert meanings(await store.history("r", outputs_only=True)) == meanings(reduced)
    assert await store.locate(id_of("r", 2)) == reduced[1].entry
    assert meanings(await store.read("r", 3)) == meanings([record("r", 3, latest_only=True)])
    assert places(await store.checkpoints()) == [("r", 0), ("r", 2), ("r", 3), ("s", 0), ("s", 1)]
    assert await store.run("r") == run_entry(record("r", 3, latest_only=True), began=record("r", 0).entry.at)
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
    assert await store.requests() == [question("r", "q")]
    assert await signals_of(store, "r") == [("k", text(1))]
    assert not await store.send("r", "used", text(1))
    assert await logged(store, "r", 2) == {"k": text(1)}
    assert await store.wakes() == [Wake("r", "w", "2026-01-01")]
    assert await store.runs() == [run_entry(record("r", 2, at=on(3)), began=on(1), metadata=run_metadata(team="red"))]


@rule
async def a_rewrite_drops_records_too(store: Store) -> None:
    await fill(store, "r", 3)
    await store.rewrite("r", insert=record("r", 3), effects=CommitEffects(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    await store.rewrite("r", insert=record("r", 1))
    assert numbers(await store.history("r")) == [1, 3]
