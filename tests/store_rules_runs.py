"""What is true of every store about whole runs: how they are listed, and what of them is kept."""

import asyncio
from collections.abc import Mapping

import pytest

from holdfast.core.errors import CheckpointCorrupt, CommitConflict, RunBusy
from holdfast.durable.ownership import this_process
from holdfast.durable.ports import About, Along, Record, RunEntry, Store, Wake
from store_rules import ODD_IDS, Rule, fill, meaning, meanings, numbers, places, record
from store_rules_beside import question

RULES_RUNS: list[Rule] = []


def rule(function: Rule) -> Rule:
    RULES_RUNS.append(function)
    return function


def on(day: int) -> str:
    return f"2026-01-{day:02}T00:00:00+00:00"


def about(caller: str | None = None, **tags: str) -> About:
    return About(tags, caller)


def listed(newest: Record, *, began: str | None = None, about: About | None = None) -> RunEntry:
    """How a run is listed whose newest record that is."""
    e = newest.entry
    known = About() if about is None else about
    return RunEntry(e.run_id, e.workflow, e.status, e.number, e.checkpoint_id, e.iteration, e.at, began or e.at, known)


async def names(store: Store, *, tags: Mapping[str, str] | None = None, **asked: str | bool) -> list[str]:
    return [run.run_id for run in await store.runs(tags=tags, **asked)]  # type: ignore[arg-type]


# -------------------------------------------------------------------- the list of runs


@rule
async def a_store_without_records_lists_no_runs(store: Store) -> None:
    assert await store.runs() == []
    await store.claim("r", this_process("mine"), seconds=60)
    await store.post("s", "k", b"1")
    await store.remember("t", 0, "k", b"1")
    assert await store.runs(inner=True) == []


@rule
async def a_run_is_listed_as_its_newest_record_is(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    assert await store.runs() == [listed(record("r", 0, at=on(1)))]
    second = record("r", 1, at=on(2), status="waiting", iteration=7, checkpoint_id="second", frame=False)
    await store.append(second)
    assert await store.runs() == [listed(second, began=on(1))]
    await store.close()
    assert await store.runs() == [listed(second, began=on(1))]


@rule
async def runs_that_began_last_are_listed_first(store: Store) -> None:
    for run_id, day in [("b", 2), ("a", 3), ("d", 1), ("c", 2)]:
        await store.append(record(run_id, 0, at=on(day)))
    await store.append(record("d", 1, at=on(9)))
    assert await names(store) == ["a", "c", "b", "d"]
    await store.append(record("e", 0, at="2026-01-03T00:00:00.000001+00:00"))
    assert await names(store) == ["e", "a", "c", "b", "d"]


@rule
async def runs_of_odd_names_are_listed_and_paged_in_one_order(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=f"w{name}", at=on(1)))
    expected = sorted(ODD_IDS, reverse=True)
    assert await names(store) == expected
    assert await paged(store, 4) == expected
    for name in ODD_IDS:
        assert await names(store, workflow=f"w{name}") == [name]


async def paged(store: Store, limit: int) -> list[str]:
    found: list[str] = []
    past: RunEntry | None = None
    while page := await store.runs(past=past, limit=limit):
        assert len(page) <= limit
        found += [run.run_id for run in page]
        past = page[-1]
    return found


