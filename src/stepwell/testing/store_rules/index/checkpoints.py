"""Rules for the list of checkpoints, and for finding one by its id."""

from __future__ import annotations

from stepwell.storage.filters import ANY_CHECKPOINT, CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import ODD_IDS, append_all, fill, id_of, meanings, on, places, record


@rule
async def checkpoints_are_listed_by_time_run_and_number(store: Store) -> None:
    for run_id, number, day in [("b", 0, 1), ("a", 0, 1), ("b", 1, 3), ("c", 0, 2), ("a", 1, 3), ("a", 2, 3)]:
        await store.append(record(run_id, number, at=on(day), workflow="odd" if run_id == "c" else "w"))
    every = [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("a", 2), ("b", 1)]
    await check_searches(
        store,
        (CheckpointFilter(), every),
        (CheckpointFilter(workflow="w"), [place for place in every if place[0] != "c"]),
        (CheckpointFilter(run_id="b"), [("b", 0), ("b", 1)]),
        (CheckpointFilter(workflow="odd", run_id="c"), [("c", 0)]),
        (CheckpointFilter(workflow="odd", run_id="a"), []),
        (CheckpointFilter(workflow="none"), []),
        (CheckpointFilter(run_id="none"), []),
    )


async def check_searches(
    store: Store, *searches: tuple[CheckpointFilter, list[tuple[str, int]]], limit: int | None = None
) -> None:
    """Check which checkpoints are found by each filter, and in which order."""
    for checkpoint_filter, expected in searches:
        assert places(await store.checkpoints(checkpoint_filter, limit=limit)) == expected, checkpoint_filter


@rule
async def checkpoints_of_one_run_are_listed_by_number(store: Store) -> None:
    # A clock that was set back, or another machine: times need not rise with the numbers.
    await append_all(store, (record("r", number, at=on(day)) for number, day in enumerate([3, 1, 2])))
    of_r = CheckpointFilter(run_id="r")
    assert places(await store.checkpoints(of_r)) == [("r", 0), ("r", 1), ("r", 2)]
    assert places(await store.checkpoints(of_r, limit=2)) == [("r", 1), ("r", 2)]
    assert places(await store.checkpoints(of_r, before=record("r", 2, at=on(2)).entry)) == [("r", 0), ("r", 1)]
    assert places(await store.checkpoints()) == [("r", 1), ("r", 2), ("r", 0)]


@rule
async def the_newest_checkpoint_is_the_latest_by_time(store: Store) -> None:
    for run_id, number, workflow in [("a", 0, "v"), ("b", 0, "w"), ("a", 1, "v"), ("c", 0, "w")]:
        await store.append(record(run_id, number, workflow=workflow, at=on(9 - number)))
    await check_searches(
        store,
        (CheckpointFilter(), [("c", 0)]),
        (CheckpointFilter(workflow="v"), [("a", 0)]),
        (CheckpointFilter(run_id="a"), [("a", 1)]),
        (CheckpointFilter(run_id="b", workflow="w"), [("b", 0)]),
        (CheckpointFilter(run_id="b", workflow="v"), []),
        (CheckpointFilter(workflow="none"), []),
        limit=1,
    )


@rule
async def checkpoints_are_paged_from_the_end(store: Store) -> None:
    made = [
        record(run_id, number, workflow="v" if run_id == "s" else "w", at=on(1 + number))
        for number in range(5)
        for run_id in ("r", "s")
    ]
    await append_all(store, made)
    entries = {(each.entry.run_id, each.entry.number): each.entry for each in made}
    of_r, of_v = CheckpointFilter(run_id="r"), CheckpointFilter(workflow="v")
    for limit, before, criteria, expected in [
        (3, None, ANY_CHECKPOINT, [("s", 3), ("r", 4), ("s", 4)]),
        (2, None, of_r, [("r", 3), ("r", 4)]),
        (2, ("r", 3), of_r, [("r", 1), ("r", 2)]),
        (9, ("r", 2), of_r, [("r", 0), ("r", 1)]),
        (2, ("s", 4), of_v, [("s", 2), ("s", 3)]),
        (None, ("s", 1), ANY_CHECKPOINT, [("r", 0), ("s", 0), ("r", 1)]),
        (1, ("s", 1), ANY_CHECKPOINT, [("r", 1)]),
        (99, None, ANY_CHECKPOINT, list(entries)),
        (None, ("r", 0), ANY_CHECKPOINT, []),
        (2, None, CheckpointFilter(run_id="r", workflow="v"), []),
        (0, None, ANY_CHECKPOINT, []),
    ]:
        page = await store.checkpoints(criteria, before=before and entries[before], limit=limit)
        assert places(page) == expected, f"{limit=}, {before=}, {criteria}"


