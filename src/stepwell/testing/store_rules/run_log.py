"""Rules for the records of runs: appending, opening and reading them."""

from __future__ import annotations

import asyncio

from stepwell.errors import CheckpointCorrupt, CommitConflict, RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects, LogRow, Record, SignalRow
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    fill,
    head,
    id_of,
    logged,
    meaning,
    meanings,
    numbers,
    on,
    question,
    record,
    refused,
    run_ids,
    run_metadata,
    signals_of,
    text,
)

# -------------------------------------------------------------------- appending


@rule
async def an_empty_store_has_no_records(store: Store) -> None:
    assert await store.read("r") == []
    assert await store.read("r", 0) == []
    assert await store.history("r") == []
    opened = await store.open("r")
    assert (*opened.records, *opened.log) == ()
    assert await store.numbers("r") == []
    assert await store.locate("c") is None
    assert await store.locate(id_of("r", 0)) is None
    assert await store.checkpoints() == []
    assert await store.rewrite("r", remove=[0]) == 0


@rule
async def the_last_appended_record_is_the_head(store: Store) -> None:
    first, second = record("r", 0), record("r", 1, status="done", outputs=True, is_snapshot=False)
    await store.append(first)
    assert meaning(await head(store, "r")) == meaning(first)
    await store.append(second)
    assert meaning(await head(store, "r")) == meaning(second)


@rule
async def a_body_is_read_back_unchanged(store: Store) -> None:
    # Everything that a round trip through a JSON parser, or through jsonb, would change.
    body = '{"b":1.10,"a":-0.0,"big":123456789012345678901234567890,"e":1e400,"n":[null,[],{}],'
    body += '"u":"é\\u00e9日\\ud83d\\ude00"}'
    await store.append(Record(record("r", 0).entry, body.encode()))
    assert [each.body for each in await store.read("r")] == [body.encode()]
    assert [each.body for each in await store.history("r")] == [body.encode()]
    assert [each.body for each in (await store.open("r")).records] == [body.encode()]


@rule
async def a_large_body_is_read_back_unchanged(store: Store) -> None:
    large = record("r", 0, body=["x" * 1000] * 3000)
    await store.append(large)
    assert meaning(await head(store, "r")) == meaning(large)


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
    assert await store.read("r") == []


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
        await store.rewrite("r", insert=record("r", 0, workflow="two"), effects=CommitEffects())
    with refused(CommitConflict, "another id"):
        await store.rewrite("r", replace=[record("r", 0, workflow="two")])
    assert meanings(await store.history("r")) == meanings([record("r", 0, workflow="one")])
    assert await run_ids(store, workflow="two") == []


@rule
async def runs_and_workflows_with_odd_names_are_kept_apart(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}"))
        await store.append(record(name, 1, workflow=f"w{name}", body=name, is_snapshot=False))
        await store.write_log(name, 1, name, text(name))
    for name in ODD_IDS:
        first = record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}")
        second = record(name, 1, workflow=f"w{name}", body=name, is_snapshot=False)
        assert meanings(await store.read(name)) == meanings([first, second])
        assert meanings((await store.open(name)).records) == meanings([first, second])
        assert await store.locate(f"c{name}") == first.entry
        assert await store.locate(id_of(name, 1)) == second.entry
        assert await logged(store, name, 1) == {name: text(name)}
        assert await store.numbers(name) == [0, 1]


@rule
async def a_refused_append_leaves_no_trace(store: Store) -> None:
    await fill(store, "r", 1)
    await store.send("new", "k", text(1))
    effects = CommitEffects(
        consumed=("k", "other"), asked=(question("new", "q"),), wake=on(1), metadata=run_metadata(team="red")
    )
    for stale in (record("new", 1), record("r", 1, workflow="another"), record("r", 0), record("r", 2)):
        with refused(CommitConflict):
            await store.append(stale, effects)
    assert await store.run("new") is None
    assert await run_ids(store, children=True) == ["r"]
    assert list((await store.survey()).runs) == await store.runs()
    assert await store.numbers("new") == []
    assert [entry.run_id for entry in await store.checkpoints()] == ["r"]
    assert await store.locate(id_of("new", 1)) is None
    assert await store.requests() == []
    assert await store.wakes() == []
    assert await signals_of(store, "new") == [("k", text(1))]
    assert await store.send("new", "other", text(2))
    assert not await store.drop("new")
    # Nobody holds a lease, and the run may still belong to any workflow.
    await store.acquire("new", this_process("mine"), seconds=60)
    await store.append(record("new", 0, workflow="another"))


@rule
async def a_record_and_its_effects_are_stored_together(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(asked=(question("r", "q"),)))
    await store.send("r", "q", text(True))
    await store.write_log("r", 1, "k", text(1))
    effects = CommitEffects(
        drop_log_through=1, consumed=("q",), asked=(question("r", "next"),), closed=("q",), wake="2026-01-01"
    )
    await store.append(record("r", 1), effects)
    await store.close()
    assert meaning(await head(store, "r")) == meaning(record("r", 1))
    assert await logged(store, "r", 1) == {}
    assert await store.pending_signals("r") == []
    assert [request.request_id for request in await store.requests()] == ["next"]
    assert [wake.at for wake in await store.wakes()] == ["2026-01-01"]