@rule
async def a_list_of_runs_comes_in_pages(store: Store) -> None:
    for n in range(10):
        await store.append(record(f"r{n}", 0, at=on(1 + n // 4)))
    everything = [f"r{n}" for n in reversed(range(10))]
    for limit in (1, 3, 10, 11):
        assert await paged(store, limit) == everything
    assert await store.runs(limit=0) == []
    first = await store.runs(limit=3)
    assert [run.run_id for run in await store.runs(past=first[-1])] == everything[3:]


@rule
async def a_page_goes_on_where_the_last_ended_though_its_last_run_moved_or_went(store: Store) -> None:
    for n in range(6):
        await store.append(record(f"r{n}", 0, at=on(n + 1)))
    page = await store.runs(limit=2)
    assert [run.run_id for run in page] == ["r5", "r4"]
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
        along = Along(about=about(team=team, even=str(n % 2 == 0)))
        await store.append(record(f"r{n}", 0, workflow=workflow, status=status, at=on(n + 1)), along)
    assert await names(store, workflow="w") == ["r3", "r1", "r0"]
    assert await names(store, status="done") == ["r3", "r2", "r0"]
    assert await names(store, workflow="w", status="done") == ["r3", "r0"]
    assert await names(store, tags={"team": "red"}) == ["r1", "r0"]
    assert await names(store, tags={"team": "red", "even": "True"}) == ["r0"]
    assert await names(store, tags={"team": "blue"}, workflow="w", status="done") == ["r3"]
    assert await names(store, tags={}) == ["r3", "r2", "r1", "r0"]
    for nothing in ({"team": "green"}, {"unknown": "red"}, {"team": "red", "unknown": ""}, {"TEAM": "red"}):
        assert await names(store, tags=nothing) == []
    assert await names(store, workflow="none") == []
    assert await names(store, status="none") == []


@rule
async def pages_are_of_what_matches(store: Store) -> None:
    for n in range(12):
        odd = "odd" if n % 2 else "even"
        status = "done" if n % 3 == 0 else "waiting"
        await store.append(
            record(f"r{n:02}", 0, workflow=odd, status=status, at=on(n + 1)), Along(about=about(odd=odd))
        )
    first = await store.runs(tags={"odd": "odd"}, limit=4)
    assert [run.run_id for run in first] == ["r11", "r09", "r07", "r05"]
    rest = await store.runs(tags={"odd": "odd"}, past=first[-1], limit=4)
    assert [run.run_id for run in rest] == ["r03", "r01"]
    first = await store.runs(workflow="even", limit=2)
    assert [run.run_id for run in await store.runs(workflow="even", past=first[-1], limit=2)] == ["r06", "r04"]
    first = await store.runs(status="done", limit=2)
    assert [run.run_id for run in await store.runs(status="done", past=first[-1], limit=9)] == ["r03", "r00"]


@rule
async def the_status_of_a_run_is_that_of_its_newest_record(store: Store) -> None:
    await store.append(record("r", 0, status="running"))
    await store.append(record("r", 1, status="waiting"))
    assert await names(store, status="running") == []
    assert await names(store, status="waiting") == ["r"]
    await store.append(record("r", 2, status="running"))
    assert await names(store, status="running") == ["r"]
    assert await names(store, status="waiting") == []


@rule
async def tags_stay_with_a_run_until_others_take_their_place(store: Store) -> None:
    await store.append(record("r", 0), Along(about=about(team="red", ticket="1")))
    await store.append(record("r", 1))
    assert (await store.runs())[0].about == about(team="red", ticket="1")
    await store.append(record("r", 2), Along(about=about(team="blue")))
    assert (await store.runs())[0].about == about(team="blue")
    assert await names(store, tags={"team": "red"}) == []
    assert await names(store, tags={"ticket": "1"}) == []
    assert await names(store, tags={"team": "blue"}) == ["r"]
    await store.append(record("r", 3), Along(about=About()))
    assert (await store.runs())[0].about == About()
    assert await names(store, tags={"team": "blue"}) == []


@rule
async def tags_of_odd_names_and_values_are_kept_apart(store: Store) -> None:
    tags = {name: f"{name}!" for name in ODD_IDS}
    await store.append(record("r", 0), Along(about=About(tags)))
    for name in ODD_IDS:
        await store.append(record(f"run of {name}", 0), Along(about=About({"name": name})))
    assert (await store.runs(tags=tags))[0].about == About(tags)
    for name in ODD_IDS:
        assert await names(store, tags={"name": name}) == [f"run of {name}"]
        assert await names(store, tags={name: f"{name}!"}) == ["r"]


@rule
async def runs_that_work_for_others_are_listed_only_when_asked_for(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    await store.append(record("inner", 0, at=on(2)), Along(about=about("r", team="red")))
    await store.append(record("inner", 1, at=on(3)))
    assert await names(store) == ["r"]
    assert await names(store, workflow="w") == ["r"]
    assert await names(store, tags={"team": "red"}) == []
    assert await names(store, inner=True) == ["inner", "r"]
    assert await names(store, inner=True, tags={"team": "red"}) == ["inner"]
    assert (await store.runs(inner=True))[0].about == about("r", team="red")
    assert await store.runs(limit=1) == [listed(record("r", 0, at=on(1)))]


@rule
async def a_refused_append_changes_nothing_in_the_list(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)), Along(about=about(team="red")))
    for number, workflow in [(0, "w"), (2, "w"), (1, "another")]:
        refused = record("r", number, workflow=workflow, status="done", at=on(2))
        with pytest.raises(CommitConflict):
            await store.append(refused, Along(about=about("x", team="blue")))
    with pytest.raises(CommitConflict):
        await store.append(record("new", 1), Along(about=about(team="blue")))
    assert await store.runs(inner=True) == [listed(record("r", 0, at=on(1)), about=about(team="red"))]
    assert await names(store, tags={"team": "blue"}) == []


@rule
async def what_is_put_is_listed_if_it_is_the_newest(store: Store) -> None:
    fifth = record("r", 5, at=on(5), status="waiting")
    await store.put(fifth, Along(about=about(team="red")))
    assert await store.runs() == [listed(fifth, about=about(team="red"))]
    await store.put(record("r", 2, at=on(2), status="done"))
    assert await store.runs() == [listed(fifth, began=on(5), about=about(team="red"))]
    again = record("r", 5, at=on(6), status="failed", checkpoint_id="again", iteration=3)
    await store.put(again)
    assert await store.runs() == [listed(again, began=on(5), about=about(team="red"))]
    last = record("r", 9, at=on(9))
    await store.put(last, Along(about=about(team="blue")))
    assert await store.runs() == [listed(last, began=on(5), about=about(team="blue"))]
    await store.put(record("r", 3, at=on(3)), Along(about=about(team="green")))
    assert await store.runs(tags={"team": "green"}) == [listed(last, began=on(5), about=about(team="green"))]


@rule
async def when_a_record_goes_the_newest_of_those_that_are_left_is_listed(store: Store) -> None:
    made = [record("r", n, at=on(n + 1), status=f"s{n}") for n in range(5)]
    for each in made:
        await store.append(each, Along(about=about(team="red") if each is made[0] else None))
    assert await store.remove("r", 0)
    assert await store.runs() == [listed(made[4], began=on(1), about=about(team="red"))]
    assert await store.remove("r", 4)
    assert await store.runs() == [listed(made[3], began=on(1), about=about(team="red"))]
    assert await store.remove("r", 2)
    assert await store.remove("r", 3)
    assert await store.runs(status="s1") == [listed(made[1], began=on(1), about=about(team="red"))]
    assert await store.remove("r", 1)
    assert await store.runs(inner=True) == []
    assert await store.runs(tags={"team": "red"}) == []
    await store.append(record("r", 0, at=on(9), workflow="another"))
    assert await store.runs() == [listed(record("r", 0, at=on(9), workflow="another"))]


@rule
async def a_follower_that_is_the_newest_is_listed(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)))
    await store.append(record("r", 1, at=on(2), frame=False))
    whole = record("r", 1, at=on(2), status="done", checkpoint_id="whole", iteration=8)
    assert await store.remove("r", 0, follower=whole)
    assert await store.runs() == [listed(whole, began=on(1))]


