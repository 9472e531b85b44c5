"""Rules for the records of runs: appending, opening and reading them."""

from __future__ import annotations

import asyncio

from stepwell.errors import CheckpointCorrupt, CommitConflict, RunBusy
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, LogRow, Record, SignalRow
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    append_all,
    check_refused_appends,
    expect_error,
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
    run_ids,
    run_metadata,
    signals_of,
    text,
    wakes,
)

# -------------------------------------------------------------------- appending


@rule
async def an_empty_store_has_no_records(store: Store) -> None:
    opened = await store.open("r")
    assert (*await store.read("r"), *await store.read("r", 0), *await store.history("r"), *opened.records) == ()
    assert (*opened.log, *await store.numbers("r"), *await store.checkpoints()) == ()
    assert (await store.locate("c"), await store.locate(id_of("r", 0))) == (None, None)
    assert await store.rewrite("r", remove=[0]) == 0


@rule
async def the_last_appended_record_is_the_head(store: Store) -> None:
    for each in (record("r", 0), record("r", 1, status="done", outputs=True, is_snapshot=False)):
        await store.append(each)
        assert meaning(await head(store, "r")) == meaning(each)


@rule
async def a_body_is_read_back_unchanged(store: Store) -> None:
    # Everything that a round trip through a JSON parser, or through jsonb, would change.
    body = (
        '{"b":1.10,"a":-0.0,"big":123456789012345678901234567890,"e":1e400,"n":[null,[],{}],'
        '"u":"é\\u00e9日\\ud83d\\ude00"}'
    ).encode()
    await store.append(Record(record("r", 0).entry, body))
    for records in (await store.read("r"), await store.history("r"), (await store.open("r")).records):
        assert [each.body for each in records] == [body]


@rule
async def a_large_body_is_read_back_unchanged(store: Store) -> None:
    large = record("r", 0, body=["x" * 1000] * 3000)
    await store.append(large)
    assert meaning(await head(store, "r")) == meaning(large)


@rule
async def a_record_number_is_used_once(store: Store) -> None:
    await fill(store, "r", 2)
    for number in (0, 1, 3):  # taken, taken, and one that leaves a gap
        await expect_error(CommitConflict, store.append(record("r", number, body="other")), "'r'")
    assert meanings(await store.history("r")) == meanings([record("r", 0), record("r", 1)])


@rule
async def a_new_run_starts_with_number_0(store: Store) -> None:
    await expect_error(CommitConflict, store.append(record("r", 1)))
    assert await store.read("r") == []


@rule
async def concurrent_appends_of_one_number_have_one_winner(store: Store) -> None:
    candidates = [record("r", 0, body=n, checkpoint_id=f"c{n}") for n in range(20)]
    outcomes = await asyncio.gather(*map(store.append, candidates), return_exceptions=True)
    winners = [candidate for candidate, outcome in zip(candidates, outcomes, strict=True) if outcome is None]
    assert (len(winners), sum(isinstance(outcome, CommitConflict) for outcome in outcomes)) == (1, 19)
    assert meanings(await store.history("r")) == meanings(winners)


@rule
async def a_run_belongs_to_one_workflow(store: Store) -> None:
    await store.append(record("r", 0, workflow="one"))
    first, second = record("r", 0, workflow="two"), record("r", 1, workflow="two")
    await expect_error(CommitConflict, store.append(second), "another id")
    await expect_error(CommitConflict, store.rewrite("r", insert=first, effects=NO_EFFECTS), "another id")
    await expect_error(CommitConflict, store.rewrite("r", replace=[first]), "another id")
    assert meanings(await store.history("r")) == meanings([record("r", 0, workflow="one")])
    assert await run_ids(store, workflow="two") == []


@rule
async def runs_and_workflows_with_odd_names_are_kept_apart(store: Store) -> None:
    made = {}
    for name in ODD_IDS:
        first = record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}")
        made[name] = first, record(name, 1, workflow=f"w{name}", body=name, is_snapshot=False)
        await append_all(store, made[name])
        await store.write_log(name, 1, name, text(name))
    for name, (first, second) in made.items():
        for records in (await store.read(name), (await store.open(name)).records):
            assert meanings(records) == meanings([first, second])
        assert (await store.locate(f"c{name}"), await store.locate(id_of(name, 1))) == (first.entry, second.entry)
        assert await logged(store, name, 1) == {name: text(name)}
        assert await store.numbers(name) == [0, 1]


