"""Rules for the list of checkpoints, and for finding one by its id."""

from __future__ import annotations

from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Entry
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import ODD_IDS, fill, id_of, meaning, on, places, record


@rule
async def checkpoints_are_listed_by_time_run_and_number(store: Store) -> None:
    for run_id, number, day in [("b", 0, 1), ("a", 0, 1), ("b", 1, 3), ("c", 0, 2), ("a", 1, 3), ("a", 2, 3)]:
        await store.append(record(run_id, number, at=on(day), workflow="odd" if run_id == "c" else "w"))
    every = [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("a", 2), ("b", 1)]
    assert places(await store.checkpoints()) == every
    assert places(await store.checkpoints(CheckpointFilter(workflow="w"))) == [p for p in every if p[0] != "c"]
    assert places(await store.checkpoints(CheckpointFilter(run_id="b"))) == [("b", 0), ("b", 1)]
    assert places(await store.checkpoints(CheckpointFilter(workflow="odd", run_id="c"))) == [("c", 0)]
    assert await store.checkpoints(CheckpointFilter(workflow="odd", run_id="a")) == []
    assert await store.checkpoints(CheckpointFilter(workflow="none")) == []
    assert await store.checkpoints(CheckpointFilter(run_id="none")) == []


@rule
async def checkpoints_of_one_run_are_listed_by_number(store: Store) -> None:
    # A clock that was set back, or another machine: times need not rise with the numbers.
    for number, day in enumerate([3, 1, 2]):
        await store.append(record("r", number, at=on(day)))
    of_r = CheckpointFilter(run_id="r")
    assert places(await store.checkpoints(of_r)) == [("r", 0), ("r", 1), ("r", 2)]
    assert places(await store.checkpoints(of_r, limit=2)) == [("r", 1), ("r", 2)]
    assert places(await store.checkpoints(of_r, before=record("r", 2, at=on(2)).entry)) == [("r", 0), ("r", 1)]
    assert places(await store.checkpoints()) == [("r", 1), ("r", 2), ("r", 0)]


@rule
async def the_newest_checkpoint_is_the_latest_by_time(store: Store) -> None:
    for run_id, number, workflow in [("a", 0, "v"), ("b", 0, "w"), ("a", 1, "v"), ("c", 0, "w")]:
        await store.append(record(run_id, number, workflow=workflow, at=on(9 - number)))

    async def newest(**criteria: str) -> list[tuple[str, int]]:
        return places(await store.checkpoints(CheckpointFilter(**criteria), limit=1))

    assert await newest() == [("c", 0)]
    assert await newest(workflow="v") == [("a", 0)]
    assert await newest(run_id="a") == [("a", 1)]
    assert await newest(run_id="b", workflow="w") == [("b", 0)]
    assert await newest(run_id="b", workflow="v") == []
    assert await newest(workflow="none") == []


@rule
async def checkpoints_are_paged_from_the_end(store: Store) -> None:
    made: dict[tuple[str, int], Entry] = {}
    for number in range(5):
        for run_id in ("r", "s"):
            each = record(run_id, number, workflow="v" if run_id == "s" else "w", at=on(1 + number))
            await store.append(each)
            made[run_id, number] = each.entry

    async def page(limit: int | None, before: tuple[str, int] | None = None, **criteria: str) -> list[tuple[str, int]]:
        entry = None if before is None else made[before]
        return places(await store.checkpoints(CheckpointFilter(**criteria), before=entry, limit=limit))

    assert await page(3) == [("s", 3), ("r", 4), ("s", 4)]
    assert await page(2, run_id="r") == [("r", 3), ("r", 4)]
    assert await page(2, ("r", 3), run_id="r") == [("r", 1), ("r", 2)]
    assert await page(9, ("r", 2), run_id="r") == [("r", 0), ("r", 1)]
    assert await page(2, ("s", 4), workflow="v") == [("s", 2), ("s", 3)]
    assert await page(None, ("s", 1)) == [("r", 0), ("s", 0), ("r", 1)]
    assert await page(1, ("s", 1)) == [("r", 1)]
    assert await page(99) == list(made)
    assert await page(None, ("r", 0)) == []
    assert await page(2, run_id="r", workflow="v") == []
    assert await page(0) == []


@rule
async def a_page_ends_before_the_last_one_even_if_its_first_checkpoint_is_gone(store: Store) -> None:
    for number in range(4):
        for run_id in ("r", "s"):
            await store.append(record(run_id, number, at=on(1 + number)))
    await store.rewrite("r", remove=[2])
    gone = record("r", 2, at=on(3)).entry
    assert places(await store.checkpoints(before=gone, limit=2)) == [("r", 1), ("s", 1)]
    assert places(await store.checkpoints(CheckpointFilter(run_id="r"), before=gone)) == [("r", 0), ("r", 1)]
    assert places(await store.checkpoints(CheckpointFilter(workflow="w"), before=gone, limit=1)) == [("s", 1)]


@rule
async def a_rewritten_record_is_listed_at_its_own_time(store: Store) -> None:
    for number in range(3):
        await store.append(record("r", number, at=on(1 + number)))
    await store.append(record("s", 0, at=on(2)))
    again = record("r", 1, body="again", checkpoint_id="again", at=on(2))
    await store.rewrite("r", insert=again, effects=NO_EFFECTS)
    assert places(await store.checkpoints()) == [("r", 0), ("r", 1), ("s", 0), ("r", 2)]
    assert await store.locate(id_of("r", 1)) is None
    assert await store.locate("again") == again.entry
    await store.rewrite("r", replace=[record("r", 0, at=on(9))])
    assert places(await store.checkpoints()) == [("r", 1), ("s", 0), ("r", 2), ("r", 0)]
    assert places(await store.checkpoints(CheckpointFilter(run_id="r"))) == [("r", 0), ("r", 1), ("r", 2)]