# -------------------------------------------------------------------- pages of entries


@rule
async def entries_come_in_pages_from_the_end(store: Store) -> None:
    for number in range(5):
        for run_id in ("r", "s"):
            await store.append(record(run_id, number, workflow="v" if run_id == "s" else "w"))
    assert places(await store.entries(limit=3)) == [("s", 3), ("r", 4), ("s", 4)]
    assert places(await store.entries(run_id="r", limit=2)) == [("r", 3), ("r", 4)]
    assert places(await store.entries(run_id="r", limit=2, before="r-3")) == [("r", 1), ("r", 2)]
    assert places(await store.entries(run_id="r", limit=9, before="r-2")) == [("r", 0), ("r", 1)]
    assert places(await store.entries(workflow="v", limit=2, before="s-4")) == [("s", 2), ("s", 3)]
    assert places(await store.entries(before="s-1")) == [("r", 0), ("s", 0), ("r", 1)]
    assert places(await store.entries(run_id="r", before="s-1", limit=1)) == [("r", 1)]
    assert len(await store.entries(limit=99)) == 10
    assert await store.entries(before="r-0") == []
    assert await store.entries(before="nothing") == []
    assert await store.entries(run_id="r", workflow="v", limit=2) == []
    assert await store.entries(limit=0) == []