@rule
async def writes_take_effect_in_the_order_in_which_they_began(store: Store) -> None:
    if not store.keeps_order:
        return
    await asyncio.gather(*(store.append(record("r", number)) for number in range(20)))
    assert numbers(await store.history("r")) == list(range(20))


@rule
async def a_write_completes_although_its_caller_is_cancelled(store: Store) -> None:
    if not store.completes_writes:
        return
    for number in range(5):
        appending = asyncio.create_task(store.append(record("r", number)))
        await asyncio.sleep(0)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        await store.close()  # finishes the work in progress
        assert numbers(await store.history("r")) == list(range(number + 1))


# -------------------------------------------------------------------- opening


@rule
async def an_opened_run_has_all_that_is_needed_to_continue(store: Store) -> None:
    for number, is_snapshot in enumerate([True, True, False, False]):
        await store.append(record("r", number, is_snapshot=is_snapshot))
    for place, key in [(2, "a"), (3, "b"), (3, "a")]:
        await store.write_log("r", place, key, text(f"{place}{key}"))
    for key in ("second", "first", "used"):
        await store.send("r", key, text(key))
    await store.append(record("r", 4, is_snapshot=False), CommitEffects(consumed=("used",)))
    await fill(store, "s", 2)
    await store.write_log("s", 1, "a", text("of s"))
    await store.send("s", "first", text("of s"))
    opened = await store.open("r")
    expected = [record("r", number, is_snapshot=number == 1) for number in range(1, 5)]
    assert meanings(opened.records) == meanings(expected)
    assert meanings(await store.read("r")) == meanings(expected)
    assert sorted(opened.log, key=lambda row: (row.place, row.key)) == [
        LogRow(2, "a", text("2a")),
        LogRow(3, "a", text("3a")),
        LogRow(3, "b", text("3b")),
    ]
    assert list(opened.signals) == [SignalRow("second", text("second")), SignalRow("first", text("first"))]
    assert opened.fence is None


@rule
async def a_run_without_records_can_be_opened(store: Store) -> None:
    await store.write_log("r", 0, "k", text(1))
    await store.send("r", "k", text(2))
    mine = this_process("mine")
    opened = await store.open("r", owner=mine, seconds=60)
    assert list(opened.records) == []
    assert list(opened.log) == [LogRow(0, "k", text(1))]
    assert list(opened.signals) == [SignalRow("k", text(2))]
    fence = (await store.open("new", owner=mine, seconds=60)).fence
    assert fence is not None
    assert await store.run("new") is None
    assert await run_ids(store, children=True) == []
    assert list((await store.survey()).runs) == []
    await store.append(record("new", 0), CommitEffects(fence=fence))
    with refused(RunBusy):
        await store.open("new", owner=this_process("other"), seconds=60)


@rule
async def an_opened_run_is_read_at_one_moment(store: Store) -> None:
    await fill(store, "r", 1)
    for number in range(1, 6):
        await store.send("r", str(number), text(number))
        await store.write_log("r", number, "k", text(number))
        effects = CommitEffects(consumed=(str(number),), drop_log_through=number)
        writing = store.append(record("r", number), effects)
        # Begun before it, at once with it, and while it is made.
        opening = [asyncio.ensure_future(store.open("r")) for _ in range(6)]
        await asyncio.gather(opening[0], writing, *opening[1:])
        for opened in (*(task.result() for task in opening), await store.open("r")):
            waits = opened.records[-1].entry.number < number
            assert [signal.key for signal in opened.signals] == ([str(number)] if waits else [])
            assert [row.place for row in opened.log] == ([number] if waits else [])
    assert numbers((await store.open("r")).records) == [5]


# -------------------------------------------------------------------- reading


@rule
async def a_chain_starts_with_the_last_snapshot(store: Store) -> None:
    for number, is_snapshot in enumerate([True, False, False, True, False]):
        await store.append(record("r", number, is_snapshot=is_snapshot))
    assert numbers(await store.read("r", 0)) == [0]
    assert numbers(await store.read("r", 2)) == [0, 1, 2]
    assert numbers(await store.read("r", 3)) == [3]
    assert numbers(await store.read("r", 4)) == [3, 4]
    assert numbers(await store.read("r")) == [3, 4]
    assert numbers((await store.open("r")).records) == [3, 4]
    assert await store.read("r", 5) == []
    assert await store.read("r", -1) == []


@rule
async def a_chain_with_a_missing_record_is_reported(store: Store) -> None:
    # A delta without its base: a store that skipped the gap would return a state that never
    # existed.
    for number in (0, 2, 3):
        await store.rewrite("r", insert=record("r", number, is_snapshot=number == 0))
    for unreadable in (2, 3, None):
        with refused(CheckpointCorrupt, "'r'"):
            await store.read("r", unreadable)
    with refused(CheckpointCorrupt, "'r'"):
        await store.open("r")
    assert numbers(await store.read("r", 0)) == [0]
    assert numbers(await store.history("r")) == [0, 2, 3]


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
    await store.rewrite("r", insert=record("r", 9), remove=[3])
    assert numbers(await store.history("r", after=2)) == [4, 9]
