"""Rules for the list of runs, and for searching it."""

from __future__ import annotations

from stepwell.storage.filters import ALL_RUNS, RunFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, RunEntry, RunMetadata
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    append_all,
    check_refused_appends,
    on,
    record,
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
    await acquire(store, "r")
    await store.send("s", "k", text(1))
    await store.write_log("t", 0, "k", text(1))
    assert await store.runs(ALL_RUNS) == []


@rule
async def a_run_is_listed_with_its_newest_record(store: Store) -> None:
    first = record("r", 0, at=on(1))
    await store.append(first)
    assert await store.runs() == [run_entry(first)]
    second = record("r", 1, at=on(2), status="waiting", iteration=7, checkpoint_id="second", is_snapshot=False)
    await store.append(second)
    assert await store.runs() == [run_entry(second, began=on(1))]
    await store.close()
    assert await store.runs() == [run_entry(second, began=on(1))]


@rule
async def runs_are_listed_latest_start_first(store: Store) -> None:
    for run_id, number, day in [("b", 0, 2), ("a", 0, 3), ("d", 0, 1), ("c", 0, 2), ("d", 1, 9)]:
        await store.append(record(run_id, number, at=on(day)))
    assert await run_ids(store) == ["a", "c", "b", "d"]
    await store.append(record("e", 0, at="2026-01-03T00:00:00.000001+00:00"))
    assert await run_ids(store) == ["e", "a", "c", "b", "d"]


@rule
async def runs_with_odd_names_are_listed_and_paged_in_one_order(store: Store) -> None:
    await append_all(store, (record(name, 0, workflow=f"w{name}", at=on(1)) for name in ODD_IDS))
    assert await run_ids(store) == await read_pages(store, 4) == sorted(ODD_IDS, reverse=True)
    await check_searches(store, *((RunFilter(workflow=f"w{name}"), [name]) for name in ODD_IDS))


async def read_pages(store: Store, limit: int) -> list[str]:
    runs: list[RunEntry] = []
    while page := await store.runs(past=runs[-1] if runs else None, limit=limit):
        assert len(page) <= limit
        runs += page
    return [run.run_id for run in runs]


async def check_searches(store: Store, *searches: tuple[RunFilter, list[str]]) -> None:
    """Check which runs are found by each filter, and in which order."""
    for run_filter, expected in searches:
        assert [run.run_id for run in await store.runs(run_filter)] == expected, run_filter