@rule
async def what_was_put_is_on_the_last_page(store: Store) -> None:
    await fill(store, "r", 4)
    await store.put(record("r", 1, checkpoint_id="again"))
    assert places(await store.entries(limit=2)) == [("r", 3), ("r", 1)]
    assert places(await store.entries(run_id="r", before="again", limit=2)) == [("r", 2), ("r", 3)]
    assert places(await store.entries(run_id="r", before="r-3")) == [("r", 0), ("r", 2)]
    assert await store.entries(before="r-1") == []


# -------------------------------------------------------------------- keeping only the latest


@rule
async def that_a_record_is_fleeting_is_stored_with_it(store: Store) -> None:
    made = [record("r", 0, fleeting=True), record("r", 1, fleeting=False), record("r", 2, fleeting=True, outputs=True)]
    for each in made:
        await store.append(each)
    await store.close()
    assert [entry.fleeting for entry in await store.entries()] == [True, False, True]
    assert meanings(await store.history("r")) == meanings(made)
    assert await store.locate("r-0") == made[0].entry
    assert await store.newest() == made[2].entry
    assert meaning(await store.head("r")) == meaning(made[2])
    await store.put(record("r", 2, fleeting=False))
    assert await store.newest() == record("r", 2).entry
    assert await store.remove("r", 0, follower=record("r", 1, fleeting=True))
    assert await store.locate("r-1") == record("r", 1, fleeting=True).entry