@rule
async def a_page_ends_before_the_last_one_even_if_its_first_checkpoint_is_gone(store: Store) -> None:
    await append_all(store, (record(run_id, number, at=on(1 + number)) for number in range(4) for run_id in ("r", "s")))
    await store.rewrite("r", remove=[2])
    gone = record("r", 2, at=on(3)).entry
    assert places(await store.checkpoints(before=gone, limit=2)) == [("r", 1), ("s", 1)]
    assert places(await store.checkpoints(CheckpointFilter(run_id="r"), before=gone)) == [("r", 0), ("r", 1)]
    assert places(await store.checkpoints(CheckpointFilter(workflow="w"), before=gone, limit=1)) == [("s", 1)]


@rule
async def a_rewritten_record_is_listed_at_its_own_time(store: Store) -> None:
    await append_all(store, (record("r", number, at=on(1 + number)) for number in range(3)))
    await store.append(record("s", 0, at=on(2)))
    again = record("r", 1, body="again", checkpoint_id="again", at=on(2))
    await store.rewrite("r", insert=again, effects=NO_EFFECTS)
    assert places(await store.checkpoints()) == [("r", 0), ("r", 1), ("s", 0), ("r", 2)]
    assert (await store.locate(id_of("r", 1)), await store.locate("again")) == (None, again.entry)
    await store.rewrite("r", replace=[record("r", 0, at=on(9))])
    assert places(await store.checkpoints()) == [("r", 1), ("s", 0), ("r", 2), ("r", 0)]
    assert places(await store.checkpoints(CheckpointFilter(run_id="r"))) == [("r", 0), ("r", 1), ("r", 2)]


@rule
async def checkpoints_of_odd_names_are_listed_in_one_order(store: Store) -> None:
    made = [record(name, 0, workflow=f"w{name}", checkpoint_id=f"c{name}") for name in ODD_IDS]
    await append_all(store, made)
    expected = sorted((each.entry for each in made), key=lambda entry: entry.run_id)
    assert await store.checkpoints() == expected
    assert await store.checkpoints(limit=5) == expected[-5:]
    for n, entry in enumerate(expected):
        of_workflow, of_run = CheckpointFilter(workflow=entry.workflow), CheckpointFilter(run_id=entry.run_id)
        assert await store.checkpoints(of_workflow) == await store.checkpoints(of_run) == [entry]
        assert await store.checkpoints(before=entry) == expected[:n]


# -------------------------------------------------------------------- ids


@rule
async def a_checkpoint_is_located_by_its_id(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 2)
    for run_id in ("r", "s"):
        assert await store.locate(id_of(run_id, 1)) == record(run_id, 1).entry
    # The right place, but the id of another epoch of the run.
    other = id_of("r", 1)[:-8] + ("0" * 8 if not id_of("r", 1).endswith("0" * 8) else "1" * 8)
    # The first one is of a run that is stored, but the number is not.
    for unknown in (id_of("s", 2), id_of("t", 0), id_of("r", 1)[:-1], other):
        assert await store.locate(unknown) is None, unknown


@rule
async def a_checkpoint_is_located_by_an_id_that_does_not_say_its_place(store: Store) -> None:
    # Saved by hand, or imported under another name: an id may say another place than its own.
    ids = {("r", 0): "by-hand", ("r", 1): id_of("elsewhere", 1), ("s", 0): id_of("r", 5), ("s", 1): id_of("s", 0)}
    made = [record(run_id, number, checkpoint_id=id) for (run_id, number), id in ids.items()]
    await append_all(store, made)
    for each in made:
        assert await store.locate(each.entry.checkpoint_id) == each.entry
    assert (await store.locate("by-han"), await store.locate(id_of("r", 0))) == (None, None)
    await store.rewrite("r", remove=[0])
    await store.rewrite("s", insert=record("s", 0), effects=NO_EFFECTS)
    assert (await store.locate("by-hand"), await store.locate(id_of("r", 5))) == (None, None)
    await store.drop("r")
    assert await store.locate(id_of("elsewhere", 1)) is None


@rule
async def the_latest_of_several_checkpoints_with_one_id_is_located(store: Store) -> None:
    made = {day: record(run_id, 0, checkpoint_id="same", at=on(day)) for run_id, day in [("a", 2), ("b", 3), ("c", 1)]}
    await append_all(store, made.values())
    assert await store.locate("same") == made[3].entry
    await store.drop("b")
    assert await store.locate("same") == made[2].entry


@rule
async def of_a_checkpoint_and_its_copies_that_of_the_run_that_made_it_is_located(store: Store) -> None:
    made = record("r", 0, at=on(1))
    copies = [record(run_id, 0, checkpoint_id=id_of("r", 0), at=on(day)) for run_id, day in [("a", 2), ("b", 1)]]
    await append_all(store, [copies[0], made, copies[1]])
    assert await store.locate(id_of("r", 0)) == made.entry
    await store.drop("r")
    assert await store.locate(id_of("r", 0)) == copies[0].entry


