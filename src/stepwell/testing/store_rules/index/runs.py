"""Rules for the list of runs, and for searching it."""

from __future__ import annotations

from stepwell.errors import CommitConflict
from stepwell.storage.filters import EVERY_RUN, RunFilter
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, RunEntry, RunMetadata
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    on,
    record,
    refused,
    run_entry,
    run_ids,
    run_metadata,
    text,
)

# -------------------------------------------------------------------- the list of runs


@rule
async def a_store_without_records_lists_no_runs(store: Store) -> None:
    assert await store.runs() == []
    # All of this may exist before the first commit.
    await store.acquire("r", this_process("mine"), seconds=60)
    await store.send("s", "k", text(1))
    await store.write_log("t", 0, "k", text(1))
    assert await store.runs(EVERY_RUN) == []


@rule
async def a_run_is_listed_with_its_newest_record(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    assert await store.runs() == [run_entry(record("r", 0, at=on(1)))]
    second = record("r", 1, at=on(2), status="waiting", iteration=7, checkpoint_id="second", is_snapshot=False)
    await store.append(second)
    assert await store.runs() == [run_entry(second, began=on(1))]
    await store.close()
    assert await store.runs() == [run_entry(second, began=on(1))]


@rule
async def runs_are_listed_latest_start_first(store: Store) -> None:
    for run_id, day in [("b", 2), ("a", 3), ("d", 1), ("c", 2)]:
        await store.append(record(run_id, 0, at=on(day)))
    await store.append(record("d", 1, at=on(9)))
    assert await run_ids(store) == ["a", "c", "b", "d"]
    await store.append(record("e", 0, at="2026-01-03T00:00:00.000001+00:00"))
    assert await run_ids(store) == ["e", "a", "c", "b", "d"]


@rule
async def runs_with_odd_names_are_listed_and_paged_in_one_order(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=f"w{name}", at=on(1)))
    expected = sorted(ODD_IDS, reverse=True)
    assert await run_ids(store) == expected
    assert await read_pages(store, 4) == expected
    for name in ODD_IDS:
        assert await run_ids(store, workflow=f"w{name}") == [name]


async def read_pages(store: Store, limit: int) -> list[str]:
    ids: list[str] = []
    past: RunEntry | None = None
    while page := await store.runs(past=past, limit=limit):
        assert len(page) <= limit
        ids += [run.run_id for run in page]
        past = page[-1]
    return ids