@rule
async def what_an_append_drops_is_gone(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 3)
    await store.append(record("r", 3), Along(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    assert places(await store.entries(run_id="r")) == [("r", 3)]
    assert places(await store.entries()) == [("s", 0), ("s", 1), ("s", 2), ("r", 3)]
    assert places(await store.entries(workflow="w", limit=2)) == [("s", 2), ("r", 3)]
    assert await store.entries(before="r-2") == []
    assert await store.locate("r-1") is None
    assert await store.chain("r", 1) == []
    assert not await store.remove("r", 2)
    assert meanings(await store.chain("r", 3)) == meanings([record("r", 3)])
    assert numbers(await store.history("s")) == [0, 1, 2]


@rule
async def a_run_that_keeps_only_its_latest_goes_on(store: Store) -> None:
    for number in range(10):
        base = max(0, number - number % 3)
        await store.append(record("r", number, frame=number % 3 == 0, fleeting=True), Along(drop_below=base))
        assert numbers(await store.chain("r", number)) == list(range(base, number + 1))
        assert await store.newest(run_id="r") == record("r", number, frame=number % 3 == 0, fleeting=True).entry
    await store.close()
    assert numbers(await store.history("r")) == [9]
    for number in (0, 8, 9, 11):
        with pytest.raises(CommitConflict):
            await store.append(record("r", number))
    await store.append(record("r", 10))
    assert numbers(await store.history("r")) == [9, 10]


@rule
async def what_has_outputs_is_never_dropped(store: Store) -> None:
    for number in range(6):
        await store.append(record("r", number, outputs=number in (1, 4)), Along(drop_below=number))
    assert numbers(await store.history("r")) == [1, 4, 5]
    assert numbers(await store.history("r", outputs_only=True)) == [1, 4]
    assert await store.locate("r-1") == record("r", 1, outputs=True).entry
    assert places(await store.entries()) == [("r", 1), ("r", 4), ("r", 5)]
    await store.close()
    assert numbers(await store.history("r")) == [1, 4, 5]


@rule
async def what_is_kept_for_its_outputs_cannot_be_read_without_what_it_is_based_on(store: Store) -> None:
    await store.append(record("r", 0))
    await store.append(record("r", 1, frame=False, outputs=True))
    await store.append(record("r", 2), Along(drop_below=2))
    assert numbers(await store.history("r", outputs_only=True)) == [1]
    with pytest.raises(CheckpointCorrupt):
        await store.chain("r", 1)
    assert numbers(await store.chain("r", 2)) == [2]


@rule
async def a_refused_append_drops_nothing(store: Store) -> None:
    await fill(store, "r", 3)
    for number, workflow in [(2, "w"), (4, "w"), (3, "another")]:
        with pytest.raises(CommitConflict):
            await store.append(record("r", number, workflow=workflow), Along(drop_below=3))
    assert numbers(await store.history("r")) == [0, 1, 2]


@rule
async def dropping_leaves_everything_beside_the_records(store: Store) -> None:
    await store.append(record("r", 0, at=on(1)), Along(asked=(question("r", "q"),), about=about(team="red")))
    await store.post("r", "used", b"0")
    await store.append(record("r", 1, at=on(2)), Along(consumed=("used",), drop_below=1))
    await store.post("r", "k", b"1")
    await store.remember("r", 2, "k", b"1")
    await store.append(record("r", 2, at=on(3)), Along(drop_below=2, wake="2026-01-01"))
    assert await store.pending() == [question("r", "q")]
    assert await store.mail("r") == [("k", b"1")]
    assert not await store.post("r", "used", b"1")
    assert await store.recall("r", 2) == {"k": b"1"}
    assert await store.wakes() == [Wake("r", "w", "2026-01-01")]
    assert await store.runs() == [listed(record("r", 2, at=on(3)), began=on(1), about=about(team="red"))]


@rule
async def what_is_put_may_drop_too(store: Store) -> None:
    await fill(store, "r", 3)
    await store.put(record("r", 3), Along(drop_below=3))
    assert numbers(await store.history("r")) == [3]
    await store.put(record("r", 1))
    assert numbers(await store.history("r")) == [1, 3]


# -------------------------------------------------------------------- dropping a run


@rule
async def a_dropped_run_is_gone_with_everything_beside_it(store: Store) -> None:
    for run_id in ("r", "s"):
        await store.claim(run_id, this_process("mine"), seconds=60)
        await store.append(record(run_id, 0, at=on(1)), Along(about=about(team="red")))
        await store.post(run_id, "used", b"0")
        along = Along(asked=(question(run_id, "q"),), consumed=("used",), wake="2026-01-01")
        await store.append(record(run_id, 1, frame=False), along)
        await store.post(run_id, "k", b"1")
        await store.remember(run_id, 1, "k", b"1")
    assert await store.drop("r")
    await store.close()
    assert not await store.drop("r")
    assert await store.head("r") is None
    assert await store.history("r") == []
    assert await store.locate("r-1") is None
    assert await store.mail("r") == []
    assert await asyncio.to_thread(store.mailed, ["r", "s"]) == ["s"]
    assert await store.recall("r", 1) == {}
    assert places(await store.entries()) == [("s", 0), ("s", 1)]
    assert [p.run_id for p in await store.pending()] == ["s"]
    assert await store.wakes() == [Wake("s", "w", "2026-01-01")]
    assert await names(store) == ["s"]
    assert await names(store, tags={"team": "red"}) == ["s"]


@rule
async def a_dropped_run_may_begin_anew(store: Store) -> None:
    await store.claim("r", this_process("mine"), seconds=60)
    await store.post("r", "k", b"1")
    await store.append(record("r", 0, at=on(1)), Along(consumed=("k",), about=about("caller", team="red")))
    assert await store.drop("r")
    fence = await store.claim("r", this_process("other"), seconds=60)
    assert await store.post("r", "k", b"2")
    await store.append(record("r", 0, workflow="another", at=on(2)), Along(fence=fence))
    assert await store.mail("r") == [("k", b"2")]
    assert await store.runs() == [listed(record("r", 0, workflow="another", at=on(2)))]


@rule
async def there_is_nothing_to_drop_of_a_run_without_records(store: Store) -> None:
    assert not await store.drop("r")
    await store.claim("r", this_process("mine"), seconds=60)
    await store.post("r", "k", b"1")
    await fill(store, "s", 1)
    assert not await store.drop("r")
    assert await names(store) == ["s"]
    assert await store.mail("r") == [("k", b"1")]
    with pytest.raises(RunBusy):
        await store.claim("r", this_process("other"), seconds=60)


@rule
async def when_the_newest_record_goes_the_run_is_woken_as_is_said_then(store: Store) -> None:
    await fill(store, "r", 1)
    await store.append(record("r", 1), Along(wake=on(5)))
    await store.append(record("r", 2))
    assert await store.remove("r", 2, wake=on(5))
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await store.remove("r", 0, wake=on(9))
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await store.remove("r", 1, wake=on(9))
    assert await store.wakes() == []