@rule
async def checkpoints_and_workflows_with_odd_names_are_found(store: Store) -> None:
    await store.append(record("r", 0))
    for name in ODD_IDS:
        assert await store.locate(name) is None
        assert await store.checkpoints(CheckpointFilter(workflow=name)) == []
    for name in ODD_IDS:
        made = record(f"run of {name}", 0, checkpoint_id=name, workflow=name)
        await store.append(made)
        assert await store.locate(name) == made.entry


@rule
async def checkpoints_are_found_by_id_prefix(store: Store) -> None:
    foreign = [*ODD_IDS, "a\x10b", "\U0010ffff", "0a1b-x", "0a1b-y", "0A1B-z"]
    for number, id in enumerate(foreign):
        await store.append(record(f"r{number % 3}", number // 3, checkpoint_id=id, at=on(1 + number % 28)))
    for run_id in ("p", "q"):
        await fill(store, run_id, 3)
    ids = [*foreign, *(id_of(run_id, number) for run_id in ("p", "q") for number in range(3))]
    real = [id_of("p", 1), id_of("q", 2)]
    prefixes = ["", "a", "a\0", "a\x10", "x" * 299, "0a1b", "0A", "é", "none", "\U0010ffff"]
    prefixes += [id[:end] for id in real for end in (1, 2, 4, 6, 8, 9, 15, 23, 30, 36)]
    for prefix in prefixes:
        found = await store.checkpoints(CheckpointFilter(prefix=prefix))
        assert sorted(entry.checkpoint_id for entry in found) == sorted(id for id in ids if id.startswith(prefix))
        assert found == [entry for entry in await store.checkpoints() if entry in found]  # in the same order
        assert await store.checkpoints(CheckpointFilter(prefix=prefix), limit=1) == found[-1:]
        in_run = await store.checkpoints(CheckpointFilter(prefix=prefix, run_id="q"))
        assert in_run == [entry for entry in found if entry.run_id == "q"]
    assert await store.checkpoints(CheckpointFilter(prefix=real[0], workflow="none")) == []
    assert await store.checkpoints(CheckpointFilter(prefix="0a1b-"), limit=1) == [await store.locate("0a1b-y")]


@rule
async def the_latest_only_flag_is_stored(store: Store) -> None:
    flags = [True, False, True]
    made = [record("r", n, latest_only=flag, outputs=n == 2, at=on(1 + n)) for n, flag in enumerate(flags)]
    await append_all(store, made)
    await store.close()
    assert await store.checkpoints() == [each.entry for each in made]
    assert await store.locate(id_of("r", 0)) == made[0].entry
    assert meanings(await store.history("r")) == meanings(made)
    await store.rewrite("r", insert=record("r", 2, latest_only=False), effects=CommitEffects())
    assert await store.locate(id_of("r", 2)) == record("r", 2).entry
    await store.rewrite("r", remove=[0], replace=[record("r", 1, latest_only=True)])
    assert await store.locate(id_of("r", 1)) == record("r", 1, latest_only=True).entry


@rule
async def records_with_decisions_are_found(store: Store) -> None:
    decided = {("a", 1), ("a", 3), ("b", 0), ("c", 2)}
    for run_id, day, workflow in [("a", 1, "w"), ("b", 2, "w"), ("c", 1, "other")]:
        for n in range(4):
            flag = (run_id, n) in decided
            await store.append(record(run_id, n, workflow=workflow, decisions=flag, at=on(day + 2 * n)))
    await store.close()
    everything = CheckpointFilter(decisions=True)
    expected = [("b", 0), ("a", 1), ("c", 2), ("a", 3)]
    found = await store.checkpoints(everything)
    assert [(entry.run_id, entry.number) for entry in found] == expected
    assert all(entry.decisions for entry in found)
    pages = await store.checkpoints(everything, limit=3)
    assert pages == found[1:]
    assert await store.checkpoints(everything, before=pages[0], limit=3) == found[:1]
    assert await store.checkpoints(CheckpointFilter(decisions=True, workflow="other")) == [found[2]]
    in_run = CheckpointFilter(run_id="a", decisions=True)
    assert await store.checkpoints(in_run) == [found[1], found[3]]
    assert await store.checkpoints(in_run, limit=1) == [found[3]]
    assert await store.checkpoints(in_run, before=found[3], limit=1) == [found[1]]
    assert [each.entry for each in await store.history("a", after=0, upto=1)] == [found[1]]
    assert (await store.open("c")).records[-1].entry.decisions is False
    # A record that replaces another one brings its own flag.
    await store.rewrite("a", replace=[record("a", 1, at=on(3))])
    assert await store.checkpoints(in_run) == [found[3]]
    await store.drop("b")
    assert await store.checkpoints(everything) == [found[2], found[3]]