@rule
async def a_refused_append_leaves_no_trace(store: Store) -> None:
    await store.send("new", "k", text(1))
    effects = CommitEffects(
        consumed=("k", "other"), asked=(question("new", "q"),), wake=on(1), metadata=run_metadata(team="red")
    )
    await check_refused_appends(store, effects)
    assert await signals_of(store, "new") == [("k", text(1))]
    assert (await store.run("new"), await store.locate(id_of("new", 1))) == (None, None)
    assert list((await store.survey()).runs) == await store.runs()
    assert await store.numbers("new") == []
    assert await store.send("new", "other", text(2))
    assert not await store.drop("new")
    # Nobody holds a lease, and the run may still belong to any workflow.
    await acquire(store, "new")
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
    assert (await logged(store, "r", 1), await store.pending_signals("r")) == ({}, [])
    assert await store.requests() == [question("r", "next")]
    assert await wakes(store) == {"r": "2026-01-01"}


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
    await append_all(store, (record("r", number, is_snapshot=number < 2) for number in range(4)))
    for place, key in [(2, "a"), (3, "b"), (3, "a")]:
        await store.write_log("r", place, key, text(f"{place}{key}"))
    for key in ("second", "first", "used"):
        await store.send("r", key, text(key))
    await store.append(record("r", 4, is_snapshot=False), CommitEffects(consumed=("used",)))
    await fill(store, "s", 2)
    await store.write_log("s", 1, "a", text("of s"))
    await store.send("s", "first", text("of s"))
    opened = await store.open("r")
    expected = meanings([record("r", number, is_snapshot=number == 1) for number in range(1, 5)])
    assert meanings(opened.records) == meanings(await store.read("r")) == expected
    assert sorted(opened.log, key=lambda row: (row.place, row.key)) == [
        LogRow(2, "a", text("2a")),
        LogRow(3, "a", text("3a")),
        LogRow(3, "b", text("3b")),
    ]
    assert list(opened.signals) == [SignalRow("second", text("second")), SignalRow("first", text("first"))]
    assert opened.fence is None


@rule
async def an_opened_run_with_outputs_does_not_deny_them(store: Store) -> None:
    await store.append(record("r", 0, outputs=True))
    await fill(store, "s", 1)
    await store.rewrite("s", insert=record("s", 1, outputs=True), effects=CommitEffects())
    for run_id, number in (("r", 1), ("r", 2), ("s", 2)):
        await store.append(record(run_id, number))
    for run_id in ("r", "s"):
        assert (await store.open(run_id, owner=this_process("mine"), seconds=60)).has_outputs


@rule
async def a_run_without_records_can_be_opened(store: Store) -> None:
    await store.write_log("r", 0, "k", text(1))
    await store.send("r", "k", text(2))
    opened = await store.open("r", owner=this_process("mine"), seconds=60)
    assert (*opened.records, *opened.log, *opened.signals) == (LogRow(0, "k", text(1)), SignalRow("k", text(2)))
    fence = (await store.open("new", owner=this_process("mine"), seconds=60)).fence
    assert fence is not None
    assert await store.run("new") is None
    assert (*await run_ids(store, children=True), *(await store.survey()).runs) == ()
    await store.append(record("new", 0), CommitEffects(fence=fence))
    await expect_error(RunBusy, store.open("new", owner=this_process("other"), seconds=60))


@rule
async def an_opened_run_is_read_at_one_moment(store: Store) -> None:
    await fill(store, "r", 1)
    for number in range(1, 6):
        await store.send("r", str(number), text(number))
        await store.write_log("r", number, "k", text(number))
        writing = store.append(record("r", number), CommitEffects(consumed=(str(number),), drop_log_through=number))
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
    await append_all(store, (record("r", number, is_snapshot=number in (0, 3)) for number in range(5)))
    chains = {0: [0], 2: [0, 1, 2], 3: [3], 4: [3, 4], None: [3, 4], 5: [], -1: []}
    assert {number: numbers(await store.read("r", number)) for number in chains} == chains
    assert numbers((await store.open("r")).records) == [3, 4]


@rule
async def a_chain_with_a_missing_record_is_reported(store: Store) -> None:
    # A delta without its base: a store that skipped the gap would return a state that never
    # existed.
    for number in (0, 2, 3):
        await store.rewrite("r", insert=record("r", number, is_snapshot=number == 0))
    for unreadable in (2, 3, None):
        await expect_error(CheckpointCorrupt, store.read("r", unreadable), "'r'")
    await expect_error(CheckpointCorrupt, store.open("r"), "'r'")
    assert numbers(await store.read("r", 0)) == [0]
    assert numbers(await store.history("r")) == [0, 2, 3]


@rule
async def history_is_oldest_first_up_to_a_number(store: Store) -> None:
    await append_all(store, (record("r", number, outputs=number in (1, 3)) for number in range(5)))
    for upto, every, with_outputs in [(None, [0, 1, 2, 3, 4], [1, 3]), (2, [0, 1, 2], [1]), (-1, [], [])]:
        assert numbers(await store.history("r", upto=upto)) == every, f"{upto=}"
        assert numbers(await store.history("r", upto=upto, outputs_only=True)) == with_outputs, f"{upto=}"


@rule
async def history_starts_after_a_number(store: Store) -> None:
    await append_all(store, (record("r", number, outputs=number in (1, 3)) for number in range(5)))
    for after, upto, expected in [
        (1, None, [2, 3, 4]),
        (1, 3, [2, 3]),
        (-1, None, [0, 1, 2, 3, 4]),
        (4, None, []),
        (3, 1, []),
        (70, None, []),
    ]:
        assert numbers(await store.history("r", after=after, upto=upto)) == expected, f"{after=}, {upto=}"
    assert numbers(await store.history("r", after=1, outputs_only=True)) == [3]
    assert await store.history("nobody", after=0) == []
    await store.rewrite("r", insert=record("r", 9), remove=[3])
    assert numbers(await store.history("r", after=2)) == [4, 9]