@rule
async def runs_are_listed_in_pages(store: Store) -> None:
    await append_all(store, (record(f"r{n}", 0, at=on(1 + n // 4)) for n in range(10)))
    everything = [f"r{n}" for n in reversed(range(10))]
    for limit in (1, 3, 10, 11):
        assert await read_pages(store, limit) == everything
    assert await store.runs(limit=0) == []
    first = await store.runs(limit=3)
    assert [run.run_id for run in await store.runs(past=first[-1])] == everything[3:]


@rule
async def a_page_starts_after_the_last_one_even_if_its_last_run_changed(store: Store) -> None:
    await append_all(store, (record(f"r{n}", 0, at=on(n + 1)) for n in range(6)))
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
async def runs_are_found_by_their_ids(store: Store) -> None:
    await append_all(store, (record(name, 0, at=on(1)) for name in ODD_IDS))
    await store.append(record("r0", 0, at=on(2), status="done"))
    newest_first = ["r0", *sorted(ODD_IDS, reverse=True)]
    await check_searches(
        store,
        (RunFilter(ids=()), []),
        (RunFilter(ids=("r0",)), ["r0"]),
        (RunFilter(ids=("unknown", "r0", "r")), ["r0"]),
        (RunFilter(ids=tuple(newest_first)), newest_first),
        (RunFilter(ids=tuple(newest_first), status="done"), ["r0"]),
    )
    (second,) = await store.runs(RunFilter(ids=(newest_first[1],)))
    rest = await store.runs(RunFilter(ids=tuple(newest_first)), past=second, limit=1)
    assert [run.run_id for run in rest] == newest_first[2:3]


@rule
async def runs_are_found_by_workflow_status_and_tags(store: Store) -> None:
    for n, (workflow, status, team) in enumerate(
        [("w", "done", "red"), ("w", "waiting", "red"), ("v", "done", "blue"), ("w", "done", "blue")]
    ):
        effects = CommitEffects(metadata=run_metadata(team=team, even=str(n % 2 == 0)))
        await store.append(record(f"r{n}", 0, workflow=workflow, status=status, at=on(n + 1)), effects)
    await check_searches(
        store,
        (RunFilter(workflow="w"), ["r3", "r1", "r0"]),
        (RunFilter(status="done"), ["r3", "r2", "r0"]),
        (RunFilter(workflow="w", status="done"), ["r3", "r0"]),
        (RunFilter(tags={"team": "red"}), ["r1", "r0"]),
        (RunFilter(tags={"team": "red", "even": "True"}), ["r0"]),
        (RunFilter(tags={"team": "blue"}, workflow="w", status="done"), ["r3"]),
        (RunFilter(tags={}), ["r3", "r2", "r1", "r0"]),
        (RunFilter(tags={"team": "green"}), []),
        (RunFilter(tags={"unknown": "red"}), []),
        (RunFilter(tags={"team": "red", "unknown": ""}), []),
        (RunFilter(tags={"TEAM": "red"}), []),
        (RunFilter(workflow="none"), []),
        (RunFilter(status="none"), []),
    )


@rule
async def pages_contain_only_matching_runs(store: Store) -> None:
    for n in range(12):
        kind, status = ("odd" if n % 2 else "even"), ("done" if n % 3 == 0 else "waiting")
        made = record(f"r{n:02}", 0, workflow=kind, status=status, at=on(n + 1))
        await store.append(made, CommitEffects(metadata=run_metadata(kind=kind)))
    for run_filter, limit, expected in [
        (RunFilter(tags={"kind": "odd"}), 4, ["r11", "r09", "r07", "r05", "r03", "r01"]),
        (RunFilter(workflow="even"), 2, ["r10", "r08", "r06", "r04"]),
        (RunFilter(status="done"), 2, ["r09", "r06", "r03", "r00"]),
    ]:
        first = await store.runs(run_filter, limit=limit)
        second = await store.runs(run_filter, past=first[-1], limit=limit)
        assert [run.run_id for run in (*first, *second)] == expected, run_filter


@rule
async def the_status_of_a_run_is_that_of_its_newest_record(store: Store) -> None:
    for number, status in enumerate(["running", "waiting", "running"]):
        await store.append(record("r", number, status=status))
        found = {each: await run_ids(store, status=each) for each in ("running", "waiting")}
        assert found == {"running": [], "waiting": [], status: ["r"]}


@rule
async def tags_stay_until_they_are_replaced(store: Store) -> None:
    red, blue, none = run_metadata(team="red", ticket="1"), run_metadata(team="blue"), RunMetadata()
    for number, (change, expected) in enumerate([(red, red), (None, red), (blue, blue), (none, none)]):
        await store.append(record("r", number), CommitEffects(metadata=change))
        assert [run.metadata for run in await store.runs()] == [expected]
        for tag in ({"team": "red"}, {"ticket": "1"}, {"team": "blue"}):
            assert await run_ids(store, tags=tag) == (["r"] if tag.items() <= expected.tags.items() else []), tag


@rule
async def tags_with_odd_names_and_values_are_kept_apart(store: Store) -> None:
    tags = {name: f"{name}!" for name in ODD_IDS}
    await store.append(record("r", 0), CommitEffects(metadata=RunMetadata(tags)))
    for name in ODD_IDS:
        await store.append(record(f"run of {name}", 0), CommitEffects(metadata=RunMetadata({"name": name})))
    assert (await store.runs(RunFilter(tags=tags)))[0].metadata == RunMetadata(tags)
    for name in ODD_IDS:
        by_value, by_name = RunFilter(tags={"name": name}), RunFilter(tags={name: f"{name}!"})
        await check_searches(store, (by_value, [f"run of {name}"]), (by_name, ["r"]))


@rule
async def sub_workflow_runs_are_listed_only_on_request(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    await store.append(record("inner", 0, at=on(2)), CommitEffects(metadata=run_metadata("r", team="red")))
    await store.append(record("inner", 1, at=on(3)))
    await check_searches(
        store,
        (RunFilter(), ["r"]),
        (RunFilter(workflow="w"), ["r"]),
        (RunFilter(tags={"team": "red"}), []),
        (ALL_RUNS, ["inner", "r"]),
        (RunFilter(children=True, tags={"team": "red"}), ["inner"]),
    )
    assert (await store.runs(ALL_RUNS))[0].metadata == run_metadata("r", team="red")
    assert await store.runs(limit=1) == [run_entry(record("r", 0, at=on(1)))]


@rule
async def a_refused_append_does_not_change_the_list_of_runs(store: Store) -> None:
    await check_refused_appends(store, CommitEffects(metadata=run_metadata("x", team="blue")))
    assert [run.metadata for run in await store.runs()] == [run_metadata(team="red")]
    assert await run_ids(store, tags={"team": "blue"}) == []


@rule
async def an_inserted_record_is_listed_if_it_is_the_newest(store: Store) -> None:
    red, blue, green = (run_metadata(team=team) for team in ("red", "blue", "green"))
    fifth, again, last = (
        record("r", 5, at=on(5), status="waiting"),
        record("r", 5, at=on(6), status="failed", checkpoint_id="again", iteration=3),
        record("r", 9, at=on(9)),
    )
    for inserted, effects, newest, metadata in [
        (fifth, CommitEffects(metadata=red), fifth, red),
        (record("r", 2, at=on(2), status="done"), None, fifth, red),
        (again, NO_EFFECTS, again, red),
        (last, CommitEffects(metadata=blue), last, blue),
        (record("r", 3, at=on(3)), CommitEffects(metadata=green), last, green),
    ]:
        await store.rewrite("r", insert=inserted, effects=effects)
        listed = [run_entry(newest, began=on(5), metadata=metadata)]
        assert await store.runs() == await store.runs(RunFilter(tags=metadata.tags)) == listed


@rule
async def after_a_removal_the_newest_remaining_record_is_listed(store: Store) -> None:
    made = [record("r", n, at=on(n + 1), status=f"s{n}") for n in range(5)]
    red = run_metadata(team="red")
    await store.append(made[0], CommitEffects(metadata=red))
    await append_all(store, made[1:])
    for removed, effects, newest in [([0], None, 4), ([4], NO_EFFECTS, 3), ([3, 2], NO_EFFECTS, 1)]:
        assert await store.rewrite("r", remove=removed, effects=effects) == len(removed)
        listed = [run_entry(made[newest], began=on(1), metadata=red)]
        assert await store.runs() == await store.runs(RunFilter(status=f"s{newest}")) == listed
    assert await store.rewrite("r", remove=[1], effects=NO_EFFECTS) == 1
    assert await store.runs(ALL_RUNS) == await store.runs(RunFilter(tags={"team": "red"})) == []
    restarted = record("r", 0, at=on(9), workflow="another")
    await store.append(restarted)
    assert await store.runs() == [run_entry(restarted)]


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
    expected = {}
    for number, name in enumerate(ODD_IDS):
        metadata = run_metadata("caller" if number % 2 else None, team=name or "none")
        newest = record(name, 1, at=on(2), status="done", workflow=f"w{name}")
        await store.append(record(name, 0, at=on(1), workflow=f"w{name}"), CommitEffects(metadata=metadata))
        await store.append(newest)
        expected[name] = run_entry(newest, began=on(1), metadata=metadata)
    assert {name: await store.run(name) for name in ODD_IDS} == expected
    assert await store.run("none") is None
    await acquire(store, "acquired")
    assert await store.run("acquired") is None


@rule
async def runs_are_found_by_id_prefix(store: Store) -> None:
    # Besides the odd ids: the escape character of the PostgreSQL store, and both ends of the
    # surrogate gap, where the "next" character after a prefix is not a valid one.
    for name in [*ODD_IDS, "a\x10b", "a\x101b", "\U0010ffff", "\ud7ff", "\ue000"]:
        metadata = run_metadata("caller" if name == "run" else None, of="all")
        await store.append(record(name, 0), CommitEffects(metadata=metadata))
    every = await store.runs(ALL_RUNS)
    for prefix in ["", "a", "a\0", "a\x10", "x" * 299, "Ru", "é", "none", ".", "\U0010ffff", "\ud7ff", "run"]:
        for tags in ({}, {"of": "all"}):
            found = await store.runs(RunFilter(children=True, tags=tags, prefix=prefix))
            assert found == [run for run in every if run.run_id.startswith(prefix)]
    assert await store.runs(RunFilter(prefix="run")) == []
    assert [run.run_id for run in await store.runs(RunFilter(prefix="x"), limit=1)] == ["x" * 299 + "y"]


@rule
async def runs_are_found_by_start_and_change_times(store: Store) -> None:
    starts = [record(f"r{day}", 0, at=on(day)) for day in range(1, 7)]
    await append_all(store, starts, CommitEffects(metadata=run_metadata(of="all")))
    await store.append(record("r1", 1, at=on(9)))
    for tags in ({}, {"of": "all"}):
        await check_searches(
            store,
            (RunFilter(tags=tags, since=on(5)), ["r6", "r5"]),
            (RunFilter(tags=tags, until=on(3)), ["r2", "r1"]),
            (RunFilter(tags=tags, since=on(2), until=on(4)), ["r3", "r2"]),
            (RunFilter(tags=tags, changed_since=on(6)), ["r6", "r1"]),
            (RunFilter(tags=tags, changed_until=on(3)), ["r2"]),
            (RunFilter(tags=tags, changed_since=on(9), since=on(2)), []),
        )
    since = RunFilter(since=on(2))
    first = await store.runs(since, limit=2)
    assert [run.run_id for run in await store.runs(since, past=first[-1])] == ["r4", "r3", "r2"]


@rule
async def runs_are_found_by_their_owner_and_by_when_they_can_be_driven(store: Store) -> None:
    for n, (run_id, wake) in enumerate([("early", on(1)), ("late", on(20)), ("never", None), ("asked", None)]):
        status = "moving" if wake else "resting"
        metadata = RunMetadata({"of": "all", "name": run_id, 'quo"ted': "a%b_c"})
        await store.append(record(run_id, 0, at=on(1 + n), status=status), CommitEffects(wake=wake, metadata=metadata))
    await store.append(
        record("child", 0, at=on(9)), CommitEffects(wake=on(1), metadata=run_metadata("early", of="all"))
    )
    await store.send("asked", "k", text(1))
    await acquire(store, "late")
    for tags in ({}, {"of": "all"}, {"of": "all", 'quo"ted': "a%b_c"}):
        await check_searches(
            store,
            (RunFilter(tags=tags, owned=True), ["late"]),
            (RunFilter(tags=tags, due_by=on(20)), ["asked", "late", "early"]),
            (RunFilter(tags=tags, due_by=on(19), prefix="a"), ["asked"]),
            (RunFilter(tags=tags, due_by=on(19)), ["asked", "early"]),
            (RunFilter(tags=tags, due_by=on(19), status="moving"), ["early"]),
            (RunFilter(tags=tags, due_by=on(19), text="ASK"), ["asked"]),
            (RunFilter(tags=tags, asleep_at=on(1)), ["late"]),
            (RunFilter(tags=tags, asleep_at=on(1), owned=True, status="resting"), []),
        )
    await check_searches(
        store,
        (RunFilter(due_by=on(19), tags={"of": "all", "name": "early"}), ["early"]),
        (RunFilter(tags={"name": "late", "of": "all"}, status="moving", workflow="w"), ["late"]),
        (RunFilter(tags={"name": "late", "of": "none"}), []),
        (RunFilter(text='UO"T', owned=True), ["late"]),
        (RunFilter(text="a%b_c", owned=True), ["late"]),
        (RunFilter(text="a%c"), []),
    )
    first = await store.runs(RunFilter(due_by=on(20)), limit=1)
    assert [run.run_id for run in await store.runs(RunFilter(due_by=on(20)), past=first[0], limit=1)] == ["late"]


@rule
async def runs_are_found_by_text_in_id_workflow_and_tags(store: Store) -> None:
    for made, metadata in [
        (record("Order-1", 0, at=on(1)), run_metadata(customer="Ada Lovelace", city="Zürich")),
        (record("r2", 0, at=on(2), workflow="Refund order"), run_metadata(ORDER="x")),
        (record("r3", 0, at=on(3)), run_metadata(team="red%_\\")),
        (record("r4", 0, at=on(4), body="order"), RunMetadata()),
    ]:
        await store.append(made, CommitEffects(metadata=metadata))
    await check_searches(
        store,
        (RunFilter(text="order"), ["r2", "Order-1"]),
        (RunFilter(text="ORDER"), ["r2", "Order-1"]),
        (RunFilter(text="lace"), ["Order-1"]),
        (RunFilter(text="zürich"), ["Order-1"]),
        (RunFilter(text="ZÜRICH"), []),  # case is ignored for A to Z only
        (RunFilter(text="d%_\\"), ["r3"]),
        (RunFilter(text="%"), ["r3"]),
        (RunFilter(text="team"), ["r3"]),
        (RunFilter(text="teamred"), []),
        (RunFilter(text="{"), []),
        (RunFilter(text="order", workflow="w"), ["Order-1"]),
        (RunFilter(text=""), ["r4", "r3", "r2", "Order-1"]),
    )
