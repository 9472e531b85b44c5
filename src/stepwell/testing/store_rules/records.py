"""Rules for appending, putting and removing records."""

from __future__ import annotations

import asyncio

from stepwell.errors import CommitConflict
from stepwell.storage.port import Record, Store
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    fill,
    meaning,
    meanings,
    numbers,
    places,
    record,
    refused,
    text,
)

# -------------------------------------------------------------------- appending


@rule
async def an_empty_store_has_no_records(store: Store) -> None:
    assert await store.head("r") is None
    assert await store.chain("r", 0) == []
    assert await store.history("r") == []
    assert await store.locate("c") is None
    assert await store.entries() == []
    assert await store.newest() is None
    assert await store.read_log("r", 0) == {}
    assert not await store.remove("r", 0)


@rule
async def the_last_appended_record_is_the_head(store: Store) -> None:
    first, second = record("r", 0), record("r", 1, status="done", outputs=True, is_snapshot=False)
    await store.append(first)
    assert meaning(await store.head("r")) == meaning(first)
    await store.append(second)
    assert meaning(await store.head("r")) == meaning(second)


@rule
async def a_body_is_read_back_unchanged(store: Store) -> None:
    # Everything that a round trip through a JSON parser, or through jsonb, would change.
    body = '{"b":1.10,"a":-0.0,"big":123456789012345678901234567890,"e":1e400,"n":[null,[],{}],'
    body += '"u":"é\\u00e9日\\ud83d\\ude00"}'
    await store.append(Record(record("r", 0).entry, body.encode()))
    head = await store.head("r")
    assert head is not None
    assert head.body == body.encode()


@rule
async def a_large_body_is_read_back_unchanged(store: Store) -> None:
    large = record("r", 0, body=["x" * 1000] * 3000)
    await store.append(large)
    assert meaning(await store.head("r")) == meaning(large)


@rule
async def a_record_number_is_used_once(store: Store) -> None:
    await fill(store, "r", 2)
    for number in (0, 1, 3):  # taken, taken, and one that leaves a gap
        with refused(CommitConflict, "'r'"):
            await store.append(record("r", number, body="other"))
    assert meanings(await store.history("r")) == meanings([record("r", 0), record("r", 1)])


@rule
async def a_new_run_starts_with_number_0(store: Store) -> None:
    with refused(CommitConflict):
        await store.append(record("r", 1))
    assert await store.head("r") is None


@rule
async def concurrent_appends_of_one_number_have_one_winner(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(store.append(record("r", 0, body=n, checkpoint_id=f"c{n}")) for n in range(20)), return_exceptions=True
    )
    winners = [n for n, outcome in enumerate(outcomes) if outcome is None]
    assert len(winners) == 1
    assert all(isinstance(outcome, CommitConflict) for outcome in outcomes if outcome is not None)
    assert meanings(await store.history("r")) == meanings(
        [record("r", 0, body=winners[0], checkpoint_id=f"c{winners[0]}")]
    )


@rule
async def a_run_belongs_to_one_workflow(store: Store) -> None:
    await store.append(record("r", 0, workflow="one"))
    with refused(CommitConflict, "another id"):
        await store.append(record("r", 1, workflow="two"))
    with refused(CommitConflict, "another id"):
        await store.put(record("r", 0, workflow="two"))
    assert places(await store.entries()) == [("r", 0)]
    assert await store.entries(workflow="two") == []


@rule
async def runs_and_workflows_with_odd_names_are_kept_apart(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}"))
        await store.write_log(name, 1, name, text(name))
    for name in ODD_IDS:
        expected = record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}")
        assert meaning(await store.head(name)) == meaning(expected)
        assert await store.locate(f"c{name}") == expected.entry
        assert await store.entries(workflow=f"w{name}") == [expected.entry]
        assert await store.read_log(name, 1) == {name: text(name)}
    assert [entry.run_id for entry in await store.entries()] == ODD_IDS


