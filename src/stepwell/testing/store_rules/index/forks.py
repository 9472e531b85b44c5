"""Rules for searching the runs that were forked from a run."""

from __future__ import annotations

from stepwell.storage.filters import RunFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.index.runs import check_searches
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import ODD_IDS, append_all, on, record, run_ids, run_metadata


@rule
async def the_forks_of_a_run_are_found(store: Store) -> None:
    await append_all(store, [record("first", 0, at=on(1)), record("other", 0, at=on(1))])
    for n, (run_id, metadata) in enumerate(
        [
            ("fork-1", run_metadata(parent=("first", 3), team="red")),
            ("fork-2", run_metadata(parent=("first", 0))),
            ("child", run_metadata("fork-2", parent=("first", 5))),
            ("fork of a fork", run_metadata(parent=("fork-1", 2))),
        ]
    ):
        await store.append(record(run_id, 0, at=on(2 + n)), CommitEffects(metadata=metadata))
        entry = await store.run(run_id)
        assert entry is not None
        assert entry.metadata == metadata
    # A later commit leaves it as it is; so does one that changes tags.
    await store.append(record("fork-2", 1, at=on(9)))
    blue = run_metadata(parent=("first", 0), team="blue")
    await store.append(record("fork-2", 2, at=on(9)), CommitEffects(metadata=blue))
    assert [run.metadata for run in await store.runs(RunFilter(parent="first"))] == [
        blue,
        run_metadata(parent=("first", 3), team="red"),
    ]
    await check_searches(
        store,
        (RunFilter(parent="first"), ["fork-2", "fork-1"]),
        (RunFilter(parent="first", children=True), ["child", "fork-2", "fork-1"]),
        (RunFilter(parent="first", tags={"team": "red"}), ["fork-1"]),
        (RunFilter(parent="first", prefix="fork-1"), ["fork-1"]),
        (RunFilter(parent="fork-1"), ["fork of a fork"]),
        (RunFilter(parent="other"), []),
        (RunFilter(parent="none"), []),
    )
    page = await store.runs(RunFilter(parent="first"), limit=1)
    assert [run.run_id for run in await store.runs(RunFilter(parent="first"), past=page[-1])] == ["fork-1"]
    await store.drop("first")  # what was forked from it still says so
    assert await run_ids(store, parent="first") == ["fork-2", "fork-1"]


@rule
async def runs_are_forked_from_runs_with_odd_names(store: Store) -> None:
    for name in ODD_IDS:
        metadata = run_metadata(parent=(name, 1))
        await store.append(record(f"fork of {name}", 0), CommitEffects(metadata=metadata))
        assert [run.metadata for run in await store.runs(RunFilter(parent=name))] == [metadata]