@rule
async def checkpoints_of_odd_names_are_listed_in_one_order(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=f"w{name}", checkpoint_id=f"c{name}"))
    expected = [(name, 0) for name in sorted(ODD_IDS)]
    assert places(await store.checkpoints()) == expected
    assert places(await store.checkpoints(limit=5)) == expected[-5:]
    for name in ODD_IDS:
        of_workflow, of_run = CheckpointFilter(workflow=f"w{name}"), CheckpointFilter(run_id=name)
        assert places(await store.checkpoints(of_workflow)) == places(await store.checkpoints(of_run)) == [(name, 0)]
        before = record(name, 0, workflow=f"w{name}", checkpoint_id=f"c{name}").entry
        assert places(await store.checkpoints(before=before)) == expected[: expected.index((name, 0))]


# -------------------------------------------------------------------- ids


@rule
async def a_checkpoint_is_located_by_its_id(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 2)
    assert await store.locate(id_of("r", 1)) == record("r", 1).entry
    assert await store.locate(id_of("s", 1)) == record("s", 1).entry
    assert await store.locate(id_of("s", 2)) is None  # the run is stored, the number is not
    assert await store.locate(id_of("t", 0)) is None
    assert await store.locate(id_of("r", 1)[:-1]) is None
    # The right place, but the id of another epoch of the run.
    other = id_of("r", 1)[:-8] + ("0" * 8 if not id_of("r", 1).endswith("0" * 8) else "1" * 8)
    assert await store.locate(other) is None


@rule
async def a_checkpoint_is_located_by_an_id_that_does_not_say_its_place(store: Store) -> None:
    # Saved by hand, or imported under another name: an id may say another place than its own.
    ids = {("r", 0): "by-hand", ("r", 1): id_of("elsewhere", 1), ("s", 0): id_of("r", 5), ("s", 1): id_of("s", 0)}
    for (run_id, number), checkpoint_id in ids.items():
        await store.append(record(run_id, number, checkpoint_id=checkpoint_id))
    for (run_id, number), checkpoint_id in ids.items():
        assert await store.locate(checkpoint_id) == record(run_id, number, checkpoint_id=checkpoint_id).entry
    assert await store.locate("by-han") is None
    assert await store.locate(id_of("r", 0)) is None
    await store.rewrite("r", remove=[0])
    await store.rewrite("s", insert=record("s", 0), effects=NO_EFFECTS)
    assert await store.locate("by-hand") is None
    assert await store.locate(id_of("r", 5)) is None
    await store.drop("r")
    assert await store.locate(id_of("elsewhere", 1)) is None


@rule
async def the_latest_of_several_checkpoints_with_one_id_is_located(store: Store) -> None:
    for run_id, day in [("a", 2), ("b", 3), ("c", 1)]:
        await store.append(record(run_id, 0, checkpoint_id="same", at=on(day)))
    assert await store.locate("same") == record("b", 0, checkpoint_id="same", at=on(3)).entry
    await store.drop("b")
    assert await store.locate("same") == record("a", 0, checkpoint_id="same", at=on(2)).entry


@rule
async def checkpoints_and_workflows_with_odd_names_are_found(store: Store) -> None:
    await store.append(record("r", 0))
    for name in ODD_IDS:
        assert await store.locate(name) is None
        assert await store.checkpoints(CheckpointFilter(workflow=name)) == []
    for name in ODD_IDS:
        await store.append(record(f"run of {name}", 0, checkpoint_id=name, workflow=name))
        located = await store.locate(name)
        assert located is not None
        assert located.run_id == f"run of {name}"


@rule
async def checkpoints_are_found_by_id_prefix(store: Store) -> None:
    foreign = [*ODD_IDS, "a\x10b", "\U0010ffff", "0a1b-x", "0a1b-y", "0A1B-z"]
    ids = []
    for number, id in enumerate(foreign):
        await store.append(record(f"r{number % 3}", number // 3, checkpoint_id=id, at=on(1 + number % 28)))
        ids.append(id)
    for run_id in ("p", "q"):
        await fill(store, run_id, 3)
        ids += [id_of(run_id, number) for number in range(3)]
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
    shortened = await store.checkpoints(CheckpointFilter(prefix="0a1b-"), limit=1)
    assert shortened == [await store.locate("0a1b-y")]


@rule
async def the_latest_only_flag_is_stored(store: Store) -> None:
    flags = [True, False, True]
    made = [record("r", n, latest_only=flag, outputs=n == 2, at=on(1 + n)) for n, flag in enumerate(flags)]
    for each in made:
        await store.append(each)
    await store.close()
    assert await store.checkpoints() == [each.entry for each in made]
    assert await store.locate(id_of("r", 0)) == made[0].entry
    assert [meaning(each) for each in await store.history("r")] == [meaning(each) for each in made]
    await store.rewrite("r", insert=record("r", 2, latest_only=False), effects=CommitEffects())
    assert await store.locate(id_of("r", 2)) == record("r", 2).entry
    await store.rewrite("r", remove=[0], replace=[record("r", 1, latest_only=True)])
    assert await store.locate(id_of("r", 1)) == record("r", 1, latest_only=True).entry