@rule
async def checkpoints_and_workflows_with_odd_names_are_found(store: Store) -> None:
    await store.append(record("r", 0))
    for name in ODD_IDS:
        assert await store.locate(name) is None
        assert await store.newest(workflow=name) is None
        assert await store.newest(run_id=name) is None
    for name in ODD_IDS:
        await store.append(record(f"run of {name}", 0, checkpoint_id=name, workflow=name))
        located = await store.locate(name)
        assert located is not None
        assert located.run_id == f"run of {name}"


# -------------------------------------------------------------------- putting and removing


@rule
async def put_stores_a_record_at_any_number(store: Store) -> None:
    # `put` is for imports, so numbers may arrive in any order and with gaps.
    await store.put(record("r", 5))
    await store.put(record("r", 2))
    assert numbers(await store.history("r")) == [2, 5]
    assert meaning(await store.head("r")) == meaning(record("r", 5))
    with refused(CommitConflict):
        await store.append(record("r", 3))
    await store.append(record("r", 6))
    assert numbers(await store.history("r")) == [2, 5, 6]


@rule
async def put_replaces_a_record_and_counts_as_committed_now(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 1)
    again = record("r", 1, body="again", checkpoint_id="again")
    await store.put(again)
    assert places(await store.entries()) == [("r", 0), ("r", 2), ("s", 0), ("r", 1)]
    assert await store.newest() == again.entry
    assert await store.newest(run_id="r") == again.entry
    assert meaning(await store.head("r")) == meaning(record("r", 2))
    assert meanings(await store.history("r")) == meanings([record("r", 0), again, record("r", 2)])
    assert await store.locate("r-1") is None
    assert await store.locate("again") == again.entry
    await store.append(record("r", 3))
    assert await store.newest(run_id="r") == record("r", 3).entry


@rule
async def a_removed_record_is_gone(store: Store) -> None:
    await fill(store, "r", 3)
    assert await store.remove("r", 1)
    assert not await store.remove("r", 1)
    assert numbers(await store.history("r")) == [0, 2]
    assert await store.locate("r-1") is None
    assert await store.remove("r", 2)
    assert meaning(await store.head("r")) == meaning(record("r", 0))
    await store.append(record("r", 1))


@rule
async def a_follower_replaces_the_next_record_without_becoming_the_newest(store: Store) -> None:
    await store.append(record("r", 0))
    await store.append(record("r", 1, is_snapshot=False))
    await fill(store, "s", 1)
    whole = record("r", 1, body="whole")
    assert await store.remove("r", 0, follower=whole)
    assert meanings(await store.chain("r", 1)) == meanings([whole])
    # Unlike `put`, a follower keeps the position of the record it replaces.
    assert places(await store.entries()) == [("r", 1), ("s", 0)]
    assert await store.newest() == record("s", 0).entry


@rule
async def a_follower_of_a_missing_record_is_not_stored(store: Store) -> None:
    await fill(store, "r", 1)
    assert not await store.remove("r", 7, follower=record("r", 8))
    assert numbers(await store.history("r")) == [0]


@rule
async def a_refused_follower_removes_nothing(store: Store) -> None:
    await fill(store, "r", 2)
    with refused(CommitConflict):
        await store.remove("r", 0, follower=record("r", 1, workflow="another"))
    assert meanings(await store.history("r")) == meanings([record("r", 0), record("r", 1)])


@rule
async def removing_the_last_record_removes_the_superstep_log(store: Store) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 1, "k", text(1))
    assert await store.remove("r", 0)
    assert await store.read_log("r", 1) == {}
    assert await store.entries() == []
    assert await store.newest(workflow="w") is None
    # Nothing is left of the old run, so its id may be used by another workflow.
    await store.append(record("r", 0, workflow="another"))
    assert meaning(await store.head("r")) == meaning(record("r", 0, workflow="another"))