@rule
async def runs_are_listed_in_pages(store: Store) -> None:
    for n in range(10):
        await store.append(record(f"r{n}", 0, at=on(1 + n // 4)))
    everything = [f"r{n}" for n in reversed(range(10))]
    for limit in (1, 3, 10, 11):
        assert await read_pages(store, limit) == everything
    assert await store.runs(limit=0) == []
    first = await store.runs(limit=3)
    assert [run.run_id for run in await store.runs(past=first[-1])] == everything[3:]


@rule
async def a_page_starts_after_the_last_one_even_if_its_last_run_changed(store: Store) -> None:
    for n in range(6):
        await store.append(record(f"r{n}", 0, at=on(n + 1)))
    page = await store.runs(limit=2)
    assert [run.run_id for run in page] == ["r5", "r4"]
    # A run changes, another starts, and then the last run of the page is dropped: the next page
    # stays the same.
    await store.append(record("r4", 1, at=on(20), status="done"))
    await store.append(record("new", 0, at=on(21)))
    assert [run.run_id for run in await store.runs(past=page[-1], limit=2)] == ["r3", "r2"]
    await store.drop("r4")
    assert [run.run_id for run in await store.runs(past=page[-1], limit=2)] == ["r3", "r2"]


@rule
async def runs_are_found_by_workflow_status_and_tags(store: Store) -> None:
    for n, (workflow, status, team) in enumerate(
        [("w", "done", "red"), ("w", "waiting", "red"), ("v", "done", "blue"), ("w", "done", "blue")]
    ):
        effects = CommitEffects(metadata=run_metadata(team=team, even=str(n % 2 == 0)))
        await store.append(record(f"r{n}", 0, workflow=workflow, status=status, at=on(n + 1)), effects)
    assert await run_ids(store, workflow="w") == ["r3", "r1", "r0"]
    assert await run_ids(store, status="done") == ["r3", "r2", "r0"]
    assert await run_ids(store, workflow="w", status="done") == ["r3", "r0"]
    assert await run_ids(store, tags={"team": "red"}) == ["r1", "r0"]
    assert await run_ids(store, tags={"team": "red", "even": "True"}) == ["r0"]
    assert await run_ids(store, tags={"team": "blue"}, workflow="w", status="done") == ["r3"]
    assert await run_ids(store, tags={}) == ["r3", "r2", "r1", "r0"]
    for nothing in ({"team": "green"}, {"unknown": "red"}, {"team": "red", "unknown": ""}, {"TEAM": "red"}):
        assert await run_ids(store, tags=nothing) == []
    assert await run_ids(store, workflow="none") == []
    assert await run_ids(store, status="none") == []


@rule
async def pages_contain_only_matching_runs(store: Store) -> None:
    for n in range(12):
        kind = "odd" if n % 2 else "even"
        status = "done" if n % 3 == 0 else "waiting"
        await store.append(
            record(f"r{n:02}", 0, workflow=kind, status=status, at=on(n + 1)),
            CommitEffects(metadata=run_metadata(kind=kind)),
        )
    odd, even, done = RunFilter(tags={"kind": "odd"}), RunFilter(workflow="even"), RunFilter(status="done")
    first = await store.runs(odd, limit=4)
    assert [run.run_id for run in first] == ["r11", "r09", "r07", "r05"]
    rest = await store.runs(odd, past=first[-1], limit=4)
    assert [run.run_id for run in rest] == ["r03", "r01"]
    first = await store.runs(even, limit=2)
    assert [run.run_id for run in await store.runs(even, past=first[-1], limit=2)] == ["r06", "r04"]
    first = await store.runs(done, limit=2)
    assert [run.run_id for run in await store.runs(done, past=first[-1], limit=9)] == ["r03", "r00"]


@rule
async def the_status_of_a_run_is_that_of_its_newest_record(store: Store) -> None:
    await store.append(record("r", 0, status="running"))
    await store.append(record("r", 1, status="waiting"))
    assert await run_ids(store, status="running") == []
    assert await run_ids(store, status="waiting") == ["r"]
    await store.append(record("r", 2, status="running"))
    assert await run_ids(store, status="running") == ["r"]
    assert await run_ids(store, status="waiting") == []


@rule
async def tags_stay_until_they_are_replaced(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(metadata=run_metadata(team="red", ticket="1")))
    await store.append(record("r", 1))
    assert (await store.runs())[0].metadata == run_metadata(team="red", ticket="1")
    await store.append(record("r", 2), CommitEffects(metadata=run_metadata(team="blue")))
    assert (await store.runs())[0].metadata == run_metadata(team="blue")
    assert await run_ids(store, tags={"team": "red"}) == []
    assert await run_ids(store, tags={"ticket": "1"}) == []
    assert await run_ids(store, tags={"team": "blue"}) == ["r"]
    await store.append(record("r", 3), CommitEffects(metadata=RunMetadata()))
    assert (await store.runs())[0].metadata == RunMetadata()
    assert await run_ids(store, tags={"team": "blue"}) == []


@rule
async def tags_with_odd_names_and_values_are_kept_apart(store: Store) -> None:
    tags = {name: f"{name}!" for name in ODD_IDS}
    await store.append(record("r", 0), CommitEffects(metadata=RunMetadata(tags)))
    for name in ODD_IDS:
        await store.append(record(f"run of {name}", 0), CommitEffects(metadata=RunMetadata({"name": name})))
    assert (await store.runs(RunFilter(tags=tags)))[0].metadata == RunMetadata(tags)
    for name in ODD_IDS:
        assert await run_ids(store, tags={"name": name}) == [f"run of {name}"]
        assert await run_ids(store, tags={name: f"{name}!"}) == ["r"]


@rule
async def sub_workflow_runs_are_listed_only_on_request(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    await store.append(record("inner", 0, at=on(2)), CommitEffects(metadata=run_metadata("r", team="red")))
    await store.append(record("inner", 1, at=on(3)))
    assert await run_ids(store) == ["r"]
    assert await run_ids(store, workflow="w") == ["r"]
    assert await run_ids(store, tags={"team": "red"}) == []
    assert await run_ids(store, children=True) == ["inner", "r"]
    assert await run_ids(store, children=True, tags={"team": "red"}) == ["inner"]
    assert (await store.runs(EVERY_RUN))[0].metadata == run_metadata("r", team="red")
    assert await store.runs(limit=1) == [run_entry(record("r", 0, at=on(1)))]


@rule
async def a_refused_append_does_not_change_the_list_of_runs(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)), CommitEffects(metadata=run_metadata(team="red")))
    for number, workflow in [(0, "w"), (2, "w"), (1, "another")]:
        stale = record("r", number, workflow=workflow, status="done", at=on(2))
        with refused(CommitConflict):
            await store.append(stale, CommitEffects(metadata=run_metadata("x", team="blue")))
    with refused(CommitConflict):
        await store.append(record("new", 1), CommitEffects(metadata=run_metadata(team="blue")))
    assert await store.runs(EVERY_RUN) == [run_entry(record("r", 0, at=on(1)), metadata=run_metadata(team="red"))]
    assert await run_ids(store, tags={"team": "blue"}) == []


@rule
async def an_inserted_record_is_listed_if_it_is_the_newest(store: Store) -> None:
    fifth = record("r", 5, at=on(5), status="waiting")
    await store.rewrite("r", insert=fifth, effects=CommitEffects(metadata=run_metadata(team="red")))
    assert await store.runs() == [run_entry(fifth, metadata=run_metadata(team="red"))]
    await store.rewrite("r", insert=record("r", 2, at=on(2), status="done"))
    assert await store.runs() == [run_entry(fifth, began=on(5), metadata=run_metadata(team="red"))]
    again = record("r", 5, at=on(6), status="failed", checkpoint_id="again", iteration=3)
    await store.rewrite("r", insert=again, effects=NO_EFFECTS)
    assert await store.runs() == [run_entry(again, began=on(5), metadata=run_metadata(team="red"))]
    last = record("r", 9, at=on(9))
    await store.rewrite("r", insert=last, effects=CommitEffects(metadata=run_metadata(team="blue")))
    assert await store.runs() == [run_entry(last, began=on(5), metadata=run_metadata(team="blue"))]
    green = CommitEffects(metadata=run_metadata(team="green"))
    await store.rewrite("r", insert=record("r", 3, at=on(3)), effects=green)
    assert await store.runs(RunFilter(tags={"team": "green"})) == [
        run_entry(last, began=on(5), metadata=run_metadata(team="green"))
    ]


@rule
async def after_a_removal_the_newest_remaining_record_is_listed(store: Store) -> None:
    made = [record("r", n, at=on(n + 1), status=f"s{n}") for n in range(5)]
    red = run_metadata(team="red")
    for each in made:
        await store.append(each, CommitEffects(metadata=red if each is made[0] else None))
    assert await store.rewrite("r", remove=[0]) == 1
    assert await store.runs() == [run_entry(made[4], began=on(1), metadata=red)]
    assert await store.rewrite("r", remove=[4], effects=NO_EFFECTS) == 1
    assert await store.runs() == [run_entry(made[3], began=on(1), metadata=red)]
    assert await store.rewrite("r", remove=[3, 2], effects=NO_EFFECTS) == 2
    assert await store.runs(RunFilter(status="s1")) == [run_entry(made[1], began=on(1), metadata=red)]
    assert await store.rewrite("r", remove=[1], effects=NO_EFFECTS) == 1
    assert await store.runs(EVERY_RUN) == []
    assert await store.runs(RunFilter(tags={"team": "red"})) == []
    await store.append(record("r", 0, at=on(9), workflow="another"))
    assert await store.runs() == [run_entry(record("r", 0, at=on(9), workflow="another"))]


@rule
async def a_replaced_record_is_listed_if_it_is_the_newest(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    await store.append(record("r", 1, at=on(2), is_snapshot=False))
    whole = record("r", 1, at=on(2), status="done", checkpoint_id="whole", iteration=8)
    assert await store.rewrite("r", remove=[0], replace=[whole]) == 1
    assert await store.runs() == [run_entry(whole, began=on(1))]


# -------------------------------------------------------------------- searching


@rule
async def a_run_is_found_by_its_id(store: Store) -> None:
    for number, name in enumerate(ODD_IDS):
        metadata = run_metadata("caller" if number % 2 else None, team=name or "none")
        await store.append(record(name, 0, at=on(1), workflow=f"w{name}"), CommitEffects(metadata=metadata))
        await store.append(record(name, 1, at=on(2), status="done", workflow=f"w{name}"))
    for number, name in enumerate(ODD_IDS):
        metadata = run_metadata("caller" if number % 2 else None, team=name or "none")
        newest = record(name, 1, at=on(2), status="done", workflow=f"w{name}")
        assert await store.run(name) == run_entry(newest, began=on(1), metadata=metadata)
    assert await store.run("none") is None
    await store.acquire("acquired", this_process("mine"), seconds=60)
    assert await store.run("acquired") is None


@rule
async def runs_are_found_by_id_prefix(store: Store) -> None:
    # Besides the odd ids: the escape character of the PostgreSQL store, and both ends of the
    # surrogate gap, where the "next" character after a prefix is not a valid one.
    for name in [*ODD_IDS, "a\x10b", "a\x101b", "\U0010ffff", "\ud7ff", "\ue000"]:
        await store.append(
            record(name, 0), CommitEffects(metadata=run_metadata("caller" if name == "run" else None, of="all"))
        )
    every = await store.runs(EVERY_RUN)
    for prefix in ["", "a", "a\0", "a\x10", "x" * 299, "Ru", "é", "none", ".", "\U0010ffff", "\ud7ff", "run"]:
        for tags in ({}, {"of": "all"}):
            found = await store.runs(RunFilter(children=True, tags=tags, prefix=prefix))
            assert found == [run for run in every if run.run_id.startswith(prefix)]
    assert await store.runs(RunFilter(prefix="run")) == []
    assert [run.run_id for run in await store.runs(RunFilter(prefix="x"), limit=1)] == ["x" * 299 + "y"]


@rule
async def runs_are_found_by_start_and_change_times(store: Store) -> None:
    for day in range(1, 7):
        await store.append(record(f"r{day}", 0, at=on(day)), CommitEffects(metadata=run_metadata(of="all")))
    await store.append(record("r1", 1, at=on(9)))
    for tags in ({}, {"of": "all"}):
        assert await run_ids(store, tags=tags, since=on(5)) == ["r6", "r5"]
        assert await run_ids(store, tags=tags, until=on(3)) == ["r2", "r1"]
        assert await run_ids(store, tags=tags, since=on(2), until=on(4)) == ["r3", "r2"]
        assert await run_ids(store, tags=tags, changed_since=on(6)) == ["r6", "r1"]
        assert await run_ids(store, tags=tags, changed_until=on(3)) == ["r2"]
        assert await run_ids(store, tags=tags, changed_since=on(9), since=on(2)) == []
    since = RunFilter(since=on(2))
    first = await store.runs(since, limit=2)
    assert [run.run_id for run in await store.runs(since, past=first[-1])] == ["r4", "r3", "r2"]


@rule
async def runs_are_found_by_text_in_id_workflow_and_tags(store: Store) -> None:
    await store.append(
        record("Order-1", 0, at=on(1)), CommitEffects(metadata=run_metadata(customer="Ada Lovelace", city="Zürich"))
    )
    await store.append(
        record("r2", 0, at=on(2), workflow="Refund order"), CommitEffects(metadata=run_metadata(ORDER="x"))
    )
    await store.append(record("r3", 0, at=on(3)), CommitEffects(metadata=run_metadata(team="red%_\\")))
    await store.append(record("r4", 0, at=on(4), body="order"))

    assert await run_ids(store, text="order") == await run_ids(store, text="ORDER") == ["r2", "Order-1"]
    assert await run_ids(store, text="lace") == ["Order-1"]
    assert await run_ids(store, text="zürich") == ["Order-1"]
    assert await run_ids(store, text="ZÜRICH") == []  # case is ignored for A to Z only
    assert await run_ids(store, text="d%_\\") == ["r3"]
    assert await run_ids(store, text="%") == ["r3"]
    assert await run_ids(store, text="team") == ["r3"]
    assert await run_ids(store, text="teamred") == await run_ids(store, text="{") == []
    assert await run_ids(store, text="order", workflow="w") == ["Order-1"]
    assert await run_ids(store, text="") == ["r4", "r3", "r2", "Order-1"]
